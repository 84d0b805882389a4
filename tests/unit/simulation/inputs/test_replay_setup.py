"""The inputs of a replay: user behavior, fleet, budgets, and changes of them."""

from pathlib import Path
from statistics import median

import msgspec
import pytest

from jobtree.api.kinds.budget import BudgetSpec, Envelope
from jobtree.api.schema.problems import InputError
from jobtree.api.schema.quantities import DAY, HOUR, SECOND, format_time
from jobtree.simulation.inputs.replay_cluster import (
    in_proportion,
    made_up,
    made_up_budgets,
    names_for,
    of_state_file,
    owners_in,
)
from jobtree.simulation.inputs.user_behavior import LIMITS, UserBehavior, assumed_ends, declared
from jobtree.simulation.inputs.what_if import changed
from tests.unit.simulation.small_replays import EXACT, Job, replay_setup, trace

MANY = [Job(number, 1_000 + number, 1) for number in range(2_000)]


def test_declared_durations_are_overestimates_rounded_to_usual_limits() -> None:
    jobs = trace(MANY)
    limits = declared(jobs, UserBehavior())
    assert limits is not None
    factors = [limit / true for limit, true in zip(limits, jobs.duration, strict=True)]
    assert min(factors) >= 1
    assert 2 < median(factors) < 4
    assert set(limits) <= set(LIMITS)
    assert limits == declared(jobs, UserBehavior())
    assert limits != declared(jobs, UserBehavior(seed=2))


def test_declared_duration_depends_only_on_the_job() -> None:
    whole, part = declared(trace(MANY), UserBehavior()), declared(trace(MANY[:10]), UserBehavior())
    assert whole is not None
    assert part is not None
    assert list(whole[:10]) == list(part)


def test_longest_duration_is_assumed_when_none_is_declared() -> None:
    jobs = trace([Job(0, 100, 1), Job(1, 90_000, 1)])
    assert declared(jobs, UserBehavior(declares="none")) is None
    assert list(assumed_ends(jobs, UserBehavior(declares="none"))) == [2 * DAY, 2 * DAY]
    assert list(assumed_ends(jobs, EXACT)) == list(jobs.duration)


def test_budgets_are_as_given_and_the_others_in_proportion_to_demand() -> None:
    jobs, nodes = (
        trace([Job(0, 100, 1, "a"), Job(0, 300, 1, "b"), Job(0, 100, 3, "c")]),
        made_up(10, 10, 1).nodes,
    )
    budgets, owners = made_up_budgets(jobs, nodes, {"a": "40%"})
    granted = {
        budget.spec.owner: [envelope.concurrency for envelope in budget.spec.envelopes] for budget in budgets
    }
    assert granted == {"org": [], "org:a": [40], "org:b": [30], "org:c": [30]}
    assert owners == ("org:a", "org:b", "org:c")
    for wrong, rule in (({"d": "1"}, "the trace has a, b, c"), ({"a": "x"}, "must be GPUs such as 128")):
        with pytest.raises(InputError, match=rule):
            made_up_budgets(jobs, nodes, wrong)


def test_made_up_budgets_are_whole_nodes_and_add_up_to_the_fleet() -> None:
    """A pod has one payer: a node that two small budgets share could pay no pod that fills it."""
    jobs = trace([Job(0, 100, 1, team) for team in "abc"] + [Job(0, 1, 1, "d")])
    budgets, owners = made_up_budgets(jobs, made_up(8, 8, 1).nodes, {})
    granted = {
        budget.metadata.name: [envelope.concurrency for envelope in budget.spec.envelopes]
        for budget in budgets
    }
    assert granted == {"org": [], "a": [24], "b": [24], "c": [16], "d": []}
    assert owners == ("org:a", "org:b", "org:c", "org:d")


