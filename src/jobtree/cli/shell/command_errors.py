"""What a command answers: its exit code, and an error that says what to do next."""

from enum import IntEnum


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
    Exit.OK: "done, or the answer is yes",
    Exit.NO: "the answer is no: the Run would not start now, an invariant is broken, a proof is refused",
    Exit.USAGE: "a mistake in the command, a manifest or the state file; a right that you lack",
    Exit.NOT_FOUND: "there is no such Run, node or file",
    Exit.CONFLICT: "not as things are: the file is locked, the name is taken, the Run does not run",
    Exit.BUG: "a bug in Jobtree: please report it",
    Exit.IO: "the cluster does not answer; the state file or the lottery key cannot be read or saved",
}


class CommandError(Exception):
    """A command that could not do what it was asked; the message says what to do next."""

    def __init__(self, code: Exit, message: str) -> None:
        self.code = code
        super().__init__(message)
