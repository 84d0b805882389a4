"""The CRDs on a real API server: which manifests it accepts, and which it refuses.

The validator of ``jobtree.api`` checks the same manifests and must agree with the API server.
"""

import json
import re
from typing import Any

import pytest

from jobtree.api.schema.problems import InputError, Problem
from jobtree.api.validation.object_parser import parse_object, to_document
from tests.live.cluster.control_plane import ControlPlane
from tests.live.cluster.rest_client import Answer
from tests.live.crds import manifests
from tests.live.crds.cases import budget, lease, reservation, run, tree
from tests.live.crds.cases.case_types import Accepted, Refused, RefusedByValidator
from tests.live.crds.installed_crds import PLURALS, apply_crds, collection_path, crd_object
from tests.live.crds.manifests import Manifest

TABLES = (budget, run, tree, reservation, lease)


def rows(name: str) -> list[Any]:
    """Returns one list of each table, with the claims of the rows as test names."""
    selected = [row for table in TABLES for row in getattr(table, name)]
    return [pytest.param(row, id=f"{row.manifest['kind']}-{row.claim}") for row in selected]


def try_to_create(plane: ControlPlane, manifest: Manifest) -> Answer:
    """Sends a manifest as a dry run that refuses unknown fields, as kubectl does."""
    return plane.rest.post(f"{collection_path(manifest)}?dryRun=All&fieldValidation=Strict", manifest)


def problems_of(manifest: Manifest) -> list[Problem | str]:
    """Returns the problems that the validator of jobtree.api finds."""
    try:
        parse_object(manifest, "the table")
    except InputError as refusal:
        return list(refusal.problems)
    return []


@pytest.mark.parametrize("plural", list(PLURALS.values()))
def test_crd_is_established(jobtree_cluster: ControlPlane, plural: str) -> None:
    conditions = {
        condition["type"]: condition["status"]
        for condition in crd_object(jobtree_cluster, plural)["status"]["conditions"]
    }
    assert conditions["NamesAccepted"] == "True"
    assert conditions["Established"] == "True"
    assert conditions.get("NonStructuralSchema", "False") == "False"
    assert conditions.get("KubernetesAPIApprovalPolicyConformant", "True") == "True"


def test_repeated_apply_of_the_crds_changes_nothing(
    jobtree_cluster: ControlPlane,
) -> None:
    applied = apply_crds(jobtree_cluster)
    assert applied.stderr == ""
    assert [line.rsplit(" ", 1)[1] for line in applied.stdout.splitlines()] == ["unchanged"] * len(PLURALS)


@pytest.mark.parametrize("row", rows("ACCEPTED"))
def test_valid_manifest_is_accepted_with_equal_defaults(jobtree_cluster: ControlPlane, row: Accepted) -> None:
    answer = try_to_create(jobtree_cluster, row.manifest)
    assert answer.accepted, answer.message
    assert answer.warnings == ()
    assert problems_of(row.manifest) == []
    stored = parse_object(answer.body, "the server")
    assert stored.spec == parse_object(row.manifest, "the table").spec


@pytest.mark.parametrize("row", rows("ACCEPTED"))
def test_encoded_object_is_accepted(jobtree_cluster: ControlPlane, row: Accepted) -> None:
    written = to_document(parse_object(row.manifest, "the table"))
    answer = try_to_create(jobtree_cluster, written)
    assert answer.accepted, answer.message


def test_server_stores_defaults(jobtree_cluster: ControlPlane) -> None:
    """A user who reads the object with kubectl sees the values that apply."""
    stored = try_to_create(jobtree_cluster, manifests.run()).body["spec"]
    assert stored["locality"] == {"allowCrossGroupSpread": True}
    assert stored["funding"] == {"allowBorrow": False, "allowOpportunistic": False}
    assert stored["runtime"] == {
        "maxRestarts": 3,
        "onNotice": "Ignore",
        "onResize": "Restart",
        "requeue": True,
    }
    follower = manifests.run(follow={"after": ["prepare"]})
    follow = try_to_create(jobtree_cluster, follower).body["spec"]["follow"]
    assert follow == {"after": ["prepare"], "onUpstreamFailure": "wait", "upstreamFailureGrace": "30m"}
    lender = manifests.budget(manifests.envelope(lending={}))
    (envelope,) = try_to_create(jobtree_cluster, lender).body["spec"]["envelopes"]
    assert envelope["sharing"] == "family"
    assert envelope["lending"] == {"allow": False}


@pytest.mark.parametrize("row", rows("REFUSED"))
def test_invalid_manifest_is_refused_with_field_and_rule(jobtree_cluster: ControlPlane, row: Refused) -> None:
    answer = try_to_create(jobtree_cluster, row.manifest)
    assert not answer.accepted, f"the server accepted {json.dumps(row.manifest)}"
    assert row.field in answer.message
    assert re.search(row.says, answer.message), answer.message
    assert names_field(row.field, problems_of(row.manifest))


@pytest.mark.parametrize("row", rows("REFUSED_BY_VALIDATOR"))
def test_validator_refuses_what_cel_cannot_check(
    jobtree_cluster: ControlPlane, row: RefusedByValidator
) -> None:
    problems = problems_of(row.manifest)
    assert names_field(row.field, problems)
    assert re.search(row.says, "\n".join(map(str, problems)))
    # If the server refuses it too, the row belongs in REFUSED.
    assert try_to_create(jobtree_cluster, row.manifest).accepted


def names_field(field: str, problems: list[Problem | str]) -> bool:
    return any(isinstance(problem, Problem) and problem.field.startswith(field) for problem in problems)
