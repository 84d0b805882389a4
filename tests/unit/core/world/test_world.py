"""Events that reach the world in any order, early, late or twice."""

import msgspec

from jobtree.api.kinds.run import Allocation, Resources, Run, RunStatus
from jobtree.api.kubernetes.pod import Pod
from jobtree.api.schema.object_meta import ObjectMeta
from jobtree.api.schema.quantities import HOUR, format_time
from jobtree.core.model.gpu_lease import closed_lease_object, lease_to_object
from jobtree.core.planning.planning_pass import plan
from jobtree.core.world.world import World
from tests.unit.core.build import H100, T0, budget, cap, envelope, foreign_pod, node, nodes, run
from tests.unit.core.lab import Lab

ORG = budget("org", envelope(8, maxGPUHours=16))
RUN = run("r", "org", 8)


def admitted() -> Lab:
    lab = Lab(node("n"), ORG)
    lab.submit(RUN)
    return lab


def as_running(run_object: Run) -> Run:
    allocation = Allocation(since=format_time(T0), gpus_per_pod=8)
    status = RunStatus(phase="Running", allocation=allocation, leases_opened=1)
    return msgspec.structs.replace(run_object, status=status)


def test_lease_is_loaded_before_its_run_budget_and_node() -> None:
    (lease,) = admitted().leases("r")
    world = World(now=T0 + HOUR)
    world.put_lease(lease_to_object(lease))
    world.put_run(as_running(RUN))
    world.put_budget(ORG)
    world.put_node(node("n"))
    state = world.runs["ns", "r"]
    assert (state.phase, state.width, plan(world).actions) == ("Running", 8, ())
    assert world.fleet.nodes["n"].free == 0
    assert world.timers.next_instant() == T0 + 2 * HOUR


def test_lease_ends_at_its_own_instant_when_that_passed_during_a_restart() -> None:
    (lease,) = admitted().leases("r")
    world = World(now=T0 + 9 * HOUR)
    world.put_budget(ORG)
    world.put_node(node("n"))
    world.put_lease(lease_to_object(lease))
    world.put_run(as_running(RUN))
    (action,) = plan(world).actions
    assert [(closing.at, closing.reason) for closing in action.closes] == [(T0 + 2 * HOUR, "BudgetExhausted")]


def test_closed_lease_adds_its_usage_once_and_takes_no_slots() -> None:
    lab = admitted()
    lab.advance(HOUR)
    lab.finish("r")
    lab.submit(run("next", "org", 8, at=HOUR))
    old, new = (record.lease for record in lab.records.values())
    world = World(now=lab.world.now)
    world.put_node(node("n"))
    world.put_budget(ORG)
    world.put_run(run("next", "org", 8, at=HOUR))
    world.put_lease(lease_to_object(new))
    for _ in range(2):  # the object may be read more than once
        world.put_lease(closed_lease_object(lease_to_object(old), T0 + HOUR, "Completed"))
    assert world.fleet.nodes["n"].free == 0
    account = world.budgets.envelopes["org", "main"].account
    assert (account.charge, account.used(world.now)) == (8_000, 8_000 * HOUR)


def test_lease_without_its_run_takes_no_slots_until_it_is_closed() -> None:
    lab = admitted()
    lab.advance(HOUR)
    (lease,) = lab.leases("r")
    world = World(now=lab.world.now)
    world.put_node(node("n"))
    world.put_budget(ORG)
    world.put_lease(lease_to_object(lease))
    assert (plan(world).actions, world.fleet.nodes["n"].free) == ((), 8)
    assert world.lease_intake.leases_without_run == {lease.run_key: {lease.name: lease}}
    world.put_lease(closed_lease_object(lease_to_object(lease), T0 + HOUR, "Cancelled"))
    assert world.lease_intake.leases_without_run == {}
    assert world.budgets.envelopes["org", "main"].account.used(world.now) == 8_000 * HOUR


def test_successor_of_a_run_waits_until_the_leases_of_its_predecessor_are_closed() -> None:
    lab = admitted()
    lab.advance(HOUR)
    successor = msgspec.structs.replace(
        RUN, metadata=msgspec.structs.replace(RUN.metadata, uid="another-uid", creation_timestamp=None)
    )
    lab.put(successor)
    (cancel,) = plan(lab.world).actions
    assert [(closing.at, closing.reason) for closing in cancel.closes] == [(T0 + HOUR, "Cancelled")]
    lab.world.apply(cancel)
    lab.replay.close(lab.records["r-r-uid-1"].lease, T0 + HOUR)
    lab.settle()
    (lease,) = lab["r"].leases.values()
    assert (lease.uid, lease.slots) == ("another-uid", (("n", 255),))


def test_node_is_not_removed_when_the_uid_is_that_of_an_earlier_one() -> None:
    lab = admitted()
    lab.world.drop_node("n", "uid-of-an-earlier-node")
    assert lab.settle().actions == ()


def test_open_lease_is_closed_when_its_object_is_closed() -> None:
    lab = admitted()
    (lease,) = lab.leases("r")
    lab.world.advance_clock(T0 + HOUR)
    lab.world.put_lease(closed_lease_object(lease_to_object(lease), T0 + HOUR, "Completed"))
    assert (lab.world.posted_leases, lab.world.fleet.nodes["n"].free) == ({}, 8)


def test_lease_numbers_continue_after_a_restart() -> None:
    (lease,) = admitted().leases("r")
    world = World(now=T0 + 2 * HOUR)
    world.put_node(node("n"))
    world.put_budget(ORG)
    world.put_lease(lease_to_object(lease))
    world.put_run(RUN)
    (action,) = plan(world).actions
    assert [opened.name for opened in action.opens] == ["r-r-uid-2"]


