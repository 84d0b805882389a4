"""What may change about an object and what never does: the server and the validator say the same."""

import re
from collections.abc import Iterator
from copy import deepcopy
from itertools import count
from typing import Any

import pytest

from jobtree.api.schema.problems import InputError
from jobtree.api.validation.object_parser import parse_object
from jobtree.api.validation.update_rules import validate_update
from tests.live.cases.changes import CHANGES, Change
from tests.live.control_plane import ControlPlane
from tests.live.definitions import address, collection
from tests.live.manifests import Manifest
from tests.live.rest import Answer

NUMBERS = count(1)


@pytest.fixture
def stored(jobtree_cluster: ControlPlane, row: Change) -> Iterator[Manifest]:
    """The row's object as it is on the server, with its status; removed after the test."""
    manifest = deepcopy(row.manifest)
    manifest["metadata"]["name"] += f"-{next(NUMBERS)}"
    created = jobtree_cluster.rest.post(f"{collection(manifest)}?fieldValidation=Strict", manifest)
    assert created.accepted, created.message
    body = created.body
    if row.status:
        updated = jobtree_cluster.rest.merge(f"{address(manifest)}/status", {"status": row.status})
        assert updated.accepted, updated.message
        body = updated.body
    yield body
    deleted = jobtree_cluster.rest.delete(address(manifest))
    assert deleted.accepted, deleted.message


@pytest.mark.parametrize("row", CHANGES, ids=lambda row: f"{row.manifest['kind']}-{row.claim}")
def test_changes(jobtree_cluster: ControlPlane, row: Change, stored: Manifest) -> None:
    answer = change(jobtree_cluster, row, stored)
    problems = problems_of_change(stored, row.patch)
    if not row.says:
        assert answer.accepted, answer.message
        assert problems == []
    else:
        assert not answer.accepted, f"the server took {row.patch}"
        assert re.search(row.says, answer.message), answer.message
        assert problems, "the validator had nothing against it"


def change(plane: ControlPlane, row: Change, stored: Manifest) -> Answer:
    subresource = "/status" if row.is_of_status else ""
    return plane.rest.merge(f"{address(stored)}{subresource}?fieldValidation=Strict", row.patch)


def problems_of_change(stored: Manifest, patch: dict[str, Any]) -> list[str]:
    """What jobtree.api has against the object as it would be, and against its becoming so."""
    old = parse_object(stored, "the server")
    try:
        new = parse_object(merged(stored, patch), "the change")
    except InputError as refusal:
        return [str(problem) for problem in refusal.problems]
    return [str(problem) for problem in validate_update(old, new)]


def merged(target: Manifest, patch: dict[str, Any]) -> Manifest:
    """RFC 7386."""
    result = dict(target)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            below = result.get(name)
            result[name] = merged(below if isinstance(below, dict) else {}, value)
        else:
            result[name] = value
    return result
