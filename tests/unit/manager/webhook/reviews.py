"""Sends admission requests to handlers as an API server does, encoded and decoded."""

import asyncio
import json
from base64 import b64decode
from typing import Any

import msgspec

from jobtree.api.schema.object_meta import API_VERSION
from jobtree.manager.webhook.admission_review import AdmissionRequest, decode_review, encode_review
from jobtree.manager.webhook.webhook_server import Handler

JOBTREE = "system:serviceaccount:jobtree-system:jobtree-controller-manager"
Document = dict[str, Any]


def admission_request(
    operation: str,
    plural: str,
    after: Document | None = None,
    before: Document | None = None,
    *,
    user: str = "mallory",
    groups: tuple[str, ...] = (),
    **fields: object,
) -> AdmissionRequest:
    metadata = (after or before or {}).get("metadata", {})
    request = {
        "uid": "1",
        "operation": operation,
        "resource": {"group": "any", "version": "v1", "resource": plural},
        "namespace": metadata.get("namespace", ""),
        "name": metadata.get("name", ""),
        "userInfo": {"username": user, "groups": list(groups)},
        "object": after,
        "oldObject": before,
        **fields,
    }
    return decode_review(msgspec.json.encode({"kind": "AdmissionReview", "request": request}))


class Response(msgspec.Struct):
    """A response as the API server reads it."""

    allowed: bool
    message: str
    code: int
    warnings: list[str]
    patch: list[Document]


def review(handler: Handler, request: AdmissionRequest) -> Response:
    """Passes the request to the handler, and returns its response."""
    response = json.loads(encode_review(request, asyncio.run(handler(request))))["response"]
    assert response["uid"] == request.uid
    status = response.get("status", {})
    patch = json.loads(b64decode(response["patch"])) if "patch" in response else []
    return Response(
        response["allowed"],
        status.get("message", ""),
        status.get("code", 0),
        response.get("warnings", []),
        patch,
    )


def run_document(name: str = "r", owner: str = "o", **spec: object) -> Document:
    resources = {"gpuType": "H100", "totalGPUs": 8}
    return {
        "apiVersion": API_VERSION,
        "kind": "Run",
        "metadata": {"name": name, "namespace": "team", "uid": f"{name}-uid", "resourceVersion": "1"},
        "spec": {"owner": owner, "resources": resources, **spec},
    }


def budget_document(owner: str, *parents: str) -> Document:
    metadata = {"name": owner, "uid": f"{owner}-uid", "resourceVersion": "1"}
    spec = {"owner": owner, "parents": list(parents)}
    return {"apiVersion": API_VERSION, "kind": "Budget", "metadata": metadata, "spec": spec}
