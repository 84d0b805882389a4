"""``make demo``: a narrated day on a small simulated fleet.

``demo/story.txt`` is the script. Its words are shown as they stand; its commands are carried out as a user
would type them, by the same program. The cluster is left behind to go on with.
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
from jobtree.cli.shell.options import STATE_VARIABLE

STATE = "cluster.yaml"
STORY = "story.txt"
PROMPT = "$ kubectl runs "
NEXT = (
    ("what runs now, who pays, and where", "state --all"),
    ("whether one more Run would start, and if not, why", "plan -f {directory}/next.yaml"),
    ("let three more hours pass", "advance 3h"),
)


def main() -> int:
    """Tell the story; the exit code of the first command that went wrong, else 0."""
    directory = workplace()
    for source in files("jobtree.cli").joinpath("demo").iterdir():
        (directory / source.name).write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    with at_work(directory):
        for line in Path(STORY).read_text(encoding="utf-8").splitlines():
            code = tell(line)
            if code not in (Exit.OK, Exit.NO):  # "no" is an answer too
                return code
    farewell(directory)
    return Exit.OK


def workplace() -> Path:
    """Where the cluster is left: build/demo, or a temporary directory where that cannot be written."""
    directory = Path("build", "demo")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            return directory
    except OSError:
        return Path(tempfile.mkdtemp(prefix="jobtree-demo-"))


@contextlib.contextmanager
def at_work(directory: Path) -> Iterator[None]:
    """In that directory, on the cluster in it: so commands are as short as those of a user."""
    before = dict(os.environ)
    os.environ[STATE_VARIABLE] = STATE
    try:
        with contextlib.chdir(directory):
            yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def tell(line: str) -> int:
    """Show a line of the story. A command is carried out, too."""
    if not line.startswith(PROMPT):
        click.echo(line)
        return Exit.OK
    click.secho(f"\n{line}", bold=True)
    return kubectl_runs(shlex.split(line.removeprefix(PROMPT)))


def farewell(directory: Path) -> None:
    place = shlex.quote(str(directory))
    click.echo(f"\nThe cluster of that day is in {place}/{STATE}. Try next:")
    for purpose, arguments in NEXT:
        click.echo(f"\n  # {purpose}")
        click.echo(f"  {program()} --state {place}/{STATE} {arguments.format(directory=place)}")


def program() -> str:
    """How to call kubectl-runs from here: the one beside this Python, else the one on the PATH."""
    beside = Path(sys.executable).with_name("kubectl-runs")
    if not beside.exists():
        return "kubectl-runs"
    with contextlib.suppress(ValueError):
        beside = beside.relative_to(Path.cwd())
    return shlex.quote(str(beside))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:  # whoever read along (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
