"""Failures (F1 to F4): nodes die, one or many at once, and ranks go on elsewhere or the Run queues again."""

import msgspec
import pytest

from jobtree.api.kubernetes.node import Node
from jobtree.api.schema.quantities import HOUR, MINUTE
from jobtree.core.model.gpu_lease import GroupRank
from jobtree.core.runs.run_state import PodSlots
from tests.unit.core.build import T0, budget, envelope, foreign_pod, node, nodes, run, tree
from tests.unit.core.lab import Lab

RICH = budget("org", 10_000)
GRACE = 2 * MINUTE


def lose(lab: Lab, *names: str) -> None:
    """A minute later nodes go out of service, at once."""
    lab.live(lab.world.now - T0 + MINUTE)
    for name in names:
        known = lab.world.fleet.nodes[name].node
        lab.put(msgspec.structs.replace(known, failed=True))
    lab.settle()


def silent(name: str, since: int, domain: str = "nv-a") -> Node:
    """A node that has not been Ready since so many milliseconds after T0."""
    return msgspec.structs.replace(node(name, domain, ready=False), not_ready_since_ms=T0 + since)


def seats(lab: Lab, name: str) -> dict[GroupRank, PodSlots]:
    return dict(lab[name].rank_slots)


def opened(lab: Lab, name: str, reason: str) -> dict[str, int]:
    """GPUs per node of the leases that opened for this reason."""
    found: dict[str, int] = {}
    for record in lab.history(name):
        for on, mask in record.lease.slots if record.lease.reason == reason else ():
            found[on] = found.get(on, 0) + mask.bit_count()
    return found


def closures(lab: Lab, name: str) -> list[str]:
    return sorted(str(reason) for reason, _ in lab.endings(name))


# Spares are used


def test_f3_a_lost_rank_goes_on_at_its_groups_spare_and_keeps_its_seat() -> None:
    lab = Lab(RICH, nodes("nv-a", 4))
    lab.submit(run("r", "org", 16, spares=1))
    assert lab.on("r", "Spare") == {"nv-a-02": 8}
    before = seats(lab, "r")
    lose(lab, "nv-a-00")
    (seat,) = [seat for seat, (on, _) in before.items() if on == "nv-a-00"]
    assert seats(lab, "r") == {**before, seat: ("nv-a-02", 255)}
    assert opened(lab, "r", "Swap") == {"nv-a-02": 8}
    assert opened(lab, "r", "Continue") == {"nv-a-01": 8}
    assert closures(lab, "r") == ["NodeFailure", "Swap"]
    assert (lab["r"].attempt, lab["r"].restarts) == (2, 0)


def test_f3_the_node_is_cordoned_until_somebody_heals_it() -> None:
    lab = Lab(RICH, nodes("nv-a", 4))
    lab.submit(run("r", "org", 8))
    lab.put(node("nv-a-00", failed=True))
    assert lab.settle().cordons == ("nv-a-00",)
    assert lab.settle().cordons == ()


def test_f3_a_swap_used_spare_is_replaced_later() -> None:
    lab = Lab(RICH, nodes("nv-a", 4))
    lab.submit(run("r", "org", 16, spares=1))
    lose(lab, "nv-a-00")
    assert lab.spares("r") == 0
    lab.live(HOUR)
    assert lab.on("r", "Spare") == {"nv-a-03": 8}


def test_f3_unpaid_work_on_the_spares_slots_ends() -> None:
    lab = Lab(budget("org", 10), budget("lab", 1), nodes("nv-a", 2))
    lab.submit(run("r", "org", 8, spares=1))
    lab.submit(run("guest", "lab", 8, opportunistic=True, at=1))
    assert (lab.on("r", "Spare"), lab.on("guest", "Opportunistic")) == ({"nv-a-01": 8}, {"nv-a-01": 8})
    lose(lab, "nv-a-00")
    assert lab.endings("guest") == [("ReclaimedBySpare", MINUTE)]
    assert (lab.on("r"), lab.phase("guest")) == ({"nv-a-01": 8}, "Pending")


