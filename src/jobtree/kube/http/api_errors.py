"""What can go wrong between Jobtree and an API server, as three exceptions.

* ``StatusError``: the server answered, and the answer is no. It carries all that the server's Status says.
* ``UnreachableError``: no answer came. ``may_have_happened`` says whether a write could have taken effect all
  the same; only a request that never left this machine certainly did not.
* ``FencedError``: this process may not write (any more), so it did not ask.
"""

from typing import NamedTuple, TypeVar

import msgspec

T = TypeVar("T")

UNAUTHORIZED = 401
FORBIDDEN = 403
NOT_FOUND = 404
CONFLICT = 409
GONE = 410
INVALID = 422
TOO_MANY = 429
SERVER_ERROR = 500
MAX_TEXT = 500


class StatusCause(NamedTuple):
    """One thing that is wrong with the object sent: which rule, in the server's words, and where."""

    reason: str
    message: str
    field: str


class KubeError(Exception):
    """Anything that kept a request from being done."""


class UnreachableError(KubeError):
    def __init__(self, message: str, *, may_have_happened: bool) -> None:
        super().__init__(message)
        self.may_have_happened = may_have_happened


class FencedError(KubeError):
    """Leadership is lost: nothing is written any more."""


class StatusError(KubeError):
    """The server said no. ``retry_after_seconds`` is None where it did not say when to ask again."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        causes: tuple[StatusCause, ...] = (),
        retry_after_seconds: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.causes = causes
        self.retry_after_seconds = retry_after_seconds

    @property
    def is_conflict(self) -> bool:
        """Somebody else changed the object, or it is another one by now: plan again from what is there.

        A patch with another uid is refused as an edit of it, and one whose tests fail as an error in the
        request, without causes: servers do not call these conflicts.
        """
        if self.code == INVALID:
            return not self.causes or any(cause.field == "metadata.uid" for cause in self.causes)
        return self.code == CONFLICT and self.reason != "AlreadyExists"

    @property
    def exists_already(self) -> bool:
        return self.code == CONFLICT and self.reason == "AlreadyExists"

    @property
    def is_gone(self) -> bool:
        """What the request builds on is too old: list again."""
        return self.code == GONE or self.reason in ("Expired", "Gone")

    @property
    def lacks_right(self) -> bool:
        """RBAC says no, not admission: the request is sound, and succeeds once somebody grants the right.

        Servers answer both alike; only RBAC names a user, a verb and a resource.
        """
        return self.code == FORBIDDEN and " cannot " in self.message and ' resource "' in self.message

    @property
    def is_passing(self) -> bool:
        """The server is busy or unwell: the same request may succeed later."""
        return self.code == TOO_MANY or self.code >= SERVER_ERROR


class Response(NamedTuple):
    """What a server sent back, whole."""

    code: int
    body: bytes
    retry_after: str | None = None
    warnings: tuple[str, ...] = ()  # what it also wants to be known, word by word

    def accepted(self) -> bytes:
        """The body of a yes. Raises StatusError."""
        if self.code < 300:  # noqa: PLR2004  as HTTP counts
            return self.body
        raise status_error(self.code, self.body, self.retry_after)


def read_answer(body: bytes, kind: type[T]) -> T:
    """What a server says yes with. Something else may answer in its place: that is no answer at all."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as broken:
        raise UnreachableError(f"the answer is not Kubernetes': {broken}", may_have_happened=True) from None


class _Cause(msgspec.Struct):
    reason: str = ""
    message: str = ""
    field: str = ""


class _Details(msgspec.Struct, rename="camel"):
    causes: tuple[_Cause, ...] | None = None
    retry_after_seconds: int | None = None


class _MetaStatus(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


def status_error(code: int, body: bytes, retry_after: str | None = None) -> StatusError:
    """The refusal in a body, which is a metav1.Status unless something between us and the server wrote it."""
    try:
        status = msgspec.json.decode(body, type=_MetaStatus)
    except msgspec.DecodeError:
        text = body.decode(errors="replace").strip()[:MAX_TEXT]
        status = _MetaStatus(message=text or f"the server answered {code} and gave no reason")
    details = status.details or _Details()
    seconds = int(retry_after) if retry_after and retry_after.isdecimal() else details.retry_after_seconds
    return StatusError(
        status.code or code,
        status.reason,
        status.message or f"the server answered {status.code or code} and gave no reason",
        tuple(StatusCause(one.reason, one.message, one.field) for one in details.causes or ()),
        seconds,
    )
