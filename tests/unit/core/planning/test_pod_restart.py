"""Attempts and restarts (F5): what counts, how long the pause is, and when a Run has failed for good."""

import msgspec
import pytest

from jobtree.api.schema.quantities import HOUR, MINUTE, SECOND
from jobtree.core.model.actions import Plan
from jobtree.core.runs.run_state import RankLoss, restart_delay
from tests.unit.core.build import T0, budget, node, nodes, parsed_run, run
from tests.unit.core.lab import Lab

RICH = budget("org", 10_000)


def lose_ranks(lab: Lab, name: str, *ranks: int, failed: bool, message: str = "") -> Plan:
    """A minute later pods of these ranks fail, or are evicted, at once."""
    lab.live(lab.world.now - T0 + MINUTE)
    state = lab[name]
    for rank in ranks:
        seat = list(state.rank_slots)[rank]
        lab.world.lose_rank(state.key, RankLoss(lab.world.now, seat, state.attempt, failed, message))
    return lab.settle()


def crash(lab: Lab, name: str, *ranks: int, message: str = "exit code 1") -> Plan:
    return lose_ranks(lab, name, *ranks, failed=True, message=message)


def evict(lab: Lab, name: str, *ranks: int) -> Plan:
    return lose_ranks(lab, name, *ranks, failed=False)


def cordon(lab: Lab, *names: str) -> None:
    for name in names:
        known = lab.world.fleet.nodes[name].node
        lab.put(msgspec.structs.replace(known, cordoned=True))


def closures(lab: Lab, name: str) -> set[str]:
    return {str(reason) for reason, _ in lab.endings(name)}


# A failed pod


def test_f5_a_failed_pod_begins_the_next_attempt_of_all_ranks_on_the_same_slots() -> None:
    lab = Lab(RICH, nodes("nv-a", 3))
    lab.submit(run("r", "org", 16))
    before = dict(lab["r"].rank_slots)
    (action,) = crash(lab, "r", 1).actions
    state = lab["r"]
    assert (state.phase, state.attempt, state.restarts) == ("Running", 2, 1)
    assert (dict(state.rank_slots), lab.endings("r")) == (before, [])
    assert "rank 1 (exit code 1) failed" in str(action.cause)


