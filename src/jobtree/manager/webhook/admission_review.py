"""The AdmissionReview of the API server: the request, and the response."""

from base64 import b64encode
from typing import Any

import msgspec

from jobtree.kube.http.api_errors import FORBIDDEN, INVALID

MAX_WARNING_LENGTH = 250  # characters; servers cut longer warnings


class UserInfo(msgspec.Struct, frozen=True):
    username: str = ""
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: dict[str, list[str]] = {}


class _Resource(msgspec.Struct, frozen=True):
    resource: str


class AdmissionRequest(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A change of one object, and the user who asks for it."""

    uid: str
    operation: str
    resource: _Resource
    sub_resource: str = ""
    namespace: str = ""
    name: str = ""
    user_info: UserInfo = UserInfo()
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None
    options: dict[str, Any] | None = None

    @property
    def plural(self) -> str:
        return self.resource.resource

    @property
    def after(self) -> dict[str, Any]:
        """The object after the change; empty for a deletion."""
        return self.object or {}

    @property
    def before(self) -> dict[str, Any]:
        """The object before the change; empty for a creation."""
        return self.old_object or {}

    @property
    def is_being_deleted(self) -> bool:
        """Whether the object has a deletion timestamp."""
        return "deletionTimestamp" in (self.after.get("metadata") or {})


class AdmissionResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Allows the change if ``refusal`` is empty; ``patch`` is a JSON patch that the API server applies."""

    refusal: str = ""
    code: int = INVALID
    warnings: tuple[str, ...] = ()
    patch: tuple[dict[str, Any], ...] = ()


ALLOWED = AdmissionResponse()


def forbid(message: str) -> AdmissionResponse:
    return AdmissionResponse(refusal=message, code=FORBIDDEN)


class _AdmissionReview(msgspec.Struct):
    request: AdmissionRequest


_decode = msgspec.json.Decoder(_AdmissionReview).decode


def decode_review(body: bytes) -> AdmissionRequest:
    """Returns the request of an AdmissionReview. Raises msgspec.DecodeError."""
    return _decode(body).request


def encode_review(request: AdmissionRequest, response: AdmissionResponse) -> bytes:
    body: dict[str, Any] = {"uid": request.uid, "allowed": not response.refusal}
    if response.refusal:
        reason = "Forbidden" if response.code == FORBIDDEN else "Invalid"
        body["status"] = {"message": response.refusal, "code": response.code, "reason": reason}
    if response.warnings:
        body["warnings"] = [_short(warning) for warning in response.warnings]
    if response.patch:
        body["patchType"] = "JSONPatch"
        body["patch"] = b64encode(msgspec.json.encode(response.patch)).decode()
    return msgspec.json.encode(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": body}
    )


def _short(text: str) -> str:
    return text if len(text) <= MAX_WARNING_LENGTH else text[: MAX_WARNING_LENGTH - 1] + "…"
