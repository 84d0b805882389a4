r"""Runs a scenario: a plain-text file that shows commands and what they print.

    # A gang starts together or not at all.
    --- copy config/samples/cluster.yaml cluster.yaml
    --- file run.yaml
    kind: Run
    $ kubectl runs --state cluster.yaml plan train
    train waits
    [exit 3]

The rules:

- A scenario begins with prose: lines that start with `#`. The name of its file is the claim.
- `--- file NAME` writes the lines below it to NAME, in a directory of the scenario, up to the next `$` line
  or `---` directive. A bare `---` is content, because YAML needs it, and so are comments. Blank lines and
  comments at the very end are prose about the next step.
- `--- copy SOURCE NAME` copies a file of the repository.
- `$ COMMAND` runs `kubectl runs …`, `kubectl-runs …` or `cat FILE…`; `> FILE` at the end keeps stdout.
- The lines below a command, up to the next `$`, `#` or directive, are what it prints on stdout and stderr; a
  last line `[exit N]` says that it fails. Blanks at the ends of lines and blank lines at the end are
  ignored. A printed line that looks like one of these marks begins with a `\`.

A scenario is parsed into steps, which render the same text again. A run returns the same scenario with the
observed output. So a mismatch is the difference of two texts, and a rewrite writes the second text.
"""

import contextlib
import difflib
import io
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import TextIO
from unittest.mock import patch

Main = Callable[[list[str]], int]

COLUMNS = 110
_DIRECTIVE = re.compile(r"--- (file|copy)\b")
_MARK = re.compile(r"#|\$ |\\|--- (file|copy)\b")
_SHELL_ONLY = {"|", "||", "&", "&&", ";", "<", "<<", ">>", ">", "2>", "2>&1", "&>"}


class ScenarioError(Exception):
    """The scenario is malformed."""


@dataclass(frozen=True)
class Prose:
    lines: tuple[str, ...]

    def render(self) -> Iterator[str]:
        yield from self.lines


@dataclass(frozen=True)
class WriteFile:
    name: str
    lines: tuple[str, ...]

    def render(self) -> Iterator[str]:
        yield f"--- file {self.name}"
        yield from self.lines


@dataclass(frozen=True)
class CopyFile:
    source: str
    name: str

    def render(self) -> Iterator[str]:
        yield f"--- copy {self.source} {self.name}"


@dataclass(frozen=True)
class Command:
    text: str
    printed: tuple[str, ...]

    def render(self) -> Iterator[str]:
        yield f"$ {self.text}"
        for line in self.printed:
            yield f"\\{line}" if _MARK.match(line) else line


Step = Prose | WriteFile | CopyFile | Command


@dataclass(frozen=True)
class Scenario:
    steps: tuple[Step, ...]

    def render(self) -> str:
        return "".join(f"{line}\n" for step in self.steps for line in step.render())


# ------------------------------------------------------------------------------------------- parsing


def parse(text: str) -> Scenario:
    lines = text.splitlines()
    if not lines or not lines[0].startswith("#"):
        raise ScenarioError("a scenario begins with prose: a first line that starts with '#'")
    steps = tuple(_steps(lines))
    if not any(isinstance(step, Command) for step in steps):
        raise ScenarioError("a scenario without a command ('$ …') proves nothing")
    return Scenario(steps)


def _steps(lines: list[str]) -> Iterator[Step]:
    at = 0
    while at < len(lines):
        line, rest = lines[at], lines[at + 1 :]
        if line.startswith("$ "):
            body = list(takewhile(lambda after: not _is_mark(after), rest))
            kept = _without_trailing_blanks(body)
            yield Command(line[2:].strip(), tuple(_unescaped(kept_line.rstrip()) for kept_line in kept))
        elif line.startswith("--- file "):
            kept = _without_trailing_prose(list(takewhile(lambda after: not _ends_file(after), rest)))
            yield WriteFile(line.removeprefix("--- file ").strip(), tuple(kept))
        elif line.startswith("--- copy "):
            kept = []
            yield _copy(line, at + 1)
        elif line.startswith("#") or not line.strip():
            kept = []
            yield Prose((line.rstrip(),))
        else:
            raise ScenarioError(f"line {at + 1}: neither prose ('#'), command ('$') nor '---': {line!r}")
        at += 1 + len(kept)


def _copy(line: str, number: int) -> CopyFile:
    match line.split()[2:]:
        case [source, name]:
            return CopyFile(source, name)
    raise ScenarioError(f"line {number}: expected '--- copy SOURCE NAME': {line!r}")


def _is_mark(line: str) -> bool:
    return _MARK.match(line) is not None and not line.startswith("\\")


