"""Keeps the documents of a snapshot.

Documents keep every field that Jobtree does not know. Jobtree writes the status of its own kinds, leases and
Reservations, and on nodes the taint and the cordon that ``fail`` and ``heal`` set and remove.
"""

from collections.abc import Iterator
from hashlib import sha256
from typing import Any
from uuid import UUID

from jobtree.api.documents.document_stream import Document
from jobtree.api.kinds.policy import SIM_API_VERSION
from jobtree.api.schema.object_meta import API_VERSION
from jobtree.api.schema.problems import InputError, Problem

Key = tuple[str, str, str]  # kind, namespace, name

CLUSTER_SCOPED = frozenset({"Node", "Budget", "Lease"})
API_VERSIONS = {
    "Node": "v1",
    "Pod": "v1",
    "Budget": API_VERSION,
    "Run": API_VERSION,
    "Reservation": API_VERSION,
    "Lease": API_VERSION,
}


class Objects:
    """Documents by kind, namespace and name, in the order of the file."""

    def __init__(self) -> None:
        self._documents: dict[Key, dict[str, Any]] = {}
        self._sources: dict[Key, str] = {}

    def add(self, document: Document) -> Key:
        """Adds a document. Raises InputError if its kind is unknown, or its name is absent or taken."""
        key = object_key(document)
        if key in self._documents:
            rule = f"already exists ({self._sources[key]}): names must be unique"
            raise InputError(document.where, [f"{object_title(key)} {rule}"])
        self._documents[key] = document.body
        self._sources[key] = document.where
        return key

    def put(self, key: Key, body: dict[str, Any]) -> None:
        self._documents[key] = body

    def remove(self, key: Key) -> None:
        self._documents.pop(key, None)

    def get(self, key: Key) -> dict[str, Any] | None:
        return self._documents.get(key)

    def __contains__(self, key: Key) -> bool:
        return key in self._documents

    def where(self, key: Key) -> str:
        return self._sources.get(key, object_title(key))

    def of(self, kind: str) -> Iterator[tuple[Key, dict[str, Any]]]:
        return ((key, body) for key, body in self._documents.items() if key[0] == kind)

    def all(self) -> list[dict[str, Any]]:
        return list(self._documents.values())


def object_key(document: Document) -> Key:
    body, where = document.body, document.where
    kind, version = body.get("kind"), body.get("apiVersion")
    if not isinstance(kind, str) or kind not in API_VERSIONS:
        problem: Problem | str = Problem(
            "kind", kind, f"must be one of {', '.join(API_VERSIONS)}, Clock, Policy"
        )
        if kind is None:
            problem = "kind: is required"
        elif kind in ("Clock", "Policy"):
            problem = Problem("apiVersion", version, f"must be {SIM_API_VERSION} for a {kind}")
        raise InputError(where, [problem])
    if version != API_VERSIONS[kind]:
        raise InputError(
            where, [Problem("apiVersion", version, f"must be {API_VERSIONS[kind]} for a {kind}")]
        )
    metadata = body.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(name, str) or not name:
        raise InputError(where, [f"metadata.name: a {kind} must have a name"])
    if kind in CLUSTER_SCOPED:
        return (kind, "", name)
    metadata["namespace"] = metadata.get("namespace") or "default"
    return (kind, str(metadata["namespace"]), name)


def object_title(key: Key) -> str:
    return " ".join((key[0], "/".join(part for part in key[1:] if part)))


def derived_uid(key: Key, created: str) -> str:
    """Returns a UID for an object without one; the same each time that the file is read."""
    return str(UUID(bytes=sha256("\0".join((*key, created)).encode()).digest()[:16]))