def test_f5_the_pause_begins_at_ten_seconds_and_doubles_up_to_ten_minutes() -> None:
    pauses = [10, 20, 40, 80, 160, 320, 600, 600, 600]
    assert [restart_delay(number) // SECOND for number in range(1, 10)] == pauses
    assert (restart_delay(0), restart_delay(10_000)) == (0, 600 * SECOND)


def test_f5_the_pause_is_visible_as_the_instant_at_which_pods_start_again() -> None:
    lab = Lab(RICH, nodes("nv-a", 1))
    lab.submit(run("r", "org", 8))
    crash(lab, "r", 0)
    assert lab["r"].resume_at == lab.world.now + 10 * SECOND
    crash(lab, "r", 0)
    assert lab["r"].resume_at == lab.world.now + 20 * SECOND


def test_f5_several_ranks_that_fail_at_once_are_one_failure() -> None:
    lab = Lab(RICH, nodes("nv-a", 4))
    lab.submit(run("r", "org", 32))
    crash(lab, "r", 0, 2, 3)
    assert (lab["r"].attempt, lab["r"].restarts) == (2, 1)


def test_f5_a_pod_of_an_earlier_attempt_does_not_count() -> None:
    lab = Lab(RICH, nodes("nv-a", 1))
    lab.submit(run("r", "org", 8))
    crash(lab, "r", 0)
    lab.live(HOUR)
    lab.world.lose_rank(lab["r"].key, RankLoss(lab.world.now, (0, 0), 1, failed=True))
    lab.settle()
    assert (lab["r"].attempt, lab["r"].restarts) == (2, 1)


def test_f5_a_pod_that_is_no_rank_of_it_does_not_count() -> None:
    lab = Lab(RICH, nodes("nv-a", 1))
    lab.submit(run("r", "org", 8))
    lab.world.lose_rank(lab["r"].key, RankLoss(lab.world.now, (7, 7), 1, failed=True))
    lab.settle()
    assert lab["r"].attempt == 1


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_f5_more_failures_than_max_restarts_end_the_run(limit: int) -> None:
    lab = Lab(RICH, nodes("nv-a", 1))
    lab.submit(run("r", "org", 8, max_restarts=limit))
    for _ in range(limit):
        crash(lab, "r", 0)
        assert lab.phase("r") == "Running"
    crash(lab, "r", 0, message="exit code 9")
    assert (lab.phase("r"), closures(lab, "r")) == ("Failed", {"Failed"})
    assert lab.reasons("r") == ["RestartsExhausted"]
    assert "rank 0 (exit code 9)" in str(lab.whys("r")[0])


def test_f5_the_rank_that_failed_first_is_named() -> None:
    lab = Lab(RICH, nodes("nv-a", 3))
    lab.submit(run("r", "org", 24, max_restarts=0))
    lab.live(MINUTE)
    state, now = lab["r"], lab.world.now
    lab.world.lose_rank(state.key, RankLoss(now, (0, 1), state.attempt, failed=True, message="exit code 2"))
    lab.world.lose_rank(state.key, RankLoss(now - 1, (0, 2), state.attempt, failed=True, message="oom"))
    lab.settle()
    assert "rank 2 (oom)" in str(lab.whys("r")[0])
    assert lab.endings("r") == [("Failed", MINUTE - 1)]


def test_f5_a_failed_pod_counts_before_evictions_of_the_same_instant() -> None:
    lab = Lab(RICH, nodes("nv-a", 2))
    lab.submit(run("r", "org", 16, max_restarts=0))
    lab.live(MINUTE)
    state, now = lab["r"], lab.world.now
    lab.world.lose_rank(state.key, RankLoss(now - 5, (0, 0), state.attempt, failed=False))
    lab.world.lose_rank(state.key, RankLoss(now, (0, 1), state.attempt, failed=True))
    lab.settle()
    assert lab.phase("r") == "Failed"


def test_f5_rendezvous_does_not_spare_it_the_restart_after_a_failed_pod() -> None:
    lab = Lab(RICH, nodes("nv-a", 2))
    lab.submit(run("r", "org", 16, rendezvous=True))
    crash(lab, "r", 0)
    assert (lab["r"].attempt, lab["r"].restarts) == (2, 1)


def test_f5_restarts_are_counted_over_requeues() -> None:
    lab = Lab(RICH, nodes("nv-a", 1))
    lab.submit(run("r", "org", 8, max_restarts=1))
    crash(lab, "r", 0)
    lab.put(node("nv-a-00", failed=True))
    lab.settle()
    assert (lab.phase("r"), lab["r"].restarts) == ("Pending", 1)
    lab.put(node("nv-a-00"))
    lab.settle()
    assert (lab.phase("r"), lab["r"].attempt, lab["r"].restarts) == ("Running", 3, 1)
    crash(lab, "r", 0)
    assert lab.phase("r") == "Failed"


# What does not count


def test_f5_lost_nodes_do_not_count_against_max_restarts() -> None:
    lab = Lab(RICH, nodes("nv-a", 3))
    lab.submit(run("r", "org", 8, max_restarts=0))
    for name in ("nv-a-00", "nv-a-01"):
        lab.live(lab.world.now - T0 + MINUTE)
        lab.put(node(name, failed=True))
        lab.settle()
    state = lab["r"]
    assert (state.phase, state.attempt, state.restarts) == ("Running", 3, 0)
    assert state.resume_at == lab.world.now  # no pause


def test_f5_an_evicted_pod_is_replaced_on_its_node() -> None:
    lab = Lab(RICH, nodes("nv-a", 2))
    lab.submit(run("r", "org", 8, max_restarts=0))
    before = dict(lab["r"].rank_slots)
    evict(lab, "r", 0)
    state = lab["r"]
    assert (state.phase, state.attempt, state.restarts) == ("Running", 2, 0)
    assert (dict(state.rank_slots), lab.endings("r"), state.resume_at) == (before, [], lab.world.now)


def test_f5_a_drained_rank_goes_to_the_spare() -> None:
    lab = Lab(RICH, nodes("nv-a", 4))
    lab.submit(run("r", "org", 16, spares=1, max_restarts=0))
    before = list(lab["r"].rank_slots)
    cordon(lab, "nv-a-00")
    evict(lab, "r", 0)
    assert lab.on("r") == {"nv-a-01": 8, "nv-a-02": 8}
    assert (list(lab["r"].rank_slots), lab["r"].rank_slots[0, 0][0]) == (before, "nv-a-02")
    assert closures(lab, "r") == {"CapacityLost", "Swap"}
    assert (lab["r"].attempt, lab["r"].restarts) == (2, 0)


def test_f5_a_drained_rank_without_a_spare_is_recovered_in_its_domain() -> None:
    lab = Lab(RICH, nodes("nv-a", 3), nodes("nv-b", 4))
    lab.submit(run("r", "org", 16))
    cordon(lab, "nv-a-01")
    evict(lab, "r", 1)
    assert lab.on("r") == {"nv-a-00": 8, "nv-a-02": 8}


def test_f5_a_drain_without_any_place_left_queues_the_run_again() -> None:
    lab = Lab(RICH, nodes("nv-a", 2))
    lab.submit(run("r", "org", 16))
    cordon(lab, "nv-a-01")
    (requeue, *_) = evict(lab, "r", 1).actions
    assert (lab.phase("r"), lab["r"].created, closures(lab, "r")) == ("Pending", T0, {"CapacityLost"})
    assert requeue.cause.where == "nv-a-01", "the node that it lost, not the rank"


def test_f5_a_drain_does_not_put_the_rank_on_a_spare_of_a_drained_node() -> None:
    lab = Lab(RICH, nodes("nv-a", 3))
    lab.submit(run("r", "org", 8, spares=1))
    cordon(lab, "nv-a-00", "nv-a-01")
    evict(lab, "r", 0)
    assert lab.on("r") == {"nv-a-02": 8}


def evict_spare(lab: Lab, name: str, *names: str) -> None:
    lab.live(lab.world.now - T0 + MINUTE)
    for one in names:
        lab.world.lose_spare(lab[name].key, one)
    lab.settle()


def test_f5_a_drained_spare_goes_elsewhere_and_its_run_goes_on() -> None:
    lab = Lab(RICH, nodes("nv-a", 3))
    lab.submit(run("r", "org", 8, spares=1))
    assert lab.on("r", "Spare") == {"nv-a-01": 8}
    cordon(lab, "nv-a-01")
    evict_spare(lab, "r", "nv-a-01")
    assert (lab.on("r"), lab.on("r", "Spare")) == ({"nv-a-00": 8}, {"nv-a-02": 8})
    assert (lab["r"].attempt, closures(lab, "r")) == (1, {"CapacityLost"})
    assert lab["r"].evicted_spare_nodes == {}


def test_f5_a_standby_pod_that_can_come_back_keeps_its_place() -> None:
    lab = Lab(RICH, nodes("nv-a", 3))
    lab.submit(run("r", "org", 8, spares=1))
    evict_spare(lab, "r", "nv-a-01")
    assert (lab.on("r", "Spare"), closures(lab, "r")) == ({"nv-a-01": 8}, set())


def test_f5_rank_and_spare_of_one_drain_leave_together() -> None:
    lab = Lab(RICH, nodes("nv-a", 3))
    lab.submit(run("r", "org", 8, spares=1))
    cordon(lab, "nv-a-00", "nv-a-01")
    lab.world.lose_spare(lab["r"].key, "nv-a-01")
    evict(lab, "r", 0)
    assert (lab.on("r"), lab.on("r", "Spare")) == ({"nv-a-02": 8}, {})
    assert (lab["r"].attempt, lab["r"].restarts) == (2, 0)


def test_f5_a_drained_malleable_run_without_a_place_goes_on_narrower() -> None:
    lab = Lab(RICH, nodes("nv-a", 2))
    lab.submit(run("r", "org", 16, malleable=(8, 16, 8)))
    cordon(lab, "nv-a-01")
    evict(lab, "r", 1)
    assert (lab.phase("r"), lab["r"].width, lab.on("r")) == ("Running", 8, {"nv-a-00": 8})


def test_f5_rendezvous_leaves_the_living_ranks_alone_when_one_is_replaced_elsewhere() -> None:
    lab = Lab(RICH, nodes("nv-a", 3))
    lab.submit(run("r", "org", 16, rendezvous=True))
    cordon(lab, "nv-a-01")
    evict(lab, "r", 1)
    assert (lab["r"].attempt, lab.on("r")) == (1, {"nv-a-00": 8, "nv-a-02": 8})


def test_f5_a_lottery_lost_does_not_count() -> None:
    lab = Lab(RICH, nodes("nv-a", 1))
    lab.submit(run("r", "org", 8, max_restarts=0))
    lab.submit(run("waits", "org", 8, at=1))
    lab.live(12 * HOUR)
    assert lab["r"].lotteries_lost + lab["waits"].lotteries_lost > 0
    assert (lab["r"].restarts, lab["waits"].restarts) == (0, 0)
    assert "Failed" not in {lab.phase("r"), lab.phase("waits")}


# Runs without GPUs (J5)


def cpu_run(limit: int = 3) -> Lab:
    lab = Lab(RICH, nodes("nv-a", 1))
    spec = {"owner": "org", "resources": {"totalGPUs": 0, "pods": 3}, "runtime": {"maxRestarts": limit}}
    lab.submit(parsed_run("prep", spec, 0))
    return lab


def test_j5_a_run_without_gpus_has_a_seat_per_pod_and_no_lease() -> None:
    lab = cpu_run()
    assert (lab.phase("prep"), list(lab["prep"].rank_slots)) == ("Running", [(0, 0), (0, 1), (0, 2)])
    assert (lab.leases("prep"), lab["prep"].attempt) == ([], 1)


def test_j5_a_failed_pod_of_a_run_without_gpus_restarts_it_after_the_same_pause() -> None:
    lab = cpu_run()
    crash(lab, "prep", 2)
    state = lab["prep"]
    assert (state.attempt, state.restarts, state.resume_at) == (2, 1, lab.world.now + 10 * SECOND)
    assert len(state.rank_slots) == 3


def test_j5_an_evicted_pod_of_a_run_without_gpus_is_placed_again_by_the_clusters_scheduler() -> None:
    lab = cpu_run(limit=0)
    evict(lab, "prep", 1)
    assert (lab.phase("prep"), lab["prep"].attempt, lab["prep"].restarts) == ("Running", 2, 0)


def test_j5_too_many_failures_end_a_run_without_gpus() -> None:
    lab = cpu_run(limit=0)
    crash(lab, "prep", 1)
    assert (lab.phase("prep"), lab.reasons("prep")) == ("Failed", ["RestartsExhausted"])