def test_envelope_keeps_its_usage_when_its_budget_is_edited() -> None:
    lab = admitted()
    lab.advance(HOUR)
    lab.put(
        budget("org", envelope(8), envelope(4, "new"), caps=[cap("c", "main", flavor=H100, maxGPUHours=99)])
    )
    lab.settle()
    lab.advance(HOUR + HOUR // 2)
    (limit,) = lab.world.budgets.caps["org"]
    assert lab.envelope("org").account.used(lab.world.now) == 12_000 * HOUR
    assert limit.account.used(lab.world.now) == 12_000 * HOUR


def test_node_keeps_its_leases_when_it_is_edited() -> None:
    lab = admitted()
    lab.put(node("n", cordoned=True))
    assert lab.settle().actions == ()
    assert lab.on("r") == {"n": 8}


def test_runs_of_a_failed_node_are_requeued() -> None:
    lab = admitted()
    lab.advance(HOUR)
    lab.put(node("n", failed=True), nodes("nv-b", 1)[0])
    lab.settle()
    assert lab.endings("r") == [("CapacityLost", HOUR)]
    assert (lab.on("r"), lab["r"].attempt, lab["r"].created) == ({"nv-b-00": 8}, 2, T0)


def test_runs_of_a_deleted_node_are_requeued() -> None:
    lab = admitted()
    lab.world.drop_node("n")
    lab.settle()
    assert (lab.phase("r"), lab.reasons("r")[-1]) == ("Pending", "NoSuchFlavor")
    lab.put(node("n"))
    lab.settle()
    assert lab.on("r") == {"n": 8}


def test_clock_never_moves_back() -> None:
    lab = admitted()
    lab.world.advance_clock(T0 + HOUR)
    lab.world.advance_clock(T0)
    assert lab.world.now == T0 + HOUR


def test_waiting_run_is_considered_again_when_it_is_edited() -> None:
    lab = Lab(node("n"), ORG)
    lab.submit(run("r", "org", 16))
    assert lab.phase("r") == "Pending"
    lab.submit(run("r", "org", 4))
    assert lab.phase("r") == "Running"


def test_shorter_duration_counts_from_the_start_of_the_run() -> None:
    lab = Lab(node("n"), ORG)
    lab.submit(run("r", "org", 4, max_duration="4h"))
    lab.advance(HOUR)
    lab.submit(run("r", "org", 4, max_duration="2h"))
    assert lab.envelope("org").account.committed(lab.world.now) == 4_000 * HOUR
    lab.advance(9 * HOUR)
    assert lab.endings("r") == [("Failed", 2 * HOUR)]


def test_run_without_gpus_starts_at_once_without_leases() -> None:
    lab = Lab(node("n"), ORG)
    prep = msgspec.structs.replace(RUN, metadata=ObjectMeta(name="prep", namespace="ns", uid="prep-uid"))
    spec = msgspec.structs.replace(prep.spec, resources=Resources(total_gpus=0, pods=2))
    lab.submit(msgspec.structs.replace(prep, spec=spec))
    assert (lab.phase("prep"), lab.leases("prep"), len(lab["prep"].rank_slots)) == ("Running", [], 2)


def claiming(gpus: int) -> Pod:
    """Returns a pod that names the Run."""
    return msgspec.structs.replace(foreign_pod("n", gpus), namespace="ns", run_uid=RUN.metadata.uid)


def test_pod_is_foreign_unless_it_names_a_run_of_its_namespace() -> None:
    """A pod that names an unknown Run, or a Run of another namespace, uses GPUs of its node (P1)."""
    owned = claiming(4)
    world = World(now=T0)
    world.put_node(node("n"))
    world.put_pod(owned)
    assert world.fleet.nodes["n"].free == 4, "its Run has not arrived yet"
    world.put_run(RUN)
    assert world.fleet.nodes["n"].free == 8
    world.put_pod(msgspec.structs.replace(owned, uid="other", namespace="eve"))
    assert world.fleet.nodes["n"].free == 4
    world.drop_pod("other")
    world.drop_run(("ns", "r"))
    world.put_pod(msgspec.structs.replace(owned, uid="late"))
    assert world.fleet.nodes["n"].free == 8, "a pod of a deleted Run still has to stop"


def test_pod_of_a_deleted_run_is_recognized_by_the_leases_of_the_run() -> None:
    (lease,) = admitted().leases("r")
    world = World(now=T0 + HOUR)
    world.put_node(node("n"))
    world.put_pod(claiming(8))
    assert world.fleet.nodes["n"].free == 0
    world.put_lease(closed_lease_object(lease_to_object(lease), T0 + HOUR, "Cancelled"))
    assert world.fleet.nodes["n"].free == 8


def test_finished_and_deleted_runs_leave_no_timers() -> None:
    lab = Lab(nodes("nv-a", 2), budget("org", 16))
    lab.submit(run("keeper", "org", 8, max_duration="100h"))
    before = len(lab.world.timers._scheduled)
    for number in range(50):
        lab.submit(run(f"r{number}", "org", 8, max_duration="1000h"))
        lab.finish(f"r{number}")
        lab.world.drop_run(("ns", f"r{number}"))
    assert len(lab.world.timers._scheduled) == before
    assert len(lab.world.timers._heap) < 25


def test_n1_pod_that_is_not_bound_to_its_node_yet_takes_nothing_there() -> None:
    """Otherwise anybody could fill nodes with pods that name a Run and never run."""
    lab = Lab(node("n"), ORG)
    waiting = msgspec.structs.replace(foreign_pod("n", 8), run_uid="nobody", bound=False)
    lab.put(waiting)
    assert lab.world.fleet.nodes["n"].free == 8
    lab.put(msgspec.structs.replace(waiting, bound=True))
    assert lab.world.fleet.nodes["n"].free == 0