@pytest.mark.parametrize(
    ("demand", "gpus", "granted"),
    [
        pytest.param({"a": 2, "b": 2, "c": 1}, 64, {"a": 24, "b": 24, "c": 16}, id="largest remainder"),
        pytest.param({"a": 9, "b": 1}, 16, {"a": 16, "b": 0}, id="less than half a node is none"),
        pytest.param({"a": 1, "b": 2}, 20, {"a": 8, "b": 12}, id="no whole node is left"),
        pytest.param({"a": 0}, 8, {"a": 8}, id="nothing wanted"),
        pytest.param({}, 8, {}, id="no team"),
    ],
)
def test_whole_nodes_are_shared_in_proportion(
    demand: dict[str, int], gpus: int, granted: dict[str, int]
) -> None:
    assert in_proportion(demand, gpus, 8) == granted


def test_names_of_teams_become_valid_owners() -> None:
    assert names_for(["Alice@x.org", "alice x org", "", "org"]) == [
        "alice-x-org",
        "alice-x-org-1",
        "team",
        "org-3",
    ]


@pytest.mark.parametrize("bad", [(0, 8, 1), (4, 0, 1), (4, 65, 1), (4, 8, 5)])
def test_fleet_size_is_limited(bad: tuple[int, int, int]) -> None:
    with pytest.raises(InputError, match="must be between"):
        made_up(*bad)


STATE = """\
{apiVersion: sim.rq.davidlangworthy.io/v1, kind: Clock, spec: {now: "2026-02-01T00:00:00Z"}}
---
{apiVersion: sim.rq.davidlangworthy.io/v1, kind: Policy, spec: {minRuntime: 1h}}
---
apiVersion: v1
kind: Node
metadata: {name: a, labels: {gpu.flavor: X}}
status: {allocatable: {nvidia.com/gpu: 8}}
---
apiVersion: v1
kind: Node
metadata: {name: b, labels: {gpu.flavor: Y}}
status: {allocatable: {nvidia.com/gpu: 4}}
---
apiVersion: rq.davidlangworthy.io/v1
kind: Budget
metadata: {name: seeing}
spec: {owner: "org:ai:vision", envelopes: [{name: main, flavor: X, concurrency: 8}]}
"""


def test_state_file_gives_nodes_budgets_policy_and_clock(tmp_path: Path) -> None:
    path = tmp_path / "state.yaml"
    path.write_text(STATE)
    ground = of_state_file(str(path), "X")
    assert [node.name for node in ground.nodes] == ["a"]
    assert ground.policy.min_runtime_ms == HOUR
    assert ground.epoch // SECOND == 1_769_904_000
    for team in ("org:ai:vision", "seeing", "vision"):
        assert owners_in(ground.budgets, [team], "trace") == ("org:ai:vision",)
    with pytest.raises(
        InputError, match='user_or_team: "speech" is not allowed: no Budget has such an owner or name'
    ):
        owners_in(ground.budgets, ["speech"], "trace")
    with pytest.raises(InputError, match="choose one with --flavor"):
        of_state_file(str(path), None)
    with pytest.raises(InputError, match="the fleet has X, Y"):
        of_state_file(str(path), "Z")


def test_unusable_nodes_are_left_out_and_taints_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "state.yaml"
    more = """\
---
apiVersion: v1
kind: Node
metadata: {name: c, labels: {gpu.flavor: X}}
spec: {unschedulable: true}
status: {allocatable: {nvidia.com/gpu: 8}}
---
apiVersion: v1
kind: Node
metadata: {name: d, labels: {gpu.flavor: X}}
spec: {taints: [{key: nvidia.com/gpu, effect: NoSchedule}]}
status: {allocatable: {nvidia.com/gpu: 8}}
"""
    path.write_text(STATE + more)
    ground = of_state_file(str(path), "X")
    assert [(node.name, node.taints) for node in ground.nodes] == [("a", ()), ("d", ())]
    assert ground.left_out == ("c",)
    path.write_text(STATE.replace("status: {alloc", "spec: {unschedulable: true}\nstatus: {alloc"))
    with pytest.raises(InputError, match="every node with GPUs is cordoned"):
        of_state_file(str(path), "X")


