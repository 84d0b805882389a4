r"""Runs every command that the documentation shows, and compares what it prints.

The ```console blocks of a page are one session, in a directory of its own with a copy of config/samples.
Lines that start with `$ ` are commands:

- `kubectl runs …` and `cat FILE` are run. Each must print what is shown below it; a line `…` stands for any
  lines. If nothing is shown, the command must succeed.
- `cp FILE FILE` copies; `export JOBTREE_STATE=FILE` names the cluster of all commands after it.
- A ```yaml block that begins with `# NAME.yaml` is written to that file.
- `make TARGET` must be a target of the Makefile. A change of the PATH is ignored.

A page that has ```shell-session blocks is about a live cluster: `tests/live/install/test_live_guides.py` runs
those.

`pytest tests/unit/test_docs.py --rewrite` writes what was printed into the pages, for review.
"""

import importlib
import re
import shutil
from pathlib import Path

import click
import msgspec
import pytest
import yaml

from jobtree.api.kinds.budget import Envelope
from jobtree.api.kinds.run import RunSpec
from jobtree.cli.shell.root_command import root
from pages.hooks import REFERENCE
from tests.scenarios.runner import Command, Main, Scenario, run
from tests.shown import LIVE, LIVE_GUIDES, REPOSITORY, Manifest, Shown, agrees, complaint, rewritten, shown

PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
TARGETS = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
SOURCE = REPOSITORY / "src" / "jobtree"
PATH = 'PATH="$PWD/.venv/bin:$PATH"'


class Session:
    """The directory and the cluster of the commands of a page."""

    def __init__(self, main: Main, directory: Path) -> None:
        self.directory = directory
        self._main = main
        self._state: list[str] = []

    def run(self, command: str) -> list[str]:
        """Returns what the command prints, with a last line ``[exit N]`` if it fails."""
        match command.split():
            case ["kubectl", "runs", *_] | ["kubectl-runs", *_] | ["cat", *_]:
                scenario = Scenario((Command(command, ()),))
                observed = run(scenario, main=self._call, directory=self.directory, repository=REPOSITORY)
                (step,) = observed.steps
                assert isinstance(step, Command)
                return list(step.printed)
            case ["cp", source, target]:
                shutil.copyfile(self.directory / source, self.directory / target)
            case ["export", *settings]:
                self._export(settings)
            case ["make", target] if target in TARGETS:
                pass
            case _:
                raise AssertionError(f"a page cannot have this command: $ {command}")
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


@pytest.fixture(name="main", scope="session")
def _main() -> Main:
    main: Main = importlib.import_module("jobtree.cli.main").main
    return main


@pytest.mark.parametrize("path", [pytest.param(page, id=str(page.relative_to(REPOSITORY))) for page in PAGES])
def test_commands_of_a_page_print_what_it_shows(
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
        pytest.fail(
            "\n\n".join(complaint(path, command, printed) for command, printed in wrong), pytrace=False
        )


@pytest.mark.parametrize("path", [pytest.param(page, id=str(page.relative_to(REPOSITORY))) for page in PAGES])
def test_parts_of_manifests_are_valid(path: Path) -> None:
    """A ```yaml block without a name shows some fields of a Run or of an envelope."""
    for text in re.findall(
        r"^```yaml\n(?!# [a-z0-9-]+\.yaml\n)(.*?)^```$", path.read_text(), re.MULTILINE | re.DOTALL
    ):
        part = yaml.safe_load(text)
        run = {"owner": "org:team", "resources": {"gpuType": "H100", "totalGPUs": 1}}
        envelope = {"name": "one", "flavor": "H100", "concurrency": 1}
        kind, least = (RunSpec, run) if part.keys() <= names_of(RunSpec) else (Envelope, envelope)
        msgspec.convert(least | part, kind)


def names_of(kind: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(kind)}


@pytest.mark.parametrize("path", [pytest.param(page, id=str(page.relative_to(REPOSITORY))) for page in PAGES])
def test_verbs_and_options_that_are_mentioned_exist(path: Path) -> None:
    mentioned = re.findall(r"`kubectl runs ([^`]+)`", path.read_text(encoding="utf-8"))
    wrong = [words for words in mentioned if not exists(words.split())]
    assert wrong == []


def exists(words: list[str]) -> bool:
    """Whether the verb exists and takes these options, itself or a verb below it."""
    command: click.Command | None = root
    accepted = {"--help", *(flag for option in root.params for flag in option.opts)}
    for word in words:
        if isinstance(command, click.Group) and not word.startswith("-") and word.islower():
            command = command.get_command(click.Context(command), word)
            if command is None:
                return False
            accepted |= {flag for option in command.params for flag in (*option.opts, *option.secondary_opts)}
    return {word.partition("=")[0] for word in words if word.startswith("-")} <= accepted


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("explain RUN --verify", True),
        ("explian RUN", False),
        ("explain --prove", False),
        ("import slurm x.sh", True),
    ],
)
def test_misspelled_verbs_and_options_do_not_exist(words: str, expected: bool) -> None:
    assert exists(words.split()) is expected


