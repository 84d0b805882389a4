"""The errors of the library. Each has its fields, and the exit code that ``kubectl runs`` ends with.

``InputError`` (a refused document, with its problems) and the errors of the state file are defined where they
are raised; all of them are a ``JobtreeError``.
"""

from collections.abc import Iterable
from typing import NamedTuple

from jobtree.api.schema.problems import JobtreeError


class ArgumentError(JobtreeError, ValueError):
    """An argument that is not allowed: a time, a width, or two arguments that exclude each other."""


class NotFoundError(JobtreeError):
    """The ``kind`` of object called ``name`` does not exist."""

    exit_code = 3

    def __init__(self, message: str, kind: str = "", name: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.name = name


class ConflictError(JobtreeError):
    """Not possible now: the name is taken, the object has changed, or the Run is not running."""

    exit_code = 4


class NoAnswerError(JobtreeError):
    """The cluster cannot be reached or fails; it may answer later."""

    exit_code = 74


class RefusalCause(NamedTuple):
    """One problem of the object that was sent, as the server describes it."""

    field: str
    message: str


class RefusedError(JobtreeError):
    """The server refused a request: its status code, its reason, and its causes by field."""

    def __init__(self, message: str, code: int, reason: str, causes: Iterable[RefusalCause] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.causes = tuple(causes)


class CredentialsError(RefusedError):
    """The server rejected the credentials: the token or the certificate may have expired."""


class ForbiddenError(RefusedError):
    """The user lacks a right."""


class WaitError(JobtreeError):
    """The Run did not reach the phase ``until``. ``phase`` is that which it has; empty: it was deleted."""

    exit_code = 1

    def __init__(self, message: str, run: str, phase: str, until: str) -> None:
        super().__init__(message)
        self.run = run
        self.phase = phase
        self.until = until


class WaitTimeoutError(WaitError, TimeoutError):
    """The Run did not reach a phase in time."""


class RunEndedError(WaitError):
    """The Run failed or was deleted, so it will not reach the phase."""
