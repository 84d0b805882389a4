"""Updates of objects: the API server and the validator agree which are allowed."""

import re
from collections.abc import Iterator
from copy import deepcopy
from itertools import count
from typing import Any

import pytest

from jobtree.api.schema.problems import InputError
from jobtree.api.validation.object_parser import parse_object
from jobtree.api.validation.update_rules import validate_update
from tests.live.cluster.control_plane import ControlPlane
from tests.live.cluster.rest_client import Answer
from tests.live.crds.cases.updates import CHANGES, Change
from tests.live.crds.installed_crds import collection_path, object_path
from tests.live.crds.manifests import Manifest

NUMBERS = count(1)


@pytest.fixture
def stored(jobtree_cluster: ControlPlane, row: Change) -> Iterator[Manifest]:
    """The object of the row as the server stores it, with its status; deleted after the test."""
    manifest = deepcopy(row.manifest)
    manifest["metadata"]["name"] += f"-{next(NUMBERS)}"
    created = jobtree_cluster.rest.post(f"{collection_path(manifest)}?fieldValidation=Strict", manifest)
    assert created.accepted, created.message
    body = created.body
    if row.status:
        updated = jobtree_cluster.rest.merge(f"{object_path(manifest)}/status", {"status": row.status})
        assert updated.accepted, updated.message
        body = updated.body
    yield body
    deleted = jobtree_cluster.rest.delete(object_path(manifest))
    assert deleted.accepted, deleted.message


@pytest.mark.parametrize("row", CHANGES, ids=lambda row: f"{row.manifest['kind']}-{row.claim}")
def test_update_is_allowed_or_refused_by_server_and_validator(
    jobtree_cluster: ControlPlane, row: Change, stored: Manifest
) -> None:
    answer = change(jobtree_cluster, row, stored)
    problems = problems_of_change(stored, row.patch)
    if not row.says:
        assert answer.accepted, answer.message
        assert problems == []
    else:
        assert not answer.accepted, f"the server accepted {row.patch}"
        assert re.search(row.says, answer.message), answer.message
        assert problems, "the validator accepted the update"


def change(plane: ControlPlane, row: Change, stored: Manifest) -> Answer:
    subresource = "/status" if row.is_of_status else ""
    return plane.rest.merge(f"{object_path(stored)}{subresource}?fieldValidation=Strict", row.patch)


def problems_of_change(stored: Manifest, patch: dict[str, Any]) -> list[str]:
    """Returns the problems that jobtree.api finds in the changed object, or in the change."""
    old = parse_object(stored, "the server")
    try:
        new = parse_object(apply_merge_patch(stored, patch), "the change")
    except InputError as refusal:
        return [str(problem) for problem in refusal.problems]
    return [str(problem) for problem in validate_update(old, new)]


def apply_merge_patch(target: Manifest, patch: dict[str, Any]) -> Manifest:
    """Applies a JSON merge patch (RFC 7386)."""
    result = dict(target)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            current = result.get(name)
            result[name] = apply_merge_patch(current if isinstance(current, dict) else {}, value)
        else:
            result[name] = value
    return result