def test_f3_guests_on_a_spare_that_is_not_needed_stay() -> None:
    lab = Lab(budget("org", 20), budget("lab", 1), nodes("nv-a", 3))
    lab.submit(run("r", "org", 8, spares=2, per_pod=8))
    assert lab.spares("r") == 16
    lab.submit(run("guest", "lab", 8, opportunistic=True, at=1))
    lab.submit(run("other", "lab", 8, opportunistic=True, at=2))
    lose(lab, "nv-a-00")
    assert sorted([lab.phase("guest"), lab.phase("other")]) == ["Pending", "Running"]


def test_f3_a_spare_on_the_failed_node_itself_is_no_help() -> None:
    lab = Lab(RICH, nodes("nv-a", 3))
    lab.submit(run("r", "org", 8, per_pod=8, spares=1))
    (spare_on,) = lab.on("r", "Spare")
    (rank_on,) = lab.on("r")
    lose(lab, rank_on, spare_on)
    assert (lab.phase("r"), opened(lab, "r", "Swap")) == ("Running", {})
    assert opened(lab, "r", "Recover") == {"nv-a-02": 8}


def test_f3_a_lost_spare_alone_restarts_nothing_and_is_replaced() -> None:
    lab = Lab(RICH, nodes("nv-a", 3))
    lab.submit(run("r", "org", 8, spares=1))
    before, attempt = seats(lab, "r"), lab["r"].attempt
    lose(lab, "nv-a-01")
    assert (seats(lab, "r"), closures(lab, "r"), lab["r"].attempt) == (before, ["NodeFailure"], attempt)
    assert lab.on("r", "Spare") == {"nv-a-02": 8}


def test_f3_a_rank_and_a_spare_on_the_same_failed_node() -> None:
    lab = Lab(RICH, node("a", gpus=4), node("b", gpus=4))
    lab.submit(run("r", "org", 2, per_pod=2, spares=3))
    assert (lab.on("r"), lab.on("r", "Spare")) == ({"a": 2}, {"b": 4, "a": 2})
    lose(lab, "a")
    assert (lab.on("r"), lab.on("r", "Spare")) == ({"b": 2}, {"b": 2})
    assert closures(lab, "r").count("NodeFailure") == 2


def test_f3_several_spares_serve_several_lost_ranks() -> None:
    lab = Lab(RICH, nodes("nv-a", 6))
    lab.submit(run("r", "org", 32, spares=2))
    lose(lab, "nv-a-00", "nv-a-02")
    assert (lab["r"].width, opened(lab, "r", "Swap")) == (32, {"nv-a-04": 8, "nv-a-05": 8})
    assert len(seats(lab, "r")) == 4


def test_f3_spares_first_then_free_slots() -> None:
    lab = Lab(RICH, nodes("nv-a", 6))
    lab.submit(run("r", "org", 32, spares=1))
    lose(lab, "nv-a-00", "nv-a-01")
    assert (opened(lab, "r", "Swap"), opened(lab, "r", "Recover")) == ({"nv-a-04": 8}, {"nv-a-05": 8})


def test_f3_two_groups_hit_at_once_use_each_its_own_spare() -> None:
    lab = Lab(RICH, nodes("nv-a", 3), nodes("nv-b", 3))
    lab.submit(run("r", "org", 32, group=16, spares=1))
    assert lab.domains("r") == {0: {"nv-a"}, 1: {"nv-b"}}
    lose(lab, "nv-a-00", "nv-b-01")
    assert opened(lab, "r", "Swap") == {"nv-a-02": 8, "nv-b-02": 8}
    assert lab.domains("r") == {0: {"nv-a"}, 1: {"nv-b"}}
    assert lab["r"].attempt == 2  # one attempt, whatever was lost


def test_f3_a_groups_spare_does_not_serve_another_group() -> None:
    lab = Lab(RICH, nodes("nv-a", 3), nodes("nv-b", 2))
    lab.submit(run("r", "org", 32, group=16, spares=1))
    assert lab.spares("r") == 8
    lose(lab, "nv-b-00")
    assert (lab.phase("r"), set(closures(lab, "r"))) == ("Pending", {"CapacityLost"})


def test_f3_rendezvous_keeps_the_attempt_over_a_swap() -> None:
    lab = Lab(RICH, nodes("nv-a", 3))
    lab.submit(run("r", "org", 16, spares=1, rendezvous=True))
    lose(lab, "nv-a-00")
    assert (lab.phase("r"), lab["r"].attempt) == ("Running", 1)


