"""``make demo``: a narrated day on a small simulated fleet.

``demo/story.txt`` is the script: its text is printed, its commands are run by the same program that users
run. The cluster is left behind for experiments.
"""

import contextlib
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import click

from jobtree.cli.main import main as kubectl_runs
from jobtree.cli.shell.command_errors import Exit
from jobtree.client import STATE_VARIABLE

STATE = "cluster.yaml"
STORY = "story.txt"
PROMPT = "$ kubectl runs "
NEXT = (
    ("what runs now, who pays, and where", "state --all"),
    ("whether one more Run would start, and if not, why", "plan -f {directory}/next.yaml"),
    ("advance the clock by three hours", "advance 3h"),
)


def main() -> int:
    """Plays the story; returns the exit code of the first command that failed, else 0."""
    directory = demo_directory()
    for source in files("jobtree.cli").joinpath("demo").iterdir():
        (directory / source.name).write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    with working_in(directory):
        for line in Path(STORY).read_text(encoding="utf-8").splitlines():
            code = play(line)
            if code not in (Exit.OK, Exit.NO):  # "no" is an answer too
                return code
    print_next_steps(directory)
    return Exit.OK


def demo_directory() -> Path:
    """Returns build/demo, or a temporary directory if that cannot be written."""
    directory = Path("build", "demo")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            return directory
    except OSError:
        return Path(tempfile.mkdtemp(prefix="jobtree-demo-"))


@contextlib.contextmanager
def working_in(directory: Path) -> Iterator[None]:
    """Changes to the directory and makes its cluster the default, so that the commands are short."""
    before = dict(os.environ)
    os.environ[STATE_VARIABLE] = STATE
    try:
        with contextlib.chdir(directory):
            yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def play(line: str) -> int:
    """Prints a line of the story, and runs it if it is a command."""
    if not line.startswith(PROMPT):
        click.echo(line)
        return Exit.OK
    click.secho(f"\n{line}", bold=True)
    return kubectl_runs(shlex.split(line.removeprefix(PROMPT)))


def print_next_steps(directory: Path) -> None:
    path = shlex.quote(str(directory))
    click.echo(f"\nThe cluster of that day is in {path}/{STATE}. Try next:")
    for purpose, arguments in NEXT:
        click.echo(f"\n  # {purpose}")
        click.echo(f"  {program()} --state {path}/{STATE} {arguments.format(directory=path)}")


def program() -> str:
    """Returns the command for kubectl-runs: the one next to this Python, else the one on the PATH."""
    executable = Path(sys.executable).with_name("kubectl-runs")
    if not executable.exists():
        return "kubectl-runs"
    with contextlib.suppress(ValueError):
        executable = executable.relative_to(Path.cwd())
    return shlex.quote(str(executable))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:  # the reader (head, less) has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