def _ends_file(line: str) -> bool:
    return line.startswith("$ ") or _DIRECTIVE.match(line) is not None


def _unescaped(line: str) -> str:
    return line.removeprefix("\\")


def _without_trailing_blanks(lines: list[str]) -> list[str]:
    return _without_trailing(lines, lambda line: not line.strip())


def _without_trailing_prose(lines: list[str]) -> list[str]:
    return _without_trailing(lines, lambda line: not line.strip() or line.startswith("#"))


def _without_trailing(lines: list[str], unwanted: Callable[[str], bool]) -> list[str]:
    dropped = sum(1 for _ in takewhile(unwanted, reversed(lines)))
    return lines[: len(lines) - dropped]


# ------------------------------------------------------------------------------------------- running


def run(scenario: Scenario, *, main: Main, directory: Path, repository: Path) -> Scenario:
    """Runs a scenario; returns it with what its commands printed."""
    steps: list[Step] = []
    for step in scenario.steps:
        match step:
            case Command():
                steps.append(replace(step, printed=tuple(_observe(step.text, main, directory))))
                continue
            case WriteFile():
                _place(directory, step.name).write_text(
                    "".join(f"{line}\n" for line in step.lines), encoding="utf-8"
                )
            case CopyFile():
                shutil.copyfile(_inside(repository, step.source), _place(directory, step.name))
            case Prose():
                pass
        steps.append(step)
    return Scenario(tuple(steps))


def difference(expected: Scenario, observed: Scenario, name: str) -> str:
    """Returns a unified diff; empty if the output is as expected."""
    return "".join(
        difflib.unified_diff(
            expected.render().splitlines(keepends=True),
            observed.render().splitlines(keepends=True),
            fromfile=f"{name} (expected)",
            tofile=f"{name} (observed)",
        )
    )


def _observe(text: str, main: Main, directory: Path) -> Iterator[str]:
    argv, target = _words(text)
    printed = _Capture()
    kept = _Capture() if target else printed
    with _environment(directory, kept.stream, printed.stream):
        code = _execute(argv, main, directory)
    if target:
        _place(directory, target).write_text(kept.text(), encoding="utf-8")
    yield from _without_trailing_blanks([line.rstrip() for line in printed.text().splitlines()])
    if code:
        yield f"[exit {code}]"


def _words(text: str) -> tuple[list[str], str | None]:
    words = shlex.split(text)
    target = None
    if words[-2:-1] == [">"]:
        target, words = words[-1], words[:-2]
    if unsupported := _SHELL_ONLY.intersection(words):
        raise ScenarioError(f"a scenario is no shell, {sorted(unsupported)} is not understood: $ {text}")
    return words, target


def _execute(argv: list[str], main: Main, directory: Path) -> int:
    match argv:
        case ["kubectl", "runs", *arguments] | ["kubectl-runs", *arguments]:
            return _call(main, arguments)
        case ["cat", *names] if names:
            return max(_cat(directory, name) for name in names)
    raise ScenarioError(f"only kubectl runs, kubectl-runs and cat can be run: $ {shlex.join(argv)}")


def _call(main: Main, arguments: list[str]) -> int:
    try:
        return main(arguments)
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        sys.stderr.write(f"{error.code}\n")
        return 1


def _cat(directory: Path, name: str) -> int:
    path = _inside(directory, name)
    if not path.is_file():
        sys.stderr.write(f"cat: {name}: no such file\n")
        return 1
    sys.stdout.write(path.read_text(encoding="utf-8"))
    return 0


def _place(directory: Path, name: str) -> Path:
    path = _inside(directory, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _inside(directory: Path, name: str) -> Path:
    path = (directory / name).resolve()
    if not path.is_relative_to(directory.resolve()):
        raise ScenarioError(f"{name!r} lies outside the scenario's directories")
    return path


class _Capture:
    """A text stream with a byte buffer, like stdout: click writes to both."""

    def __init__(self) -> None:
        self._bytes = io.BytesIO()
        self.stream = io.TextIOWrapper(self._bytes, encoding="utf-8", newline="\n", write_through=True)

    def text(self) -> str:
        self.stream.flush()
        return self._bytes.getvalue().decode("utf-8")


@contextlib.contextmanager
def _environment(directory: Path, stdout: TextIO, stderr: TextIO) -> Iterator[None]:
    """Sets an empty stdin, a plain terminal of fixed width, and hides the clusters of the developer."""
    fixed = {"NO_COLOR": "1", "COLUMNS": str(COLUMNS), "HOME": str(directory), "TERM": "dumb"}
    inherited = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
    with (
        patch.dict(os.environ, inherited | fixed, clear=True),
        patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(), encoding="utf-8")),
        contextlib.chdir(directory),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
    ):
        yield
