"""Refused pods (N3): how long a Run stays where its pods are refused, and what it does then."""

import random

import msgspec
import pytest

from jobtree.api.kinds.policy import Policy
from jobtree.api.schema.quantities import HOUR, MINUTE, SECOND, format_time
from jobtree.core.model.gpu_lease import GroupRank, closed_lease_object, lease_to_object
from jobtree.core.model.refusals import RefusedPods
from jobtree.core.reporting.object_status import KnownRisks, run_status
from jobtree.core.world.world import World
from jobtree.messages.reported_verdict import reported_verdict
from tests.unit.core.build import T0, budget, nodes, run, tree
from tests.unit.core.lab import LOTTERY_KEY, Lab

RICH = budget("org", 10_000)
GRACE = Policy().placement_grace_ms
WORDS = "OutOfcpu: Node didn't have enough resource: cpu"
QUOTA = 'pods "r-0" is forbidden: exceeded quota: compute'


def refuse(lab: Lab, name: str, node: str, *ranks: GroupRank, words: str = WORDS) -> None:
    """The Run is told that a node refuses these ranks; without ranks: all of its ranks there."""
    state = lab[name]
    group_ranks = ranks or tuple(rank for rank, (on, _) in state.rank_slots.items() if on == node or not node)
    lab.world.refuse_pods(state.key, state.attempt, [RefusedPods(node, words, group_ranks)])
    lab.settle()


def accept(lab: Lab, name: str) -> None:
    lab.world.refuse_pods(lab[name].key, lab[name].attempt, [])
    lab.settle()


def after(lab: Lab, milliseconds: int) -> None:
    lab.live(lab.world.now - T0 + milliseconds)


def reloaded(lab: Lab, name: str) -> World:
    """A new manager reads the Run and its leases as they were written."""
    world = World(now=lab.world.now)
    world.lottery_key = LOTTERY_KEY
    for slots in lab.world.fleet.nodes.values():
        world.put_node(slots.node)
    for held in lab.world.budgets.budgets.values():
        world.put_budget(held)
    state = lab[name]
    status = run_status(lab.world, state, KnownRisks(0))
    world.put_run(msgspec.structs.replace(state.run_object, status=status))
    for record in lab.history(name):
        if record.end is None or record.reason is None:
            world.lease_intake.add_open(record.lease)
        else:
            closed = closed_lease_object(lease_to_object(record.lease), record.end, record.reason)
            world.put_lease(closed)
    return world


# One node


def test_n3_a_refused_run_says_so_and_stays_during_the_grace() -> None:
    lab = Lab(RICH, nodes("nv-a", 2))
    lab.submit(run("r", "org", 8))
    (node,) = lab.on("r")
    refuse(lab, "r", node)
    assert lab.reasons("r")[-1] == "Refused"
    assert f"node {node}: {WORDS}" in str(lab.whys("r")[-1])
    after(lab, GRACE - 1)
    assert (set(lab.on("r")), lab.endings("r")) == ({node}, [])


def test_n3_after_the_grace_the_rank_goes_to_another_node_without_counting_a_restart() -> None:
    lab = Lab(RICH, nodes("nv-a", 3))
    lab.submit(run("r", "org", 16, max_restarts=0))
    first, second = lab.on("r")
    refuse(lab, "r", second)
    after(lab, GRACE)
    state = lab["r"]
    assert (state.phase, state.restarts, state.attempt) == ("Running", 0, 2)
    assert first in lab.on("r")
    assert second not in lab.on("r")
    assert lab.endings("r") == [("CapacityLost", GRACE)]


def test_n3_refused_pods_that_start_within_the_grace_change_nothing() -> None:
    lab = Lab(RICH, nodes("nv-a", 2))
    lab.submit(run("r", "org", 8))
    refuse(lab, "r", next(iter(lab.on("r"))))
    after(lab, GRACE - 1)
    accept(lab, "r")
    assert lab.reasons("r") == ["Admitted"]
    after(lab, HOUR)
    assert (lab.endings("r"), lab["r"].refusals, lab["r"].attempt) == ([], (), 1)


