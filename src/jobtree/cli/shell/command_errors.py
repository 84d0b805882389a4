"""Exit codes, and the error of a command that could not do its work."""

from enum import IntEnum

import click

from jobtree.api.schema.problems import JobtreeError


class Exit(IntEnum):
    OK = 0
    NO = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    BUG = 70
    IO = 74
    INTERRUPTED = 130
    TERMINATED = 143


MEANINGS: dict[Exit, str] = {
    Exit.OK: "success, or the answer is yes",
    Exit.NO: "the answer is no: the Run would not start now, an invariant is broken, a proof is refused",
    Exit.USAGE: "an error in the command, a manifest or the state file; a permission that you lack",
    Exit.NOT_FOUND: "the Run, node or file does not exist",
    Exit.CONFLICT: "not possible now: the file is locked, the name is taken, the Run is not running",
    Exit.BUG: "a bug in Jobtree: please report it",
    Exit.IO: "the cluster does not answer; the state file or the lottery key cannot be read or saved",
}


def warn(text: str) -> None:
    click.echo(f"warning: {text}", err=True)


class CommandError(JobtreeError):
    """An error of a command, with its exit code; the message says what to do next."""

    def __init__(self, code: Exit, message: str) -> None:
        super().__init__(message)
        self.exit_code = code