# Without a spare (F4)


def test_f4_replacement_slots_in_the_groups_domain() -> None:
    lab = Lab(RICH, nodes("nv-a", 3), nodes("nv-b", 3))
    lab.submit(run("r", "org", 16))
    before = seats(lab, "r")
    lose(lab, "nv-a-01")
    assert opened(lab, "r", "Recover") == {"nv-a-02": 8}
    assert list(seats(lab, "r")) == list(before)
    assert lab["r"].attempt == 2


def test_f4_no_replacement_in_another_domain_all_leases_close_and_it_queues_with_its_old_age() -> None:
    lab = Lab(RICH, nodes("nv-a", 2))
    lab.submit(run("r", "org", 16, spread=False))
    lab.put(nodes("nv-b", 1))
    lose(lab, "nv-a-01")
    assert set(lab.endings("r")) == {("CapacityLost", MINUTE)}
    assert (lab.phase("r"), lab["r"].created, lab["r"].since) == ("Pending", T0, None)


def test_f4_a_run_that_queues_again_starts_elsewhere_at_once_if_it_fits_there() -> None:
    lab = Lab(RICH, nodes("nv-a", 2), nodes("nv-b", 3))
    lab.submit(run("r", "org", 16))
    lose(lab, "nv-a-00", "nv-a-01")
    assert (lab.phase("r"), lab.domains("r")) == ("Running", {0: {"nv-b"}})
    assert set(closures(lab, "r")) == {"CapacityLost"}
    assert (lab["r"].attempt, lab["r"].restarts) == (2, 0)


def test_f4_all_nodes_of_a_group_lost_it_is_rebuilt_in_their_domain() -> None:
    lab = Lab(RICH, nodes("nv-a", 4))
    lab.submit(run("r", "org", 16))
    lose(lab, "nv-a-00", "nv-a-01")
    assert (lab["r"].width, lab.on("r")) == (16, {"nv-a-02": 8, "nv-a-03": 8})
    assert "CapacityLost" not in closures(lab, "r")


def test_f4_a_malleable_run_shrinks_if_it_stays_at_or_above_min() -> None:
    lab = Lab(RICH, nodes("nv-a", 3))
    lab.submit(run("r", "org", 24, malleable=(16, 24, 8)))
    lose(lab, "nv-a-02")
    assert (lab.phase("r"), lab["r"].width) == ("Running", 16)
    lose(lab, "nv-a-01")
    assert (lab.phase("r"), lab["r"].width) == ("Pending", 0)


def test_f4_a_grouped_run_shrinks_by_the_whole_group_that_was_hit() -> None:
    lab = Lab(RICH, nodes("nv-a", 4))
    lab.submit(run("r", "org", 32, group=16, malleable=(16, 32, 16)))
    hit = {lease.group: [on for on, _ in lease.slots] for lease in lab.leases("r")}
    lose(lab, hit[0][0])
    assert {lease.group for lease in lab.leases("r")} == {1}
    assert lab["r"].width == 16


def test_f4_it_shrinks_by_whole_steps() -> None:
    lab = Lab(RICH, nodes("nv-a", 5))
    lab.submit(run("r", "org", 40, malleable=(8, 40, 16)))
    lose(lab, "nv-a-04")
    assert lab["r"].width == 24  # 32 is not min + k·step


def test_f4_one_free_node_saves_one_of_two_groups_and_the_run_goes_on_with_it() -> None:
    lab = Lab(RICH, nodes("nv-a", 5))
    lab.submit(run("r", "org", 32, group=16, malleable=(16, 32, 16)))
    hit = {lease.group: [on for on, _ in lease.slots] for lease in lab.leases("r")}
    lose(lab, hit[0][0], hit[1][0])
    assert (lab.phase("r"), lab["r"].width) == ("Running", 16)
    assert opened(lab, "r", "Recover") == {"nv-a-04": 8}


def test_f4_an_ungrouped_run_keeps_as_many_lost_ranks_as_have_a_place() -> None:
    lab = Lab(RICH, nodes("nv-a", 5))
    lab.submit(run("r", "org", 32, malleable=(8, 32, 8)))
    lose(lab, "nv-a-00", "nv-a-01")
    assert (lab["r"].width, opened(lab, "r", "Recover")) == (24, {"nv-a-04": 8})