def test_n3_the_gang_goes_to_another_domain_when_its_own_has_no_other_node() -> None:
    lab = Lab(RICH, nodes("nv-a", 2), nodes("nv-b", 2))
    lab.submit(run("r", "org", 16))
    (domain,) = lab.domains("r")[0]
    refuse(lab, "r", min(lab.on("r")))
    after(lab, GRACE)
    assert lab.phase("r") == "Running"
    assert lab.domains("r")[0] == {"nv-a", "nv-b"} - {domain}
    assert {reason for reason, _ in lab.endings("r")} == {"CapacityLost"}


def test_n3_a_spare_takes_the_place_of_a_refused_rank() -> None:
    lab = Lab(RICH, nodes("nv-a", 2))
    lab.submit(run("r", "org", 8, spares=1))
    (node,), (standby,) = lab.on("r"), lab.on("r", "Spare")
    refuse(lab, "r", node)
    after(lab, GRACE)
    assert set(lab.on("r")) == {standby}


def test_n3_a_run_without_another_node_waits_with_unplaceable_and_holds_nothing() -> None:
    lab = Lab(RICH, nodes("nv-a", 1))
    lab.submit(run("r", "org", 8))
    (node,) = lab.on("r")
    refuse(lab, "r", node)
    after(lab, GRACE)
    assert (lab.phase("r"), lab.leases("r")) == ("Pending", [])
    assert lab.reasons("r")[-1] == "Unplaceable"
    assert WORDS in str(lab.whys("r")[-1])


