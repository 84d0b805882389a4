"""Creates and replaces objects in a cluster held in memory."""

from typing import Any

from jobtree.api.documents.document_stream import Document
from jobtree.api.schema.problems import InputError
from jobtree.api.validation.object_parser import parse_object
from jobtree.api.validation.update_rules import validate_update
from jobtree.client.errors import ConflictError
from jobtree.snapshot.cluster import Cluster, without_status
from jobtree.snapshot.object_documents import Key, object_key, object_title

JOBTREES_OWN = ("Lease", "Reservation")


def create_in_cluster(cluster: Cluster, documents: list[Document], *, replace: bool) -> list[Key]:
    """Creates new objects; with ``replace``, also replaces existing ones."""
    keys = [object_key(document) for document in documents]
    existing = {key for key in keys if key in cluster.objects}
    if existing and not replace:
        name = object_title(min(existing))
        raise ConflictError(f"{name} already exists: choose another name, or add --replace")
    for key, document in zip(keys, documents, strict=True):
        if key in existing:
            _replace(cluster, key, document)
    cluster.submit(document for key, document in zip(keys, documents, strict=True) if key not in existing)
    return keys


def _replace(cluster: Cluster, key: Key, document: Document) -> None:
    """Replaces the spec of an existing object; UID, creation time and status stay."""
    if key[0] in JOBTREES_OWN:
        raise InputError(document.where, [f"a {key[0]} cannot be replaced: only Jobtree writes it"])
    cluster.documents()  # updates the status of all objects
    old: dict[str, Any] = cluster.objects.get(key) or {}
    new = without_status(document.body)
    new["metadata"] = {**old["metadata"], **new["metadata"]}
    if "status" in old:
        new.setdefault("status", old["status"])
    if key[0] in ("Run", "Budget"):
        changes = validate_update(
            parse_object(old, cluster.objects.where(key)), parse_object(new, document.where)
        )
        if changes:
            raise InputError(f"{document.where}, {object_title(key)}", changes)
    cluster.edit(key, Document(document.where, new))
