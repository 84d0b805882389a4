r"""Every command that the documentation shows is run, and prints what the documentation says.

A page's ```console blocks are one session, in a directory of its own with a copy of config/samples. Lines
that start with `$ ` are commands:

- `kubectl runs …` and `cat FILE` are run. What is shown below one must be what it prints; a line `…` stands
  for any lines. Where nothing is shown, the command must succeed.
- `cp FILE FILE` copies; `export JOBTREE_STATE=FILE` names the cluster of all commands after it.
- A ```yaml block that begins with `# NAME.yaml` is written to that file.
- `make TARGET` must be a target of the Makefile; setting the PATH is for the reader alone.

`pytest tests/unit/test_docs.py --rewrite` writes what was printed into the pages, for a human to review.
"""

import importlib
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.scenarios.runner import Command, Main, Scenario, run

REPOSITORY = Path(__file__).parents[2]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
ANY_LINES = "…"
TARGETS = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
PATH = 'PATH="$PWD/.venv/bin:$PATH"'


@dataclass(frozen=True)
class Shown:
    """A command of a page: its text, the lines shown below it, and the number of the first of these."""

    text: str
    printed: tuple[str, ...]
    at: int


@dataclass(frozen=True)
class Manifest:
    name: str
    text: str


def shown(page: str) -> Iterator[Shown | Manifest]:
    """All commands and named manifests of a page, in order."""
    lines = page.splitlines()
    inside = ""
    for number, line in enumerate(lines):
        below = number + 1
        if line.startswith("```"):
            inside = "" if inside else line
        elif inside == "```console" and line.startswith("$ "):
            end = next(at for at in range(below, len(lines)) if lines[at].startswith(("$ ", "```")))
            yield Shown(without_comment(line[2:]), tuple(without_blanks(lines[below:end])), below)
        elif inside == "```yaml" and (name := re.fullmatch(r"# ([a-z0-9-]+\.yaml)", line)):
            end = lines.index("```", below)
            yield Manifest(name[1], "".join(f"{one}\n" for one in lines[below:end]))


def without_comment(command: str) -> str:
    return re.split(r"\s+# ", command, maxsplit=1)[0].strip()


def without_blanks(lines: list[str]) -> list[str]:
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    return lines


class Session:
    """The directory and the cluster that a page's commands work on."""

    def __init__(self, main: Main, directory: Path) -> None:
        self.directory = directory
        self._main = main
        self._state: list[str] = []

    def run(self, command: str) -> list[str]:
        """What the command prints, with a last line ``[exit N]`` where it does not succeed."""
        match command.split():
            case ["kubectl", "runs", *_] | ["kubectl-runs", *_] | ["cat", *_]:
                scenario = Scenario((Command(command, ()),))
                seen = run(scenario, main=self._call, directory=self.directory, repository=REPOSITORY)
                (step,) = seen.steps
                assert isinstance(step, Command)
                return list(step.printed)
            case ["cp", source, target]:
                shutil.copyfile(self.directory / source, self.directory / target)
            case ["export", *settings]:
                self._export(settings)
            case ["make", target] if target in TARGETS:
                pass
            case _:
                raise AssertionError(f"a page cannot say this: $ {command}")
        return []

    def _export(self, settings: list[str]) -> None:
        for setting in settings:
            name, _, value = setting.partition("=")
            if name == "JOBTREE_STATE":
                self._state = ["--state", value]
            else:
                assert setting == PATH, f"a page cannot set this: {setting}"

    def _call(self, arguments: list[str]) -> int:
        return self._main([*self._state, *arguments])


def agrees(expected: tuple[str, ...], printed: list[str]) -> bool:
    """Whether the output is as shown; without anything shown, whether all went well."""
    output = [line for line in printed if not line.startswith("[exit ")]
    if not expected:
        return output == printed
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == ANY_LINES else re.escape(f"{line}\n") for line in expected
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in output)) is not None


@pytest.fixture(name="main", scope="session")
def _main() -> Main:
    main: Main = importlib.import_module("jobtree.cli.main").main
    return main