@pytest.mark.parametrize("path", [pytest.param(page, id=str(page.relative_to(REPOSITORY))) for page in PAGES])
def test_links_lead_to_files(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text)
    local = [path.parent / link for link in links if "://" not in link]
    generated = [(REPOSITORY / "docs" / page).resolve() for page in REFERENCE]  # when the site is built
    assert [link for link in local if not link.exists() and link.resolve() not in generated] == []


def test_every_guide_is_reached_from_the_readme() -> None:
    readme = PAGES[0].read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(([^)#\s]+)[^)]*\)", readme))
    guides = {page.relative_to(REPOSITORY) for page in PAGES[1:] if page.name != "index.md"}
    assert sorted(page for page in guides if not {str(page), str(page.parent)} & linked) == []


def test_only_guides_that_a_live_test_runs_show_live_commands() -> None:
    live = [page for page in PAGES if LIVE in page.read_text(encoding="utf-8")]
    assert live == [REPOSITORY / "docs" / guide for guide in LIVE_GUIDES]


@pytest.mark.skipif(not (SOURCE / "core" / "world").is_dir(), reason="the core has no rooms yet")
def test_directory_tree_names_every_package_and_every_module_of_the_core() -> None:
    page = (REPOSITORY / "docs" / "architecture" / "directory-tree.md").read_text(encoding="utf-8")
    packages = [path.parent for path in SOURCE.rglob("__init__.py") if path.parent != SOURCE]
    tests = [path for path in (REPOSITORY / "tests").iterdir() if path.is_dir() and path.name[0] != "_"]
    assert [path.name for path in (*packages, *tests) if f"  {path.name}/" not in page] == []
    modules = {path.stem for path in (SOURCE / "core").rglob("*.py")} - {"__init__"}
    listed = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert listed == modules


def test_files_that_the_readiness_page_names_exist() -> None:
    page = (REPOSITORY / "docs" / "project" / "first-class-readiness.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:tests|benchmarks|deploy|docs)/[^`]+)`", page)
    assert len(named) > 20
    assert [path for path in named if not (REPOSITORY / path).exists()] == []


@pytest.mark.parametrize(
    ("expected", "printed", "is_as_shown"),
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
def test_printed_lines_are_compared_with_the_shown_ones(
    expected: tuple[str, ...], printed: list[str], is_as_shown: bool
) -> None:
    assert agrees(expected, printed) is is_as_shown


def test_page_is_read_as_commands_and_manifests() -> None:
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


def test_rewrite_changes_only_wrong_output() -> None:
    page = "```console\n$ cat x\nold\nolder\n$ cat y\nkept\n```\nend\n"
    first, _ = shown(page)
    assert isinstance(first, Shown)
    assert (
        rewritten(page, [(first, ["new", "[exit 1]"])])
        == "```console\n$ cat x\nnew\n$ cat y\nkept\n```\nend\n"
    )