def test_f4_a_spare_is_used_though_it_cannot_save_all() -> None:
    lab = Lab(RICH, nodes("nv-a", 4))
    lab.submit(run("r", "org", 24, spares=1, malleable=(8, 24, 8)))
    lose(lab, "nv-a-00", "nv-a-01")
    assert (lab["r"].width, opened(lab, "r", "Swap"), lab.spares("r")) == (16, {"nv-a-03": 8}, 0)


def test_f4_two_ranks_with_two_payers_do_not_both_count_on_the_same_free_node() -> None:
    lends = {"allow": True, "to": ["*"]}
    lab = Lab(budget("org", 8), budget("lab", envelope(8, lending=lends)), nodes("nv-a", 3))
    lab.submit(run("r", "org", 16, sponsors=["lab"]))
    assert lab.paid("r") == {"Owned org/main": 8, "Borrowed lab/main": 8}
    lose(lab, "nv-a-00", "nv-a-01")
    assert (lab.phase("r"), set(closures(lab, "r"))) == ("Pending", {"CapacityLost"})


def test_f4_unpaid_work_gives_way_to_lost_ranks() -> None:
    lab = Lab(budget("org", 8), budget("lab", 1), nodes("nv-a", 2))
    lab.submit(run("r", "org", 8))
    lab.submit(run("guest", "lab", 8, opportunistic=True, at=1))
    lose(lab, "nv-a-00")
    assert (lab.on("r"), lab.endings("guest")) == ({"nv-a-01": 8}, [("Reclaimed", MINUTE)])


def test_f4_an_opportunistic_gang_that_loses_a_part_queues_again() -> None:
    lab = Lab(budget("org", 1), nodes("nv-a", 3))
    lab.submit(run("r", "org", 16, opportunistic=True))
    (lost, *_) = lab.on("r", "Opportunistic")
    lab.put(node("nv-a-02", cordoned=True))
    lose(lab, lost)
    assert (lab.phase("r"), set(closures(lab, "r"))) == ("Pending", {"CapacityLost"})


def test_f4_recovery_on_promised_slots_makes_the_promise_slip_and_says_node_failure() -> None:
    lab = Lab(RICH, nodes("nv-a", 4))
    lab.submit(run("a", "org", 8), run("b", "org", 8, max_duration="1h", at=1))
    lab.submit(run("c", "org", 8, max_duration="5h", at=2))
    lab.submit(run("waits", "org", 16, at=3))  # node 3 is free, the one of b follows at 1h
    assert lab.promised_at("waits") == HOUR
    lose(lab, "nv-a-00")
    assert opened(lab, "a", "Recover") == {"nv-a-03": 8}
    (slip,) = lab.promise("waits").slips
    assert (slip.reason, slip.before) == ("NodeFailure", T0 + HOUR)
    assert lab.promised_at("waits") == 2 * HOUR  # others can be drawn from then on


# Who pays


def test_f3_the_payer_of_the_lost_pod_pays_for_its_replacement() -> None:
    lends = {"allow": True, "to": ["*"]}
    lab = Lab(budget("org", 8), budget("lab", envelope(8, lending=lends)), nodes("nv-a", 3))
    lab.submit(run("r", "org", 16, sponsors=["lab"]))
    (borrowed,) = [lease for lease in lab.leases("r") if lease.class_ == "Borrowed"]
    lose(lab, borrowed.slots[0][0])
    assert lab.paid("r") == {"Owned org/main": 8, "Borrowed lab/main": 8}
    (fresh,) = [lease for lease in lab.leases("r") if lease.reason == "Recover"]
    assert fresh.payer == ("lab", "main")


def picky_fleet() -> list[Node]:
    """One domain of two rooms, one node each."""
    return [node("a", labels={"room": "1"}), node("b", labels={"room": "2"})]