@pytest.mark.parametrize("path", [pytest.param(page, id=page.name) for page in PAGES])
def test_a_page_shows_what_happens(
    path: Path, main: Main, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    shutil.copytree(REPOSITORY / "config" / "samples", tmp_path / "config" / "samples")
    session = Session(main, tmp_path)
    text = path.read_text(encoding="utf-8")
    wrong = []
    for step in shown(text):
        if isinstance(step, Manifest):
            (tmp_path / step.name).write_text(step.text, encoding="utf-8")
        elif not agrees(step.printed, printed := session.run(step.text)):
            wrong.append((step, printed))
    if wrong and request.config.getoption("--rewrite"):
        path.write_text(rewritten(text, wrong), encoding="utf-8")
    elif wrong:
        pytest.fail("\n\n".join(complaint(path, *each) for each in wrong), pytrace=False)


def rewritten(page: str, wrong: list[tuple[Shown, list[str]]]) -> str:
    lines = page.splitlines()
    for command, printed in reversed(wrong):
        output = [line for line in printed if not line.startswith("[exit ")]
        lines[command.at : command.at + len(command.printed)] = output
    return "".join(f"{line}\n" for line in lines)


def complaint(path: Path, command: Shown, printed: list[str]) -> str:
    where = f"{path.relative_to(REPOSITORY)}, line {command.at}: $ {command.text}"
    return "\n".join([where, "shown:", *command.printed, "printed:", *printed])


@pytest.mark.parametrize("path", [pytest.param(page, id=page.name) for page in PAGES])
def test_links_lead_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text)
    assert [link for link in links if "://" not in link and not (path.parent / link).exists()] == []


def test_every_page_is_reached_from_the_readme() -> None:
    readme = PAGES[0].read_text(encoding="utf-8")
    assert [page.name for page in PAGES[1:] if f"docs/{page.name}" not in readme] == []


def test_the_directory_tree_names_every_room_and_every_file_of_the_core() -> None:
    tree = (REPOSITORY / "docs" / "directory-tree.md").read_text(encoding="utf-8")
    source, tests = REPOSITORY / "src" / "jobtree", REPOSITORY / "tests"
    rooms = [path for path in (*source.iterdir(), *tests.iterdir()) if path.is_dir()]
    assert [room.name for room in rooms if f"  {room.name}/" not in tree and room.name[0] != "_"] == []
    files = [path.stem for path in (source / "core").glob("*.py") if path.stem != "__init__"]
    assert [name for name in sorted(files) if f"`{name}`" not in tree] == []


def test_decisions_are_short_and_dated() -> None:
    for path in (REPOSITORY / "docs" / "decisions").glob("*.md"):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert lines[0].startswith(f"# {path.name[:10]}: "), path.name
        assert len(lines) < 40, path.name


@pytest.mark.parametrize(
    ("expected", "printed", "fine"),
    [
        ((), [], True),
        ((), ["something"], True),
        ((), ["error: no", "[exit 2]"], False),
        (("one", "two"), ["one", "two"], True),
        (("one",), ["one", "two"], False),
        (("one", "…"), ["one", "two", "three"], True),
        (("…", "three"), ["one", "two", "three"], True),
        (("one", "…", "three"), ["one", "three"], True),
        (("it waits",), ["it waits", "[exit 1]"], True),
    ],
)
def test_what_agrees(expected: tuple[str, ...], printed: list[str], fine: bool) -> None:
    assert agrees(expected, printed) is fine


def test_a_page_is_read_into_its_commands() -> None:
    page = """\
```console
$ make demo   # a comment
$ cat x
one

two

```
```yaml
# not this one
```
```yaml
# run.yaml
kind: Run
```
"""
    assert list(shown(page)) == [
        Shown("make demo", (), 2),
        Shown("cat x", ("one", "", "two"), 3),
        Manifest("run.yaml", "kind: Run\n"),
    ]


def test_a_rewrite_changes_only_what_was_wrong() -> None:
    page = "```console\n$ cat x\nold\nolder\n$ cat y\nkept\n```\nend\n"
    first, _ = shown(page)
    assert isinstance(first, Shown)
    assert (
        rewritten(page, [(first, ["new", "[exit 1]"])])
        == "```console\n$ cat x\nnew\n$ cat y\nkept\n```\nend\n"
    )
