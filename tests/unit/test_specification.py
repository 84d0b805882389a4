"""Every cited rule is in the specification, and a test cites every rule of the specification.

A rule is cited by its name, such as C4: in a comment, a docstring, a page, a comment of a scenario, the name
of a test, or a string that is only the name, such as the "I6" of a violation. A name is a letter of the
specification and a number up to 19, so P50, H100, T0 and ``-N2`` are not names of rules.
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
CITED_AFTER_A_HASH = re.compile(rf"#.*{CITED.pattern}")
IN_A_TEST_NAME = re.compile(rf"test_((?:{NAME}_)+)", re.IGNORECASE)
FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
NUMBERS = r"(\d+(?:(?:, | and )\d+)*)"
CITED_SECTIONS = re.compile(rf"\bspec(?:ification)?,? sections? {NUMBERS}", re.IGNORECASE)
SECTIONS_OF_IT = re.compile(rf"\bsections? {NUMBERS} of the specification", re.IGNORECASE)
LINKED = re.compile(r"specification\.md#([a-z]\d+[a-z]?)\b")


def prose_of_python(text: str) -> Iterator[str]:
    """Yields comments, docstrings, strings that are only a name, and the names of rules in names of tests."""
    if CITED_AFTER_A_HASH.search(text):  # tokenizing is slow
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


def prose_of(path: Path, text: str) -> str:
    match path.suffix:
        case ".py":
            worth_parsing = CITED.search(text) or IN_A_TEST_NAME.search(text)
            return "\n".join(prose_of_python(text)) if worth_parsing else ""
        case ".txt":
            return "\n".join(line for line in text.splitlines() if line.startswith("#"))
        case ".md":
            return FENCED.sub("", text)
    return text


def paths() -> Iterator[Path]:
    for directory in ("src", "tests", "pages", "benchmarks"):
        yield from (REPOSITORY / directory).rglob("*.py")
    for directory in ("docs", "changes"):
        yield from (REPOSITORY / directory).rglob("*.md")
    yield from REPOSITORY.glob("*.md")
    yield from (REPOSITORY / "tests" / "scenarios").glob("*.txt")
    yield from (REPOSITORY / "pages").glob("*.yaml")


@cache
def texts() -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8") for path in paths()}


@cache
def citations() -> dict[str, set[str]]:
    """Returns the files that cite each rule, except for the specification and this file."""
    citing: dict[str, set[str]] = defaultdict(set)
    for path, text in texts().items():
        if path not in (SPECIFICATION, Path(__file__)):
            for name in CITED.findall(prose_of(path, text)):
                citing[name].add(path.relative_to(REPOSITORY).as_posix())
    return citing


def test_rule_has_an_anchor_of_its_name_and_is_defined_once() -> None:
    assert len(RULES) > 60
    assert [anchor for anchor, name in ENTRIES if anchor != name.lower()] == []
    assert sorted(set(RULES)) == sorted(RULES)
    assert TEXT.count('<a id="') == len(RULES)


def test_cited_rule_is_in_the_specification() -> None:
    own = {name: {"docs/specification.md"} for name in CITED.findall(TEXT)}
    unknown = {name: sorted(citing) for name, citing in (own | citations()).items() if name not in RULES}
    assert unknown == {}


def test_rule_in_the_specification_is_cited_by_a_test() -> None:
    tested = {
        name for name, citing in citations().items() if any(path.startswith("tests/") for path in citing)
    }
    assert [name for name in RULES if name not in tested] == []


def test_cited_section_is_in_the_specification() -> None:
    cited = {
        (number, path.relative_to(REPOSITORY).as_posix())
        for path, text in texts().items()
        for pattern in (CITED_SECTIONS, SECTIONS_OF_IT)
        for listed in pattern.findall(text)
        for number in re.findall(r"\d+", listed)
    }
    assert cited
    assert [(number, path) for number, path in sorted(cited) if number not in SECTIONS] == []


def test_link_to_a_rule_names_a_rule() -> None:
    pages = (REPOSITORY / "docs").rglob("*.md")
    linked = {anchor for page in pages for anchor in LINKED.findall(page.read_text(encoding="utf-8"))}
    assert sorted(linked - {anchor for anchor, _ in ENTRIES}) == []