def test_f3_where_the_payer_does_not_pay_another_of_the_run_does() -> None:
    first = envelope(8, "first", selector={"room": "1"}, end=100 * HOUR)  # its window closes soonest
    second = envelope(8, "second")
    lab = Lab(budget("org", first, second), *picky_fleet())
    lab.submit(run("r", "org", 8))
    assert lab.paid("r") == {"Owned org/first": 8}
    lose(lab, "a")
    assert (lab.on("r"), lab.paid("r")) == ({"b": 8}, {"Owned org/second": 8})


def test_f3_a_spare_that_another_paid_is_swapped_in_and_demoted_where_nobody_pays_for_a_rank() -> None:
    first = envelope(8, "first", selector={"room": "1"}, end=100 * HOUR)
    second = envelope(2, "second")  # enough for a spare, not for a rank
    lab = Lab(budget("org", first, second), *picky_fleet())
    lab.submit(run("r", "org", 8, spares=1))
    assert lab.on("r", "Spare") == {"b": 8}
    lose(lab, "a")
    assert lab.phase("r") == "Running"
    assert lab.on("r", "Opportunistic") == {"b": 8}


# When a node has failed (F2)


def test_f2_a_node_not_ready_for_less_than_the_grace_kills_nobody() -> None:
    lab = Lab(RICH, nodes("nv-a", 3))
    lab.submit(run("r", "org", 8))
    lab.put(silent("nv-a-00", 0))
    lab.live(GRACE - 1)
    lab.put(node("nv-a-00"))
    lab.live(HOUR)
    assert (lab.on("r"), lab.endings("r")) == ({"nv-a-00": 8}, [])


def test_f2_a_node_not_ready_takes_nothing_new() -> None:
    lab = Lab(RICH, nodes("nv-a", 1))
    lab.put(silent("nv-a-00", 0))
    lab.submit(run("r", "org", 8))
    assert lab.phase("r") == "Pending"


def test_f2_a_node_not_ready_for_the_grace_has_failed_at_that_instant() -> None:
    lab = Lab(RICH, nodes("nv-a", 3))
    lab.submit(run("r", "org", 8))
    lab.put(silent("nv-a-00", 0))
    lab.live(HOUR)
    assert (lab.on("r"), lab.endings("r")) == ({"nv-a-01": 8}, [("NodeFailure", GRACE)])


def test_f2_a_deleted_node_has_failed() -> None:
    lab = Lab(RICH, nodes("nv-a", 3))
    lab.submit(run("r", "org", 8))
    lab.world.drop_node("nv-a-00")
    lab.settle()
    assert (lab.on("r"), closures(lab, "r")) == ({"nv-a-01": 8}, ["NodeFailure"])


def test_f2_the_last_node_of_a_domain_deleted_with_all_that_ran_there() -> None:
    lab = Lab(RICH, nodes("nv-a", 2), nodes("nv-b", 2))
    lab.submit(run("r", "org", 16))
    for name in ("nv-a-00", "nv-a-01"):
        lab.world.drop_node(name)
    lab.settle()
    assert (lab.phase("r"), lab.domains("r")) == ("Running", {0: {"nv-b"}})


def test_f2_a_node_recreated_under_its_name_is_another_node() -> None:
    lab = Lab(RICH, [msgspec.structs.replace(one, uid=f"{one.name}-1") for one in nodes("nv-a", 2)])
    lab.submit(run("r", "org", 8))
    lab.live(MINUTE)
    lab.put(msgspec.structs.replace(node("nv-a-00"), uid="nv-a-00-2"))
    lab.settle()
    assert closures(lab, "r") == ["NodeFailure"]
    assert (lab.phase("r"), lab["r"].width, lab["r"].attempt) == ("Running", 8, 2)


def test_f2_the_same_node_seen_again_is_no_failure() -> None:
    lab = Lab(RICH, [msgspec.structs.replace(one, uid=f"{one.name}-1") for one in nodes("nv-a", 2)])
    lab.submit(run("r", "org", 8))
    lab.put(msgspec.structs.replace(node("nv-a-00", labels={"rack": "7"}), uid="nv-a-00-1"))
    lab.settle()
    assert (lab.endings("r"), lab["r"].attempt) == ([], 1)


