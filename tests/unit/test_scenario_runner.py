"""The scenario runner, tested with a small program in place of kubectl runs."""

import os
import sys
from pathlib import Path

import click
import pytest

from tests.scenarios.runner import Command, CopyFile, Prose, ScenarioError, WriteFile, difference, parse, run

SCENARIO = """\
# A gang starts together or not at all.

--- copy samples/fleet.yaml cluster.yaml
--- file runs/train.yaml
kind: Run  # a comment of the file's own
---
# so is this
kind: Run

# The next line runs something.
$ kubectl runs echo one
one

# And again.
$ kubectl-runs echo two
two
[exit 3]
"""


def fake_main(argv: list[str]) -> int:
    match argv:
        case ["echo", *words]:
            click.echo("\n".join(words))
            return 0
        case ["fail", code]:
            click.echo("first, on stdout")
            click.echo("then, on stderr", err=True)
            sys.exit(int(code))
        case ["die", reason]:
            sys.exit(reason)
        case ["environment"]:
            here = sorted(path.name for path in Path().iterdir())
            click.echo(f"{here} {os.environ['COLUMNS']} {os.environ['NO_COLOR']} {sys.stdin.read()!r}")
            click.echo(click.style("plain", fg="red"))
            return 0
    raise AssertionError(argv)


@pytest.fixture(name="repository")
def _repository(tmp_path: Path) -> Path:
    samples = tmp_path / "repository" / "samples"
    samples.mkdir(parents=True)
    (samples / "fleet.yaml").write_text("kind: Node\n")
    return samples.parent


@pytest.fixture(name="directory")
def _directory(tmp_path: Path) -> Path:
    directory = tmp_path / "scenario"
    directory.mkdir()
    return directory


@pytest.fixture(name="printed")
def _printed(directory: Path, repository: Path) -> "ScenarioOutput":
    return ScenarioOutput(directory, repository)


class ScenarioOutput:
    """Runs scenarios, and returns what each of their commands printed."""

    def __init__(self, directory: Path, repository: Path) -> None:
        self.directory = directory
        self.repository = repository

    def __call__(self, *lines: str) -> list[tuple[str, ...]]:
        scenario = parse("\n".join(["# A claim.", *lines]))
        observed = run(scenario, main=fake_main, directory=self.directory, repository=self.repository)
        return [step.printed for step in observed.steps if isinstance(step, Command)]


def test_scenario_is_parsed_into_steps() -> None:
    assert [step for step in parse(SCENARIO).steps if not isinstance(step, Prose)] == [
        CopyFile("samples/fleet.yaml", "cluster.yaml"),
        WriteFile(
            "runs/train.yaml",
            ("kind: Run  # a comment of the file's own", "---", "# so is this", "kind: Run"),
        ),
        Command("kubectl runs echo one", ("one",)),
        Command("kubectl-runs echo two", ("two", "[exit 3]")),
    ]


def test_parsed_scenario_renders_the_same_text() -> None:
    assert parse(SCENARIO).render() == SCENARIO


def test_trailing_blanks_are_ignored() -> None:
    assert parse("# A claim.\n$ cat x   \none   \n\ntwo\n \n\n").steps[1] == Command(
        "cat x", ("one", "", "two")
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "begins with prose"),
        ("$ cat x\n", "begins with prose"),
        ("# Only words.\n", "proves nothing"),
        ("# A claim.\nwhat is this\n$ cat x\n", "line 2: neither"),
        ("# A claim.\n--- copy one\n$ cat x\n", "line 2: expected '--- copy SOURCE NAME'"),
    ],
)
def test_malformed_scenario_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ScenarioError, match=complaint):
        parse(text)


def test_difference_shows_expected_and_observed_lines(directory: Path, repository: Path) -> None:
    expected = parse(SCENARIO)
    observed = run(expected, main=fake_main, directory=directory, repository=repository)
    assert difference(expected, expected, "claim.txt") == ""
    assert difference(expected, observed, "claim.txt").splitlines() == [
        "--- claim.txt (expected)",
        "+++ claim.txt (observed)",
        "@@ -14,4 +14,3 @@",
        " # And again.",
        " $ kubectl-runs echo two",
        " two",
        "-[exit 3]",
    ]


def test_observed_output_is_expected_by_the_next_run(directory: Path, repository: Path) -> None:
    marks = "'# not prose' '$ not a command' '--- file no' '\\ backslash' '---' '  #' '$5'"
    first = parse(f"# A claim.\n$ kubectl runs echo {marks}\n\n# The end.\n")
    observed = run(first, main=fake_main, directory=directory, repository=repository)
    reread = parse(observed.render())
    assert observed.render().splitlines()[2:] == [
        "\\# not prose",
        "\\$ not a command",
        "\\--- file no",
        "\\\\ backslash",
        "---",
        "  #",
        "$5",
        "",
        "# The end.",
    ]
    assert reread == observed
    assert run(reread, main=fake_main, directory=directory, repository=repository) == reread


def test_output_has_stdout_stderr_and_the_exit_code_in_order(printed: ScenarioOutput) -> None:
    assert printed("$ kubectl runs fail 3", "$ kubectl runs die 'no cluster'", "$ kubectl runs fail 0") == [
        ("first, on stdout", "then, on stderr", "[exit 3]"),
        ("no cluster", "[exit 1]"),
        ("first, on stdout", "then, on stderr"),
    ]


def test_commands_run_in_their_own_directory_and_terminal(printed: ScenarioOutput) -> None:
    before = Path.cwd(), sys.stdin, sys.stdout
    assert printed("--- file a.txt", "x", "$ kubectl runs environment") == [
        ("['a.txt'] 110 1 ''", "plain"),
    ]
    assert (Path.cwd(), sys.stdin, sys.stdout) == before


def test_files_are_written_copied_and_printed(printed: ScenarioOutput) -> None:
    assert printed(
        "--- copy samples/fleet.yaml deep/cluster.yaml",
        "--- file empty.txt",
        "--- file a.txt",
        "one",
        "",
        "$ cat deep/cluster.yaml a.txt empty.txt",
        "$ cat gone.txt",
    ) == [("kind: Node", "one"), ("cat: gone.txt: no such file", "[exit 1]")]


def test_redirection_writes_stdout_to_a_file(printed: ScenarioOutput) -> None:
    assert printed("$ kubectl runs fail 2 > out.txt", "$ cat out.txt") == [
        ("then, on stderr", "[exit 2]"),
        ("first, on stdout",),
    ]


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        (["$ ls"], "only kubectl runs"),
        (["$ kubectl get pods"], "only kubectl runs"),
        (["$ cat"], "only kubectl runs"),
        (["$ kubectl runs echo a | cat x"], "no shell"),
        (["$ kubectl runs echo a >> x"], "no shell"),
        (["$ cat ../secret"], "outside"),
        (["--- file /elsewhere", "$ cat x"], "outside"),
        (["--- copy ../x y", "$ cat y"], "outside"),
    ],
)
def test_other_programs_shell_syntax_and_outside_paths_are_refused(
    printed: ScenarioOutput, lines: list[str], complaint: str
) -> None:
    with pytest.raises(ScenarioError, match=complaint):
        printed(*lines)


def test_exception_of_the_program_fails_the_scenario(printed: ScenarioOutput) -> None:
    with pytest.raises(AssertionError, match="unheard-of"):
        printed("$ kubectl runs unheard-of")
