"""Runs and Budgets judged by what the stores hold."""

import json
from typing import Any

import msgspec
import pytest

from jobtree.manager.cluster_view import ClusterView
from jobtree.manager.webhook.admission_handlers import CrossObjectChecks, mutate
from tests.unit.manager.webhook.asking import JOBTREE, ask, budget_document, question, run_document

TOO_LONG: dict[str, Any] = {
    "template": {"spec": {"containers": [{"name": "m"}], "terminationGracePeriodSeconds": 301}}
}


@pytest.fixture
def view() -> ClusterView:
    return ClusterView("jobtree-system", lambda *_: None, lambda: None)


def test_budgets_are_judged_among_those_that_are_there(view: ClusterView) -> None:
    judge = CrossObjectChecks(view, "jobtree-system").review
    view.budgets.upsert(msgspec.json.encode(budget_document("a", "b")))
    said = ask(judge, question("CREATE", "budgets", budget_document("b", "a")))
    assert (said.allowed, said.code) == (False, 422)
    assert "b → a → b is a cycle" in said.message
    view.budgets.upsert(msgspec.json.encode(budget_document("b", "a")))  # two came at once
    mended = question("UPDATE", "budgets", budget_document("a"), budget_document("a", "b"))
    assert ask(judge, mended).allowed, "what it was before does not count"


def test_runs_are_judged_among_those_of_their_namespace(view: ClusterView) -> None:
    judge = CrossObjectChecks(view, "jobtree-system").review
    view.budgets.upsert(msgspec.json.encode(budget_document("o")))
    elsewhere = run_document("up")
    elsewhere["metadata"]["namespace"] = "other"
    view.runs.upsert(msgspec.json.encode(elsewhere))
    said = ask(judge, question("CREATE", "runs", run_document(follow={"after": ["up"]})))
    assert said.allowed
    assert said.warnings == ["spec.follow.after[0]: up: does not exist in team: this Run waits until it does"]


def test_the_policy_as_it_stands_is_held_against_a_template(view: ClusterView) -> None:
    judge = CrossObjectChecks(view, "jobtree-system").review
    asked = question("CREATE", "runs", run_document(**TOO_LONG))
    assert "must be at most the policy's maxGrace (5m)" in ask(judge, asked).message
    metadata = {"name": "jobtree-policy", "namespace": "jobtree-system", "uid": "p", "resourceVersion": "1"}
    view.policy.upsert(json.dumps({"metadata": metadata, "data": {"policy.yaml": "maxGrace: 10m"}}).encode())
    assert ask(judge, asked).allowed


def test_what_is_not_its_business_passes_whatever_it_looks_like(view: ClusterView) -> None:
    judge = CrossObjectChecks(view, "jobtree-system").review
    bad, other = run_document(**TOO_LONG), run_document()
    going = {**bad, "metadata": {**bad["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert not ask(judge, question("UPDATE", "runs", bad, other)).allowed
    for asked in (
        question("UPDATE", "runs", bad, bad),
        question("UPDATE", "runs", going, other),
        question("CREATE", "runs", bad, user=JOBTREE),
        question("DELETE", "runs", None, bad),
        question("UPDATE", "runs", bad, other, subResource="status"),
    ):
        assert ask(judge, asked).allowed


def test_a_long_warning_is_cut_where_servers_would() -> None:
    judge = CrossObjectChecks(
        ClusterView("jobtree-system", lambda *_: None, lambda: None), "jobtree-system"
    ).review
    said = ask(
        judge, question("CREATE", "runs", run_document(owner="o" * 200, follow={"after": ["u" * 240]}))
    )
    assert [len(warning) <= 250 for warning in said.warnings] == [True, True]


def test_spares_are_written_in_one_spelling() -> None:
    said = ask(mutate, question("CREATE", "runs", run_document(sparesPerGroup=2)))
    assert [one["path"] for one in said.patch] == ["/spec/spares", "/spec/sparesPerGroup"]
    assert ask(mutate, question("CREATE", "runs", {"metadata": {}, "spec": "none"})).patch == []
