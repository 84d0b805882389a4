"""The four kinds as the API server knows them: what config/crd says, a real server enforces.

The same table of manifests also goes through the validator of ``jobtree.api``: whatever the one takes, the
other takes, and whatever the one refuses, the other refuses.
"""

import json
import re
from typing import Any

import pytest

from jobtree.api.schema.problems import InputError, Problem
from jobtree.api.validation.object_parser import parse_object, to_document
from tests.live import manifests
from tests.live.cases import budget, lease, reservation, run, tree
from tests.live.cases.table import Accepted, Refused, RefusedByValidator
from tests.live.control_plane import ControlPlane
from tests.live.definitions import PLURALS, apply_definitions, collection, definition
from tests.live.manifests import Manifest
from tests.live.rest import Answer

TABLES = (budget, run, tree, reservation, lease)


def rows(name: str) -> list[Any]:
    """One list out of each table, each row named by its claim."""
    found = [row for table in TABLES for row in getattr(table, name)]
    return [pytest.param(row, id=f"{row.manifest['kind']}-{row.claim}") for row in found]


def try_to_create(plane: ControlPlane, manifest: Manifest) -> Answer:
    """What the server would say, as kubectl asks it: nothing is stored, and unknown fields are refused."""
    return plane.rest.post(f"{collection(manifest)}?dryRun=All&fieldValidation=Strict", manifest)


def problems_of(manifest: Manifest) -> list[Problem | str]:
    """What the validator of jobtree.api has against a manifest."""
    try:
        parse_object(manifest, "the table")
    except InputError as refusal:
        return list(refusal.problems)
    return []


@pytest.mark.parametrize("plural", list(PLURALS.values()))
def test_the_server_takes_the_definitions(jobtree_cluster: ControlPlane, plural: str) -> None:
    conditions = {
        condition["type"]: condition["status"]
        for condition in definition(jobtree_cluster, plural)["status"]["conditions"]
    }
    assert conditions["NamesAccepted"] == "True"
    assert conditions["Established"] == "True"
    assert conditions.get("NonStructuralSchema", "False") == "False"
    assert conditions.get("KubernetesAPIApprovalPolicyConformant", "True") == "True"


def test_applying_the_definitions_again_changes_nothing_and_warns_of_nothing(
    jobtree_cluster: ControlPlane,
) -> None:
    again = apply_definitions(jobtree_cluster)
    assert again.stderr == ""
    assert [line.rsplit(" ", 1)[1] for line in again.stdout.splitlines()] == ["unchanged"] * len(PLURALS)


@pytest.mark.parametrize("row", rows("ACCEPTED"))
def test_good_manifests_are_taken_with_the_same_defaults(
    jobtree_cluster: ControlPlane, row: Accepted
) -> None:
    answer = try_to_create(jobtree_cluster, row.manifest)
    assert answer.accepted, answer.message
    assert answer.warnings == ()
    assert problems_of(row.manifest) == []
    stored = parse_object(answer.body, "the server")
    assert stored.spec == parse_object(row.manifest, "the table").spec


@pytest.mark.parametrize("row", rows("ACCEPTED"))
def test_what_jobtree_writes_is_taken(jobtree_cluster: ControlPlane, row: Accepted) -> None:
    written = to_document(parse_object(row.manifest, "the table"))
    answer = try_to_create(jobtree_cluster, written)
    assert answer.accepted, answer.message


def test_the_server_fills_in_defaults(jobtree_cluster: ControlPlane) -> None:
    """Whoever reads the object with kubectl sees what will be done."""
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
def test_bad_manifests_are_refused_with_the_field_and_the_rule(
    jobtree_cluster: ControlPlane, row: Refused
) -> None:
    answer = try_to_create(jobtree_cluster, row.manifest)
    assert not answer.accepted, f"the server took {json.dumps(row.manifest)}"
    assert row.field in answer.message
    assert re.search(row.says, answer.message), answer.message
    assert names(row.field, problems_of(row.manifest))


@pytest.mark.parametrize("row", rows("REFUSED_BY_VALIDATOR"))
def test_what_cel_cannot_say_the_validator_refuses(
    jobtree_cluster: ControlPlane, row: RefusedByValidator
) -> None:
    problems = problems_of(row.manifest)
    assert names(row.field, problems)
    assert re.search(row.says, "\n".join(map(str, problems)))
    # Once the server refuses it too, the row belongs in REFUSED.
    assert try_to_create(jobtree_cluster, row.manifest).accepted


def names(field: str, problems: list[Problem | str]) -> bool:
    return any(isinstance(problem, Problem) and problem.field.startswith(field) for problem in problems)
