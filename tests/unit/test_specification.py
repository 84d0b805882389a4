"""The specification has every rule that is cited, and a test cites every rule that it has.

A rule is cited by its name, such as C4: in a comment, a docstring, a page, the head of a scenario, the name
of a test, or a string that is the name alone, such as the "I6" of a violation. Names have the letters of the
specification and numbers up to 19, so P50, H100, T0 and ``-N2`` are none.
"""

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.shown import REPOSITORY

SPECIFICATION = REPOSITORY / "docs" / "specification.md"
TEXT = SPECIFICATION.read_text(encoding="utf-8")
ENTRIES = re.findall(r'^- <a id="([^"]+)"></a>\*\*(\w+)[,.]', TEXT, re.MULTILINE)
RULES = [name for _, name in ENTRIES]
SECTIONS = set(re.findall(r"^## (\d+)\.", TEXT, re.MULTILINE))

LETTERS = "".join(sorted({name[0] for name in RULES}))
NAME = rf"[{LETTERS}](?:[1-9]|1\d)[a-z]?"
CITED = re.compile(rf"(?<![\w-]){NAME}(?!\w)")
IN_A_TEST_NAME = re.compile(rf"test_((?:{NAME}_)+)", re.IGNORECASE)
FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
NUMBERS = r"(\d+(?:(?:, | and )\d+)*)"
CITED_SECTIONS = re.compile(rf"\bspec(?:ification)?,? sections? {NUMBERS}", re.IGNORECASE)
SECTIONS_OF_IT = re.compile(rf"\bsections? {NUMBERS} of the specification", re.IGNORECASE)
LINKED = re.compile(r"specification\.md#([a-z]\d+[a-z]?)\b")


def prose_of_python(text: str) -> Iterator[str]:
    """Comments, strings that are statements, strings that are a name alone, and names in names of tests."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(ast.Constant(str() as docstring)):
                yield docstring
            case ast.Constant(str() as value) if CITED.fullmatch(value):
                yield value
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if match := IN_A_TEST_NAME.match(name):
                    yield match[1].upper().replace("_", " ")


def prose_of(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    match path.suffix:
        case ".py":
            worth_parsing = CITED.search(text) or IN_A_TEST_NAME.search(text)
            return "\n".join(prose_of_python(text)) if worth_parsing else ""
        case ".txt":
            return "\n".join(line for line in text.splitlines() if line.startswith("#"))
        case ".md":
            return FENCED.sub("", text)
    return text


def files() -> Iterator[Path]:
    for directory in ("src", "tests", "pages", "benchmarks"):
        yield from (REPOSITORY / directory).rglob("*.py")
    for directory in ("docs", "changes"):
        yield from (REPOSITORY / directory).rglob("*.md")
    yield from REPOSITORY.glob("*.md")
    yield from (REPOSITORY / "tests" / "scenarios").glob("*.txt")
    yield from (REPOSITORY / "pages").glob("*.yaml")


@cache
def citations() -> dict[str, set[str]]:
    """The files that cite each rule, apart from the specification and this file."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in files():
        if path not in (SPECIFICATION, Path(__file__)):
            for name in CITED.findall(prose_of(path)):
                found[name].add(path.relative_to(REPOSITORY).as_posix())
    return found


def test_rule_has_an_anchor_of_its_name_and_stands_once() -> None:
    assert len(RULES) > 60
    assert [anchor for anchor, name in ENTRIES if anchor != name.lower()] == []
    assert sorted(set(RULES)) == sorted(RULES)
    assert TEXT.count('<a id="') == len(RULES)


def test_rule_that_is_cited_is_in_the_specification() -> None:
    within = {name: {"docs/specification.md"} for name in CITED.findall(TEXT)}
    unknown = {name: sorted(paths) for name, paths in (within | citations()).items() if name not in RULES}
    assert unknown == {}


def test_rule_in_the_specification_is_cited_by_a_test() -> None:
    tested = {name for name, paths in citations().items() if any(path.startswith("tests/") for path in paths)}
    assert [name for name in RULES if name not in tested] == []


def test_section_that_is_cited_is_in_the_specification() -> None:
    cited = {
        (number, path.relative_to(REPOSITORY).as_posix())
        for path in files()
        for pattern in (CITED_SECTIONS, SECTIONS_OF_IT)
        for listed in pattern.findall(path.read_text(encoding="utf-8"))
        for number in re.findall(r"\d+", listed)
    }
    assert cited
    assert [(number, path) for number, path in sorted(cited) if number not in SECTIONS] == []


def test_link_to_a_rule_names_a_rule() -> None:
    pages = (REPOSITORY / "docs").rglob("*.md")
    linked = {anchor for page in pages for anchor in LINKED.findall(page.read_text(encoding="utf-8"))}
    assert sorted(linked - {anchor for anchor, _ in ENTRIES}) == []
