"""What a replay is given: habits, outages, fleets, budgets, and changes of them."""

from pathlib import Path
from statistics import median

import pytest

from jobtree.api.problems import InputError
from jobtree.api.quantities import DAY, HOUR, SECOND
from jobtree.replay.ground import in_proportion, made_up, made_up_budgets, names_for, of_state_file, owners_in
from jobtree.replay.outages import Outage, Rates, drawn, joined, read_outages
from jobtree.replay.whatif import changed
from jobtree.replay.workload import LIMITS, Habits, assumed_ends, declared
from tests.unit.replay.stage import EXACT, Job, scene, trace

MANY = [Job(number, 1_000 + number, 1) for number in range(2_000)]


def test_people_declare_more_than_they_need_in_round_figures() -> None:
    known = trace(MANY)
    told = declared(known, Habits())
    assert told is not None
    factors = [limit / true for limit, true in zip(told, known.duration, strict=True)]
    assert min(factors) >= 1
    assert 2 < median(factors) < 4
    assert set(told) <= set(LIMITS)
    assert told == declared(known, Habits())
    assert told != declared(known, Habits(seed=2))


def test_what_is_declared_depends_on_the_job_alone() -> None:
    whole, part = declared(trace(MANY), Habits()), declared(trace(MANY[:10]), Habits())
    assert whole is not None
    assert part is not None
    assert list(whole[:10]) == list(part)


def test_without_a_declaration_the_longest_duration_counts() -> None:
    known = trace([Job(0, 100, 1), Job(1, 90_000, 1)])
    assert declared(known, Habits(declares="none")) is None
    assert list(assumed_ends(known, Habits(declares="none"))) == [2 * DAY, 2 * DAY]
    assert list(assumed_ends(known, EXACT)) == list(known.duration)


def test_drawn_outages_have_the_rates_asked_for() -> None:
    rates = Rates(239 * DAY, 20 * HOUR, 312 * HOUR)
    found = drawn(rates, 2_000, 0, 239 * DAY, seed=1)
    assert 1_600 < len(found) < 2_100
    downs = sorted(outage.end - outage.start for outage in found)
    assert 15 * HOUR < downs[len(downs) // 2] < 25 * HOUR
    assert 250 * HOUR < downs[len(downs) * 9 // 10] < 380 * HOUR
    assert found == drawn(rates, 2_000, 0, 239 * DAY, seed=1)
    assert found != drawn(rates, 2_000, 0, 239 * DAY, seed=2)


def test_outages_of_one_node_that_overlap_are_one() -> None:
    assert joined([Outage(0, 5, 9), Outage(1, 6, 7), Outage(0, 1, 6), Outage(2, 3, 3)]) == [
        Outage(0, 1, 9),
        Outage(1, 6, 7),
    ]


def test_outages_are_read_as_far_as_there_are_nodes(tmp_path: Path) -> None:
    path = tmp_path / "faults.csv"
    path.write_text("node,start_s,end_s,why\na,1,2,x\nb,3,4,x\nc,5,6,x\n")
    assert len(read_outages(str(path), 10)) == 3
    assert {outage.node for outage in read_outages(str(path), 2)} == {0, 1}


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("node,start_s\na,1\n", "columns node,start_s,end_s"),
        ("node,start_s,end_s\n", "columns node,start_s,end_s"),
        ("node,start_s,end_s\na,x,2\n", 'line 2: start_s: "x" is not allowed: must be a whole number'),
        ("node,start_s,end_s\na,5,2\n", 'end_s: "2" is not allowed: must not be before start_s 5'),
    ],
)
def test_bad_outages_are_refused(tmp_path: Path, text: str, rule: str) -> None:
    path = tmp_path / "faults.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=rule):
        read_outages(str(path), 4)
    with pytest.raises(InputError, match="there is no such file"):
        read_outages(str(tmp_path / "missing"), 4)


