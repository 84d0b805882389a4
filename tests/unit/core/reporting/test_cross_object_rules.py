"""Objects that are refused because of other objects, and objects that get a warning."""

import msgspec
import pytest

from jobtree.api.kinds.budget import Budget, BudgetStatus, Usage
from jobtree.api.kinds.run import Run, RunStatus
from jobtree.api.schema.object_meta import API_VERSION, OwnerReference
from jobtree.api.schema.problems import Problem
from jobtree.core.reporting import cross_object_rules
from tests.unit.core.build import H100, NAMESPACE, budget, envelope, parsed_run, run, tree

LENDS = {"allow": True, "to": ["org:ai:*"]}


def refused(one: Run, *others: Run) -> list[str]:
    runs = {other.metadata.name: other for other in others}
    return [str(problem) for problem in cross_object_rules.run_reference_problems(one, runs.get)]


def told(one: Run, *budgets: Budget, runs: tuple[Run, ...] = ()) -> list[Problem]:
    named = {other.metadata.name: other for other in runs}
    return cross_object_rules.run_warnings(one, [b.spec for b in budgets], named.get)


def stage_of(parent: Run, name: str, **fields: object) -> Run:
    child = parsed_run(f"{parent.metadata.name}-{name}", {"owner": "o", **fields}, 0)
    reference = OwnerReference(
        api_version=API_VERSION, kind="Run", name=parent.metadata.name, uid="u", controller=True
    )
    metadata = msgspec.structs.replace(child.metadata, owner_references=(reference,))
    return msgspec.structs.replace(child, metadata=metadata)


# Runs that wait for each other (J1)


def test_a_cycle_of_runs_is_refused_with_its_path() -> None:
    found = refused(
        run("a", "o", 8, after=["x", "b"]), run("b", "o", 8, after=["c"]), run("c", "o", 8, after=["a"])
    )
    (problem,) = found
    assert problem.startswith(
        'spec.follow.after[1]: "b" is not allowed: a after b after c after a is a cycle'
    )


def test_a_chain_of_runs_or_a_cycle_of_others_is_not_refused() -> None:
    assert refused(run("a", "o", 8, after=["b", "c"]), run("b", "o", 8, after=["c"]), run("c", "o", 8)) == []
    assert (
        refused(run("a", "o", 8, after=["b"]), run("b", "o", 8, after=["c"]), run("c", "o", 8, after=["b"]))
        == []
    )


def test_a_stage_waits_for_what_its_tree_waits_for() -> None:
    resources = {"resources": {"gpuType": H100, "totalGPUs": 8}}
    follows = parsed_run(
        "t", {"owner": "o", "stages": [{"name": "s", **resources}], "follow": {"after": ["r"]}}, 0
    )
    after_stage = run("r", "o", 8, after=["t-s"])
    assert (
        "r after t-s after r is a cycle"
        in refused(after_stage, follows, stage_of(follows, "s", **resources))[0]
    )
    assert "t after r after t-s is a cycle" in refused(follows, after_stage)[0], "before the stage is made"
    assert refused(after_stage, tree("t", "o", [{"name": "s", **resources}])) == []


# Who pays


@pytest.mark.parametrize(
    ("owners", "says"),
    [
        (["org:ai:rai"], []),
        (["org"], ["has no Budget, so the Budget of org pays"]),
        (["org", "org:ai"], ["has no Budget, so the Budget of org:ai pays"]),
        (
            ["org:ai:ra", "other"],
            [
                (
                    "has no Budget, nor has any owner above it: create a Budget, or no envelope can pay; "
                    "did you mean org:ai:ra?"
                )
            ],
        ),
    ],
)
def test_owner_without_a_budget_gets_a_warning(owners: list[str], says: list[str]) -> None:
    found = told(run("r", "org:ai:rai", 8), *(budget(owner, 8) for owner in owners))
    assert found == [("spec.owner", "org:ai:rai", rule) for rule in says]


@pytest.mark.parametrize(
    ("sponsor", "can_pay"),
    [
        (budget("s", envelope(8, lending=LENDS)), True),
        (budget("s", envelope(8), envelope(8, "other", lending={"allow": True, "to": ["*"]})), True),
        (budget("s", envelope(8, lending={"allow": False, "to": ["*"]})), False),
        (budget("s", envelope(8, lending={"allow": True, "to": ["org:ai"]})), False),
        (budget("s", envelope(8, flavor="A100", lending=LENDS)), False),
        (budget("s", 8), False),
        (budget("t", envelope(8, lending=LENDS)), False),
    ],
    ids=["lends", "one-of-two", "not-allowed", "to-another", "other-flavor", "no-lending", "no-budget"],
)
def test_sponsor_that_cannot_pay_gets_a_warning(sponsor: Budget, can_pay: bool) -> None:
    found = told(run("r", "org:ai:rai", 8, sponsors=["s"]), budget("org:ai:rai", 8), sponsor)
    rule = f"cannot pay: it has no envelope of {H100} that lends to org:ai:rai"
    assert found == ([] if can_pay else [("spec.funding.sponsors[0]", "s", rule)])


