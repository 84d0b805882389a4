"""Questions as an API server asks them, through the same words on the wire."""

import asyncio
import json
from base64 import b64decode
from typing import Any

import msgspec

from jobtree.api.schema.object_meta import API_VERSION
from jobtree.manager.webhook.admission_review import AdmissionRequest, read_question, write_answer
from jobtree.manager.webhook.webhook_server import Handler

JOBTREE = "system:serviceaccount:jobtree-system:jobtree-controller-manager"
Document = dict[str, Any]


def question(
    operation: str,
    plural: str,
    after: Document | None = None,
    before: Document | None = None,
    *,
    user: str = "mallory",
    groups: tuple[str, ...] = (),
    **fields: object,
) -> AdmissionRequest:
    either = after or before or {}
    request = {
        "uid": "1",
        "operation": operation,
        "resource": {"group": "any", "version": "v1", "resource": plural},
        "namespace": either.get("metadata", {}).get("namespace", ""),
        "name": either.get("metadata", {}).get("name", ""),
        "userInfo": {"username": user, "groups": list(groups)},
        "object": after,
        "oldObject": before,
        **fields,
    }
    return read_question(msgspec.json.encode({"kind": "AdmissionReview", "request": request}))


class Said(msgspec.Struct):
    allowed: bool
    message: str
    code: int
    warnings: list[str]
    patch: list[Document]


def ask(judge: Handler, asked: AdmissionRequest) -> Said:
    """The answer as the API server reads it."""
    response = json.loads(write_answer(asked, asyncio.run(judge(asked))))["response"]
    assert response["uid"] == asked.uid
    status = response.get("status", {})
    patch = json.loads(b64decode(response["patch"])) if "patch" in response else []
    return Said(
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