def test_budgets_are_what_is_asked_for_and_the_rest_by_demand() -> None:
    known = trace([Job(0, 100, 1, "a"), Job(0, 300, 1, "b"), Job(0, 100, 3, "c")])
    budgets, owners = made_up_budgets(known, 100, {"a": "40%"})
    granted = {budget.spec.owner: [one.concurrency for one in budget.spec.envelopes] for budget in budgets}
    assert granted == {"org": [], "org:a": [40], "org:b": [30], "org:c": [30]}
    assert owners == ("org:a", "org:b", "org:c")
    for asked, rule in (({"d": "1"}, "the trace has a, b, c"), ({"a": "x"}, "must be GPUs such as 128")):
        with pytest.raises(InputError, match=rule):
            made_up_budgets(known, 100, asked)


def test_budgets_add_up_to_the_fleet_whatever_is_cut_off() -> None:
    known = trace([Job(0, 100, 1, team) for team in "abc"] + [Job(0, 1, 1, "d")])
    budgets, _ = made_up_budgets(known, 64, {})
    granted = {budget.metadata.name: one.concurrency for budget in budgets for one in budget.spec.envelopes}
    assert granted == {"a": 21, "b": 21, "c": 21, "d": 1}
    assert in_proportion({"a": 2, "b": 2, "c": 1}, 8) == {"a": 3, "b": 3, "c": 2}


def test_teams_get_names_that_owners_may_have() -> None:
    assert names_for(["Alice@x.org", "alice x org", "", "org"]) == [
        "alice-x-org",
        "alice-x-org-1",
        "team",
        "org-3",
    ]


@pytest.mark.parametrize("bad", [(0, 8, 1), (4, 0, 1), (4, 65, 1), (4, 8, 5)])
def test_a_fleet_has_bounds(bad: tuple[int, int, int]) -> None:
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


def test_a_state_file_gives_nodes_budgets_policy_and_clock(tmp_path: Path) -> None:
    path = tmp_path / "state.yaml"
    path.write_text(STATE)
    ground = of_state_file(str(path), "X")
    assert [node.name for node in ground.nodes] == ["a"]
    assert ground.policy.min_runtime_ms == HOUR
    assert ground.epoch // SECOND == 1_769_904_000
    for team in ("org:ai:vision", "seeing", "vision"):
        assert owners_in(ground.budgets, [team], "trace") == ("org:ai:vision",)
    with pytest.raises(InputError, match='user_or_team: "speech" is not allowed: no budget is theirs'):
        owners_in(ground.budgets, ["speech"], "trace")
    with pytest.raises(InputError, match="choose one with --flavor"):
        of_state_file(str(path), None)
    with pytest.raises(InputError, match="the fleet has X, Y"):
        of_state_file(str(path), "Z")


def test_what_if_changes_one_thing() -> None:
    given = scene(Job(0, 1, 1, "a"), Job(0, 1, 1, "b"), nodes=4)
    assert changed(given, "budget a concurrency=30").granted() == [30, given.granted()[1]]
    assert changed(given, "budget a/main  concurrency=30").granted()[0] == 30
    assert (
        len(changed(given, "nodes +16").nodes)
        == len({node.name for node in changed(given, "nodes +16").nodes})
        == 20
    )
    assert len(changed(given, "nodes -3").nodes) == 1
    assert changed(given, "nodes +1").digest("fifo") != given.digest("fifo")


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("budget c concurrency=5", "there is no such budget; there are a, org"),
        ("budget a concurrency=0", "must be more than 0"),
        ("budget a/other concurrency=5", "budget a has the envelopes main"),
        ("budget a hours=5", "must be budget NAME concurrency=GPUs"),
        ("nodes -4", "the fleet has 4: one must be left"),
        ("more", "must be budget NAME concurrency=GPUs"),
    ],
)
def test_a_what_if_that_means_nothing_is_refused(text: str, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        changed(scene(Job(0, 1, 1, "a"), nodes=4), text)