def test_sponsor_gets_a_warning_when_borrowing_is_not_allowed() -> None:
    resources = {"gpuType": H100, "totalGPUs": 8}
    one = parsed_run("r", {"owner": "o", "resources": resources, "funding": {"sponsors": ["s"]}}, 0)
    (found,) = told(one, budget("o", 8), budget("s", envelope(8, lending={"allow": True, "to": ["*"]})))
    assert found == (
        "spec.funding.sponsors[0]",
        "s",
        "cannot pay: set funding.allowBorrow: true, or remove this sponsor",
    )


def test_upstream_that_is_missing_or_failed_gets_a_warning() -> None:
    failed = msgspec.structs.replace(run("failed", "o", 8), status=RunStatus(phase="Failed"))
    found = told(
        run("r", "o", 8, after=["none", "failed", "there"]),
        budget("o", 8),
        runs=(failed, run("there", "o", 8)),
    )
    assert [(field, value) for field, value, _ in found] == [
        ("spec.follow.after[0]", "none"),
        ("spec.follow.after[1]", "failed"),
    ]
    assert found[0][2] == f"does not exist in {NAMESPACE}: this Run waits until it does"


# Budgets


def test_a_cycle_of_parents_is_refused_where_the_budget_closes_it() -> None:
    others = [budget("b", parents=["c"]).spec, budget("c", parents=["a"]).spec]
    (problem,) = cross_object_rules.family_cycle_problems(budget("a", parents=["b"]), others)
    assert str(problem).startswith('spec.parents[0]: "b" is not allowed: a → b → c → a is a cycle')
    assert cross_object_rules.family_cycle_problems(budget("a", parents=[]), others) == []
    elsewhere = [budget("x", parents=["y"]).spec, budget("y", parents=["x"]).spec]
    assert cross_object_rules.family_cycle_problems(budget("a", parents=["x"]), elsewhere) == [], (
        "not of its making"
    )


def test_a_cycle_by_path_names_the_owner() -> None:
    (problem,) = cross_object_rules.family_cycle_problems(
        budget("org:ai"), [budget("org", parents=["org:ai"]).spec]
    )
    assert (problem.field, problem.value) == ("spec.owner", "org:ai")


def test_two_budgets_of_one_owner_count_together() -> None:
    others = [budget("a", name="a-too", parents=["b"]).spec, budget("b", parents=["c"]).spec]
    (problem,) = cross_object_rules.family_cycle_problems(budget("c", parents=["a"]), others)
    assert "c → a → b → c" in problem.rule


def used(one: Budget, name: str = "main", gpus: str = "0", hours: str = "0") -> Budget:
    usage = Usage(name=name, used_gpus=gpus, used_gpu_hours=hours)
    return msgspec.structs.replace(one, status=BudgetStatus(envelopes=(usage,)))


@pytest.mark.parametrize(
    ("after", "before", "fields"),
    [
        (budget("o", 16), used(budget("o", 32), gpus="16"), []),
        (budget("o", 15), used(budget("o", 32), gpus="15.25"), ["spec.envelopes[0].concurrency"]),
        (budget("o"), used(budget("o", 32), gpus="8"), ["spec.envelopes"]),
        (budget("o"), used(budget("o", 32)), []),
        (
            budget("o", envelope(8, maxGPUHours=10)),
            used(budget("o", 8), hours="10.5"),
            ["spec.envelopes[0].maxGPUHours"],
        ),
        (budget("o", envelope(8, maxGPUHours=10)), used(budget("o", 8), hours="10"), []),
        (budget("o", 8), None, []),
    ],
)
def test_limit_below_what_is_in_use_gets_a_warning(
    after: Budget, before: Budget | None, fields: list[str]
) -> None:
    assert [one.field for one in cross_object_rules.budget_warnings(after, before, [])] == fields


def test_parent_without_a_budget_gets_a_warning() -> None:
    found = cross_object_rules.budget_warnings(budget("o", parents=["p", "q"]), None, [budget("p").spec])
    assert [(one.field, one.value) for one in found] == [("spec.parents[1]", "q")]