def test_f2_a_node_that_reports_no_gpus_for_a_while_kills_nobody_and_takes_nothing_new() -> None:
    lab = Lab(RICH, nodes("nv-a", 1, gpus=8))
    lab.submit(run("r", "org", 4))
    lab.put(node("nv-a-00", gpus=0))
    lab.settle()
    assert (lab.endings("r"), lab["r"].width) == ([], 4)
    lab.submit(run("s", "org", 4, at=1))
    assert lab.phase("s") == "Pending"
    lab.put(node("nv-a-00"))
    lab.settle()
    assert lab.phase("s") == "Running"


def test_f2_a_node_that_returns_is_used_again() -> None:
    lab = Lab(RICH, nodes("nv-a", 1))
    lab.submit(run("r", "org", 8))
    lose(lab, "nv-a-00")
    assert lab.phase("r") == "Pending"
    lab.put(node("nv-a-00"))
    lab.settle()
    assert (lab.phase("r"), lab["r"].attempt) == ("Running", 2)


def test_f2_a_cordon_kills_nothing_and_nothing_new_is_placed() -> None:
    lab = Lab(RICH, nodes("nv-a", 1))
    lab.submit(run("r", "org", 4))
    lab.put(node("nv-a-00", cordoned=True))
    lab.submit(run("s", "org", 4, at=1))
    lab.live(HOUR)
    assert (lab.on("r"), lab.endings("r"), lab.phase("s")) == ({"nv-a-00": 4}, [], "Pending")


def test_f3_no_rank_is_swapped_to_a_spare_whose_node_takes_no_pods() -> None:
    lab = Lab(RICH, nodes("nv-a", 3))
    lab.submit(run("r", "org", 8, spares=1))
    assert lab.on("r", "Spare") == {"nv-a-01": 8}
    lab.put(node("nv-a-01", cordoned=True))
    lab.settle()
    lose(lab, "nv-a-00")
    assert lab.on("r") == {"nv-a-02": 8}


@pytest.mark.parametrize("names", [("nv-a-00", "nv-a-01"), ("nv-a-01", "nv-a-00")])
def test_f3_the_order_in_which_nodes_are_reported_lost_does_not_matter(names: tuple[str, str]) -> None:
    lab = Lab(RICH, nodes("nv-a", 5))
    lab.submit(run("r", "org", 24, spares=1))
    lose(lab, *names)
    assert (opened(lab, "r", "Swap"), opened(lab, "r", "Recover")) == ({"nv-a-03": 8}, {"nv-a-04": 8})


def test_f4_stages_that_started_together_queue_together_when_one_loses_its_place() -> None:
    stage = {"resources": {"gpuType": "H100-80GB", "totalGPUs": 8}}
    lab = Lab(RICH, nodes("nv-a", 1), nodes("nv-b", 1))
    lab.submit(tree("t", "org", [{"name": "x", **stage}, {"name": "y", "with": ["x"], **stage}]))
    assert (lab.phase("t-x"), lab.phase("t-y")) == ("Running", "Running")
    (on,) = lab.on("t-x")
    lose(lab, on)
    assert (lab.phase("t-x"), lab.phase("t-y")) == ("Pending", "Pending")
    assert closures(lab, "t-y") == ["CapacityLost"]


def test_f1_a_spare_whose_gpus_other_pods_use_is_no_help() -> None:
    """The standby pod requests no GPU, so the scheduler may have placed a pod of others on them."""
    lab = Lab(RICH, nodes("nv-a", 4))
    lab.submit(run("r", "org", 16, spares=1))
    assert lab.on("r", "Spare") == {"nv-a-02": 8}
    lab.put(foreign_pod("nv-a-02", 1))
    lose(lab, "nv-a-00")
    assert (opened(lab, "r", "Swap"), opened(lab, "r", "Recover")) == ({}, {"nv-a-03": 8})


def test_f1_opportunistic_work_does_not_use_gpus_of_a_spare_that_other_pods_use() -> None:
    lab = Lab(budget("org", 10), budget("lab", 1), nodes("nv-a", 2))
    lab.submit(run("r", "org", 8, spares=1))
    lab.put(foreign_pod("nv-a-01", 1))
    lab.submit(run("guest", "lab", 8, opportunistic=True, at=1))
    lab.submit(run("small", "lab", 4, opportunistic=True, at=2))
    assert lab.phase("guest") != "Running"
    assert lab.on("small", "Opportunistic") == {"nv-a-01": 4}
