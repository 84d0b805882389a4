"""From a raw document to one of the four kinds and back.

What is refused is refused with everything that is wrong with it: first its shape, then, if that
holds, the rules of ``jobtree.api.validation.object_rules``.
"""

from typing import Any, TypeAlias

import msgspec

from jobtree.api.documents.struct_decoder import decode_struct
from jobtree.api.kinds.budget import Budget
from jobtree.api.kinds.lease import Lease
from jobtree.api.kinds.reservation import Reservation
from jobtree.api.kinds.run import Run
from jobtree.api.schema.object_meta import API_VERSION
from jobtree.api.schema.problems import ABSENT, InputError, Problem
from jobtree.api.validation.object_rules import problems

Object: TypeAlias = Budget | Run | Reservation | Lease

KINDS: dict[str, type[Object]] = {kind.KIND: kind for kind in (Budget, Run, Reservation, Lease)}


def parse_object(document: dict[str, Any], where: str) -> Object:
    """One of the four kinds. Raises InputError with all that is wrong."""
    kind = _kind(document, where)
    body = {key: value for key, value in document.items() if key not in ("apiVersion", "kind")}
    where = f"{where}, {_title(document)}"
    parsed = decode_struct(body, kind, where)
    found = problems(parsed)
    if found:
        raise InputError(where, found)
    return parsed


def to_document(parsed: Object) -> dict[str, Any]:
    """The object as it stands on the wire. Defaults are left out, and so is an empty status."""
    body: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(parsed))
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
    """``Run rai-sys/trainer-128``, as far as the document says."""
    metadata = document.get("metadata")
    known = metadata if isinstance(metadata, dict) else {}
    parts = [str(known[key]) for key in ("namespace", "name") if known.get(key)]
    return f"{document['kind']} {'/'.join(parts)}".rstrip()
