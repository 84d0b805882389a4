"""Runs and Budgets are checked against the objects that the manager has listed."""

import json
from typing import Any

import msgspec
import pytest

from jobtree.manager.cluster_view import ClusterView
from jobtree.manager.webhook.admission_handlers import CrossObjectChecks, mutate
from tests.unit.manager.webhook.reviews import (
    JOBTREE,
    admission_request,
    budget_document,
    review,
    run_document,
)

TOO_LONG: dict[str, Any] = {
    "template": {"spec": {"containers": [{"name": "m"}], "terminationGracePeriodSeconds": 301}}
}


@pytest.fixture
def view() -> ClusterView:
    return ClusterView("jobtree-system", lambda *_: None, lambda: None)


def test_budget_that_makes_a_cycle_is_refused(view: ClusterView) -> None:
    handler = CrossObjectChecks(view, "jobtree-system").review
    view.budgets.upsert(msgspec.json.encode(budget_document("a", "b")))
    response = review(handler, admission_request("CREATE", "budgets", budget_document("b", "a")))
    assert (response.allowed, response.code) == (False, 422)
    assert "b → a → b is a cycle" in response.message
    view.budgets.upsert(msgspec.json.encode(budget_document("b", "a")))  # both were created at once
    corrected = admission_request("UPDATE", "budgets", budget_document("a"), budget_document("a", "b"))
    assert review(handler, corrected).allowed, "only the new spec counts"


def test_run_refers_only_to_runs_of_its_namespace(view: ClusterView) -> None:
    handler = CrossObjectChecks(view, "jobtree-system").review
    view.budgets.upsert(msgspec.json.encode(budget_document("o")))
    elsewhere = run_document("up")
    elsewhere["metadata"]["namespace"] = "other"
    view.runs.upsert(msgspec.json.encode(elsewhere))
    response = review(handler, admission_request("CREATE", "runs", run_document(follow={"after": ["up"]})))
    assert response.allowed
    assert response.warnings == [
        "spec.follow.after[0]: up: does not exist in team: this Run waits until it does"
    ]


def test_template_is_checked_against_the_present_policy(view: ClusterView) -> None:
    handler = CrossObjectChecks(view, "jobtree-system").review
    request = admission_request("CREATE", "runs", run_document(**TOO_LONG))
    assert "must be at most the policy's maxGrace (5m)" in review(handler, request).message
    metadata = {"name": "jobtree-policy", "namespace": "jobtree-system", "uid": "p", "resourceVersion": "1"}
    view.policy.upsert(json.dumps({"metadata": metadata, "data": {"policy.yaml": "maxGrace: 10m"}}).encode())
    assert review(handler, request).allowed


def test_run_that_leaves_no_room_for_its_status_is_refused(view: ClusterView) -> None:
    """H2: with its size, what its status needs, and the limit."""
    handler = CrossObjectChecks(view, "jobtree-system").review

    def answer(size: int, gpus: int) -> Any:  # noqa: ANN401  the response
        env = [{"name": "A", "value": "x" * size}]
        template = {"spec": {"containers": [{"name": "main", "image": "i", "env": env}]}}
        resources = {"gpuType": "H100-80GB", "totalGPUs": gpus, "gpusPerPod": 8}
        run = run_document(template=template, resources=resources)
        return review(handler, admission_request("CREATE", "runs", run))

    assert answer(1_400_000, 8).allowed
    assert answer(100_000, 65_536).allowed
    refused = answer(300_000, 65_536)
    assert (refused.allowed, refused.code) == (False, 422)
    assert "1343488 bytes are kept for the status (8192 pods)" in refused.message
    assert "at most 1500000" in refused.message
    assert not answer(1_490_000, 8).allowed


def test_unchanged_specs_deletions_and_writes_of_jobtree_are_not_checked(view: ClusterView) -> None:
    handler = CrossObjectChecks(view, "jobtree-system").review
    bad, good = run_document(**TOO_LONG), run_document()
    deleted = {**bad, "metadata": {**bad["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert not review(handler, admission_request("UPDATE", "runs", bad, good)).allowed
    for request in (
        admission_request("UPDATE", "runs", bad, bad),
        admission_request("UPDATE", "runs", deleted, good),
        admission_request("CREATE", "runs", bad, user=JOBTREE),
        admission_request("DELETE", "runs", None, bad),
        admission_request("UPDATE", "runs", bad, good, subResource="status"),
    ):
        assert review(handler, request).allowed


def test_long_warning_is_cut() -> None:
    handler = CrossObjectChecks(
        ClusterView("jobtree-system", lambda *_: None, lambda: None), "jobtree-system"
    ).review
    response = review(
        handler,
        admission_request("CREATE", "runs", run_document(owner="o" * 200, follow={"after": ["u" * 240]})),
    )
    assert [len(warning) <= 250 for warning in response.warnings] == [True, True]


def test_old_spelling_of_spares_is_replaced() -> None:
    response = review(mutate, admission_request("CREATE", "runs", run_document(sparesPerGroup=2)))
    assert [operation["path"] for operation in response.patch] == ["/spec/spares", "/spec/sparesPerGroup"]
    assert review(mutate, admission_request("CREATE", "runs", {"metadata": {}, "spec": "none"})).patch == []
