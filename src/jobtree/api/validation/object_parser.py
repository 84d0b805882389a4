"""Converts raw documents to the four kinds and back.

A refusal lists all problems: those of the schema, or, if there are none, those of
``jobtree.api.validation.object_rules``.
"""

from typing import Any, TypeAlias

import msgspec

from jobtree.api.documents.struct_decoder import decode_struct
from jobtree.api.kinds.budget import Budget
from jobtree.api.kinds.lease import Lease
from jobtree.api.kinds.reservation import Reservation
from jobtree.api.kinds.run import Run
from jobtree.api.schema.object_meta import API_VERSION
from jobtree.api.schema.packed_template import unpack
from jobtree.api.schema.problems import ABSENT, InputError, Problem
from jobtree.api.validation.object_rules import problems

Object: TypeAlias = Budget | Run | Reservation | Lease

KINDS: dict[str, type[Object]] = {kind.KIND: kind for kind in (Budget, Run, Reservation, Lease)}


def parse_object(document: dict[str, Any], where: str) -> Object:
    """Returns the object of one of the four kinds. Raises InputError with all problems."""
    kind = _kind(document, where)
    body = {key: value for key, value in document.items() if key not in ("apiVersion", "kind")}
    where = f"{where}, {_title(document)}"
    parsed = decode_struct(body, kind, where)
    if broken_rules := problems(parsed):
        raise InputError(where, broken_rules)
    return parsed


def to_document(parsed: Object) -> dict[str, Any]:
    """Returns the document of an object, without defaults and without an empty status."""
    body: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(parsed, enc_hook=unpack))
    if not body.get("status"):
        body.pop("status", None)
    return {"apiVersion": API_VERSION, "kind": parsed.KIND, **body}


def _kind(document: dict[str, Any], where: str) -> type[Object]:
    version, name = document.get("apiVersion", ABSENT), document.get("kind", ABSENT)
    if version != API_VERSION:
        raise InputError(where, [Problem("apiVersion", version, f"must be {API_VERSION}")])
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise InputError(where, [Problem("kind", name, f"must be one of {', '.join(KINDS)}")])
    return kind


def _title(document: dict[str, Any]) -> str:
    """Returns ``Run rai-sys/trainer-128``, without the parts that the document lacks."""
    raw = document.get("metadata")
    metadata = raw if isinstance(raw, dict) else {}
    parts = [str(metadata[key]) for key in ("namespace", "name") if metadata.get(key)]
    return f"{document['kind']} {'/'.join(parts)}".rstrip()