def test_n3_the_node_is_tried_again_after_pauses_that_double_and_is_then_left_at_once() -> None:
    """The payer pays for one grace, however often the node refuses."""
    lab = Lab(RICH, nodes("nv-a", 1))
    lab.submit(run("r", "org", 8))
    (node,) = lab.on("r")
    starts = []
    for _ in range(5):
        refuse(lab, "r", node)
        if lab["r"].phase == "Running":
            after(lab, GRACE)
        assert lab.leases("r") == []
        ended = lab.world.now
        while not lab.leases("r"):
            after(lab, SECOND)
        starts.append(lab.world.now - ended)
    assert [pause // MINUTE for pause in starts] == [10, 20, 40, 60, 60]
    charged = sum(
        (record.end or lab.world.now) - record.lease.start for record in lab.history("r") if record.end
    )
    assert charged == GRACE


def test_n3_a_node_that_refused_long_ago_has_a_whole_grace_again() -> None:
    lab = Lab(RICH, nodes("nv-a", 1))
    lab.submit(run("r", "org", 8))
    (node,) = lab.on("r")
    refuse(lab, "r", node)
    after(lab, GRACE + 10 * MINUTE + HOUR)
    refuse(lab, "r", node)
    assert lab.phase("r") == "Running"
    after(lab, GRACE)
    assert lab.phase("r") == "Pending"


def test_n3_other_runs_use_a_node_that_refuses_one() -> None:
    lab = Lab(RICH, nodes("nv-a", 1))
    lab.submit(run("r", "org", 8))
    refuse(lab, "r", next(iter(lab.on("r"))))
    after(lab, GRACE)
    lab.submit(run("other", "org", 8, at=5))
    assert lab.phase("other") == "Running"


def test_n3_a_rank_that_has_moved_since_is_not_moved_again() -> None:
    lab = Lab(RICH, nodes("nv-a", 3))
    lab.submit(run("r", "org", 16))
    first, second = lab.on("r")
    refuse(lab, "r", second)
    after(lab, MINUTE)
    lab.world.drop_node(second)
    lab.settle()
    moved_to = set(lab.on("r")) - {first}
    after(lab, GRACE)
    assert (set(lab.on("r")) - {first}, lab["r"].attempt) == (moved_to, 2)


def test_n3_ranks_of_an_earlier_attempt_are_not_refused() -> None:
    lab = Lab(RICH, nodes("nv-a", 2))
    lab.submit(run("r", "org", 8))
    (node,) = lab.on("r")
    lab.world.refuse_pods(lab["r"].key, lab["r"].attempt - 1, [RefusedPods(node, WORDS, ((0, 0),))])
    lab.settle()
    assert lab["r"].refusals == ()


def test_n3_a_run_that_many_nodes_refuse_waits_instead_of_trying_them_all() -> None:
    lab = Lab(RICH, nodes("nv-a", 8))
    lab.submit(run("r", "org", 8))
    tried = set()
    while lab["r"].phase == "Running":
        (node,) = lab.on("r")
        tried.add(node)
        refuse(lab, "r", node)
        after(lab, GRACE)
    assert (len(tried), lab.reasons("r"), lab["r"].promise) == (4, ["Unplaceable"], None)
    assert "4 nodes refused its pods" in str(lab.whys("r")[0])
    after(lab, GRACE)
    assert lab.phase("r") == "Running"
    assert set(lab.on("r")).isdisjoint(tried)


# The API server


def test_n3_h5_a_run_that_the_api_server_refuses_waits_and_its_gpus_come_free() -> None:
    lab = Lab(RICH, nodes("nv-a", 2))
    lab.submit(run("r", "org", 16, max_restarts=0))
    lab.submit(run("next", "org", 16, at=5))
    refuse(lab, "r", "", (0, 1), words=QUOTA)
    after(lab, GRACE - 1)
    assert (lab.phase("r"), lab.phase("next")) == ("Running", "Pending")
    after(lab, 1)
    state = lab["r"]
    assert (state.phase, state.promise, lab.leases("r"), lab.phase("next")) == (
        "Pending",
        None,
        [],
        "Running",
    )
    assert lab.reasons("r") == ["Unplaceable"]
    again = format_time(T0 + 2 * GRACE)
    assert f"{QUOTA} (tried again at {again})" in str(lab.whys("r")[0])
    assert state.restarts == 0


def test_n3_a_run_that_the_api_server_refuses_is_looked_at_again() -> None:
    lab = Lab(RICH, nodes("nv-a", 2))
    lab.submit(run("r", "org", 16))
    pauses = []
    refuse(lab, "r", "", words=QUOTA)
    after(lab, GRACE)
    for _ in range(4):
        ended = lab.world.now
        while not lab.leases("r"):
            after(lab, SECOND)
        pauses.append(lab.world.now - ended)
        refuse(lab, "r", "", words=QUOTA)  # it is left at once
    assert [pause // MINUTE for pause in pauses] == [2, 4, 8, 16]
    while not lab.leases("r"):
        after(lab, SECOND)
    after(lab, 2 * HOUR)  # the quota was raised
    assert lab.reasons("r") == ["Admitted"]


def test_n3_a_malleable_run_gives_back_ranks_that_the_api_server_refuses() -> None:
    lab = Lab(RICH, nodes("nv-a", 3))
    lab.submit(run("r", "org", 16, malleable=(8, 16, 8), checkpoint="1m"))
    assert lab["r"].width == 16
    refuse(lab, "r", "", (0, 1), words=QUOTA)
    after(lab, GRACE)
    assert (lab.phase("r"), lab["r"].width) == ("Running", 8)
    after(lab, GRACE - 1)
    assert lab["r"].width == 8
    after(lab, MINUTE)
    assert lab["r"].width == 16, "it grows again after the pause"


def test_n3_an_edit_of_a_refused_run_is_tried_at_once() -> None:
    lab = Lab(RICH, nodes("nv-a", 2))
    lab.submit(run("r", "org", 16))
    refuse(lab, "r", "", words=QUOTA)
    after(lab, GRACE)
    lab.submit(run("r", "org", 8))
    assert (lab.phase("r"), lab["r"].refusals) == ("Running", ())


def test_n3_a_gang_of_stages_waits_together() -> None:
    stages = [
        {"name": "a", "resources": {"gpuType": "H100-80GB", "totalGPUs": 8}},
        {"name": "b", "resources": {"gpuType": "H100-80GB", "totalGPUs": 8}, "with": ["a"]},
    ]
    lab = Lab(RICH, nodes("nv-a", 2))
    lab.submit(tree("t", "org", stages, at=1))
    refuse(lab, "t-b", "", words=QUOTA)
    after(lab, GRACE)
    assert [lab[name].phase for name in ("t-a", "t-b")] == ["Pending", "Pending"]
    assert lab.leases("t-a") == []
    after(lab, GRACE)
    assert [lab[name].phase for name in ("t-a", "t-b")] == ["Running", "Running"]


def test_n3_a_refused_standby_pod_is_given_up_alone_and_tried_again_after_a_pause() -> None:
    lab = Lab(RICH, nodes("nv-a", 2))
    lab.submit(run("r", "org", 8, spares=1))
    (standby,) = lab.on("r", "Spare")
    state = lab["r"]
    lab.world.refuse_pods(state.key, state.attempt, [RefusedPods("", QUOTA, (), (standby,))])
    lab.settle()
    after(lab, GRACE)
    assert (lab.phase("r"), lab.spares("r"), state.attempt) == ("Running", 0, 1)
    after(lab, GRACE - 1)
    assert lab.spares("r") == 0
    after(lab, MINUTE)
    assert lab.spares("r") == 8


# A restart of the manager


def test_n3_a_grace_survives_a_restart_of_the_manager() -> None:
    lab = Lab(RICH, nodes("nv-a", 2))
    lab.submit(run("r", "org", 8))
    (node,) = lab.on("r")
    refuse(lab, "r", node)
    after(lab, GRACE - MINUTE)
    lab.world = reloaded(lab, "r")
    refuse(lab, "r", node)
    after(lab, MINUTE)
    assert node not in lab.on("r")
    assert lab.endings("r") == [("CapacityLost", GRACE)]


def test_n3_a_pause_survives_a_restart_of_the_manager() -> None:
    lab = Lab(RICH, nodes("nv-a", 2))
    lab.submit(run("r", "org", 16))
    refuse(lab, "r", "", words=QUOTA)
    after(lab, GRACE)
    lab.world = world = reloaded(lab, "r")
    verdict = reported_verdict(lab["r"])
    assert verdict is not None
    assert (verdict.reason, QUOTA in verdict.message) == ("Unplaceable", True)
    lab.settle()
    assert (lab["r"].phase, lab.leases("r")) == ("Pending", [])
    after(lab, GRACE)
    assert lab.phase("r") == "Running"
    assert world.runs["ns", "r"].refused_everywhere is False


# At random


@pytest.mark.parametrize("seed", range(20))
def test_n3_refusals_at_random_charge_no_more_than_a_grace_and_never_fail_a_run(seed: int) -> None:
    """Of each Run, the time on a refusing node that is charged is counted apart from the planner."""
    dice = random.Random(seed)
    lab = Lab(RICH, nodes("nv-a", 3), nodes("nv-b", 3))
    names = [f"r{number}" for number in range(4)]
    for number, name in enumerate(names):
        malleable = (8, 16, 8) if dice.random() < 0.5 else None
        spares = dice.choice([0, 0, 1])
        lab.submit(
            run(
                name,
                "org",
                16,
                at=number,
                max_restarts=0,
                spares=spares,
                malleable=malleable,
                checkpoint="1m",
            )
        )
    refusing = set(dice.sample(sorted(lab.world.fleet.nodes), 2))
    longest: dict[tuple[str, str], int] = {}
    since: dict[tuple[str, str], int] = {}
    for _ in range(120):
        for name in names:
            state = lab[name]
            refused = [
                RefusedPods(node, WORDS, tuple(r for r, (on, _) in state.rank_slots.items() if on == node))
                for node in sorted(refusing & {on for on, _ in state.rank_slots.values()})
            ]
            lab.world.refuse_pods(state.key, state.attempt, refused)
        lab.settle()
        now = lab.world.now
        here = {(name, node) for name in names for node in refusing & set(lab.on(name))}
        since = {key: since.get(key, now) for key in here}
        for key, began in since.items():
            longest[key] = max(longest.get(key, 0), now - began)
        after(lab, dice.choice([SECOND, 10 * SECOND, 30 * SECOND]))
        if dice.random() < 0.05:
            refusing = set(dice.sample(sorted(lab.world.fleet.nodes), 2))
            since = {}
    assert all(time <= GRACE + 30 * SECOND for time in longest.values())
    assert "Failed" not in [lab[name].phase for name in names]
    assert [lab[name].restarts for name in names] == [0] * 4
