"""What the API server asks (an AdmissionReview) and what it is answered."""

from base64 import b64encode
from typing import Any

import msgspec

from jobtree.kube.http.api_errors import FORBIDDEN, INVALID

MOST_WARNING = 250  # characters: servers cut what is longer


class UserInfo(msgspec.Struct, frozen=True):
    username: str = ""
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: dict[str, list[str]] = {}


class _Resource(msgspec.Struct, frozen=True):
    resource: str


class AdmissionRequest(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Of one object: what is to become of it, and who asks."""

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
        """The object as it would be; empty where it is to go."""
        return self.object or {}

    @property
    def before(self) -> dict[str, Any]:
        """The object as it is; empty where it is new."""
        return self.old_object or {}

    @property
    def going(self) -> bool:
        """Whether it is on its way out."""
        return "deletionTimestamp" in (self.after.get("metadata") or {})


class AdmissionResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Yes, unless ``refusal`` says why not; ``patch`` is what changes on the way in (JSON patch)."""

    refusal: str = ""
    code: int = INVALID
    warnings: tuple[str, ...] = ()
    patch: tuple[dict[str, Any], ...] = ()


ALLOWED = AdmissionResponse()


def forbid(message: str) -> AdmissionResponse:
    return AdmissionResponse(refusal=message, code=FORBIDDEN)


class _Question(msgspec.Struct):
    request: AdmissionRequest


_decode = msgspec.json.Decoder(_Question).decode


def read_question(body: bytes) -> AdmissionRequest:
    """Raises msgspec.DecodeError."""
    return _decode(body).request


def write_answer(asked: AdmissionRequest, answered: AdmissionResponse) -> bytes:
    response: dict[str, Any] = {"uid": asked.uid, "allowed": not answered.refusal}
    if answered.refusal:
        reason = "Forbidden" if answered.code == FORBIDDEN else "Invalid"
        response["status"] = {"message": answered.refusal, "code": answered.code, "reason": reason}
    if answered.warnings:
        response["warnings"] = [_short(warning) for warning in answered.warnings]
    if answered.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = b64encode(msgspec.json.encode(answered.patch)).decode()
    return msgspec.json.encode(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
    )


def _short(text: str) -> str:
    return text if len(text) <= MOST_WARNING else text[: MOST_WARNING - 1] + "…"
