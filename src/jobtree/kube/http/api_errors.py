"""The response of an API server and the three ways in which a request can fail.

* ``StatusError``: the server refused the request. It holds what the server's Status says.
* ``UnreachableError``: there was no response. ``may_have_happened`` is true if the server could have received
  a write.
* ``FencedError``: this process may not write any more, so the request was not sent.
"""

from typing import NamedTuple, TypeVar

import msgspec

T = TypeVar("T")

UNAUTHORIZED = 401
FORBIDDEN = 403
NOT_FOUND = 404
CONFLICT = 409
GONE = 410
TOO_LARGE = 413
INVALID = 422
TOO_MANY = 429
SERVER_ERROR = 500
MAX_TEXT = 500


class StatusCause(NamedTuple):
    """One problem of the object that was sent, as the server describes it."""

    reason: str
    message: str
    field: str


class KubeError(Exception):
    """A request that failed."""


class UnreachableError(KubeError):
    def __init__(self, message: str, *, may_have_happened: bool) -> None:
        super().__init__(message)
        self.may_have_happened = may_have_happened


class FencedError(KubeError):
    """A write that was not sent because this process is not the leader any more."""


class StatusError(KubeError):
    """A refusal by the server. ``retry_after_seconds`` is None if the server does not give it."""

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
        """Whether a precondition failed: the object was changed, or replaced by another of the same name.

        Servers also answer 422 then: with the cause ``metadata.uid`` to a patch with another uid, and without
        causes to a JSON patch whose tests fail.
        """
        if self.code == INVALID:
            return not self.causes or any(cause.field == "metadata.uid" for cause in self.causes)
        return self.code == CONFLICT and self.reason != "AlreadyExists"

    @property
    def exists_already(self) -> bool:
        return self.code == CONFLICT and self.reason == "AlreadyExists"

    @property
    def is_gone(self) -> bool:
        """Whether the server has forgotten the version that the request names; the caller must list again."""
        return self.code == GONE or self.reason in ("Expired", "Gone")

    @property
    def lacks_right(self) -> bool:
        """Whether RBAC refused the request, not an admission plugin: it succeeds once the right is granted.

        Both answer 403; only the message of RBAC names a user, a verb and a resource.
        """
        return self.code == FORBIDDEN and " cannot " in self.message and ' resource "' in self.message

    @property
    def is_too_large(self) -> bool:
        """Whether the object is larger than the server or its etcd stores; etcd's refusal has code 500."""
        return self.code == TOO_LARGE or (
            self.code == SERVER_ERROR and "request is too large" in self.message
        )

    @property
    def is_passing(self) -> bool:
        """Whether the same request may succeed later, since the server is busy or has an internal error."""
        return (self.code == TOO_MANY or self.code >= SERVER_ERROR) and not self.is_too_large

    @property
    def concerns_object(self) -> bool:
        """Whether it is this object that the server refuses: it exists unchanged, and no right is missing."""
        return not (self.is_conflict or self.exists_already or self.lacks_right or self.code == NOT_FOUND)


class Response(NamedTuple):
    """A complete response of a server."""

    code: int
    body: bytes
    retry_after: str | None = None
    warnings: tuple[str, ...] = ()  # the texts of its Warning headers

    def accepted(self) -> bytes:
        """Returns the body. Raises StatusError if the server refused the request."""
        if self.code < 300:  # noqa: PLR2004  the status codes of HTTP
            return self.body
        raise status_error(self.code, self.body, self.retry_after)


def decode_response(body: bytes, kind: type[T]) -> T:
    """Decodes the body of a response. Raises UnreachableError if it is not from a Kubernetes API server."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise UnreachableError(
            f"the response is not from a Kubernetes API server: {error}", may_have_happened=True
        ) from None


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
    """Decodes a refusal. Its body is a metav1.Status, or any text if a proxy wrote it."""
    try:
        status = msgspec.json.decode(body, type=_MetaStatus)
    except msgspec.DecodeError:
        status = _MetaStatus(message=body.decode(errors="replace").strip()[:MAX_TEXT])
    details = status.details or _Details()
    seconds = int(retry_after) if retry_after and retry_after.isdecimal() else details.retry_after_seconds
    return StatusError(
        status.code or code,
        status.reason,
        status.message or f"the server answered {status.code or code} and gave no reason",
        tuple(StatusCause(cause.reason, cause.message, cause.field) for cause in details.causes or ()),
        seconds,
    )