def test_grant_is_limited_by_windows_hours_and_credits() -> None:
    given = replay_setup(Job(0, 1, 1, "a"), nodes=4)

    def gives(**limits: object) -> list[int]:
        """Returns the GPU-hours of team a in ten hours of the trace."""
        envelope = Envelope(name="main", flavor=given.flavor, concurrency=8, **limits)  # type: ignore[arg-type]
        budget = msgspec.structs.replace(
            given.budgets[1], spec=BudgetSpec(owner="org:a", envelopes=(envelope,))
        )
        changed_scene = msgspec.structs.replace(given, budgets=(budget,))
        return [time // HOUR for time in changed_scene.granted_gpu_time(0, 10 * HOUR)]

    def instant(hours: int) -> str:
        return format_time(given.epoch + hours * HOUR)

    assert gives() == [80]
    assert gives(max_gpu_hours=50) == [50]
    assert gives(max_credits=60) == [60]
    assert gives(start=instant(-5), end=instant(4)) == [32]
    assert gives(start=instant(7)) == [24]
    assert gives(start=instant(20)) == [0]


def test_what_if_changes_one_budget_or_the_nodes() -> None:
    given = replay_setup(Job(0, 1, 1, "a"), Job(0, 1, 1, "b"), nodes=4)
    assert changed(given, "budget a concurrency=30").granted() == [30, given.granted()[1]]
    assert changed(given, "budget a/main  concurrency=30").granted()[0] == 30
    assert (
        len(changed(given, "nodes +16").nodes)
        == len({node.name for node in changed(given, "nodes +16").nodes})
        == 20
    )
    assert len(changed(given, "nodes -3").nodes) == 1
    twice = changed(changed(given, "nodes +2"), "nodes +2")
    assert len({node.name for node in twice.nodes}) == 8
    assert changed(given, "nodes +1").digest("fifo") != given.digest("fifo")


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("budget c concurrency=5", "there is no such budget; there are a, org"),
        ("budget a concurrency=0", "concurrency: 0 is not allowed: must be between 1 and 1000000"),
        ("budget a concurrency=1000001", "must be between 1 and 1000000"),
        (f"budget a concurrency={'9' * 5_000}", "must be budget NAME concurrency=GPUs"),
        ("budget a/other concurrency=5", "budget a has the envelopes main"),
        ("budget a hours=5", "must be budget NAME concurrency=GPUs"),
        ("nodes -4", "nodes: -4 is not allowed: the fleet has 4: between 1 and 100000 must be left"),
        ("nodes +1000000000", "between 1 and 100000 must be left"),
        ("more", "must be budget NAME concurrency=GPUs"),
    ],
)
def test_wrong_what_if_is_refused(text: str, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        changed(replay_setup(Job(0, 1, 1, "a"), nodes=4), text)


def test_what_if_that_breaks_a_rule_of_budgets_is_refused() -> None:
    given = replay_setup(Job(0, 1, 1, "a"), nodes=4)
    envelope = Envelope(
        name="main",
        flavor=given.flavor,
        concurrency=8,
        max_gpu_hours=192,
        start="2026-01-05T00:00:00Z",
        end="2026-01-06T00:00:00Z",
    )
    budget = msgspec.structs.replace(given.budgets[1], spec=BudgetSpec(owner="org:a", envelopes=(envelope,)))
    with pytest.raises(
        InputError, match="maxGPUHours: 192 is not allowed: must be at most concurrency × window"
    ):
        changed(msgspec.structs.replace(given, budgets=(budget,)), "budget a concurrency=4")


def test_what_if_with_fewer_nodes_skips_jobs_that_are_too_large() -> None:
    given = replay_setup(Job(0, 1, 8, "a"), Job(1, 1, 32, "a"), nodes=4)
    smaller = changed(given, "nodes -2")
    assert list(smaller.trace.gpus) == [8]
    assert smaller.trace.skipped == {"gpus: the fleet has 16": 1}
