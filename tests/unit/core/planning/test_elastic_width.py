"""Elastic width (E1, E2, E3) and spares that come late (P5): what grows, what shrinks, and what does not."""

import msgspec
import pytest

from jobtree.api.schema.quantities import HOUR, MINUTE
from jobtree.core.model.gpu_lease import GpuLease
from jobtree.core.model.reasons import Reason
from tests.unit.core.build import budget, envelope, foreign_pod, node, nodes, run
from tests.unit.core.lab import Lab

RICH = budget("org", 10_000)


def wish(lab: Lab, name: str, desired: int) -> None:
    """The user asks for another width."""
    known = lab[name].run_object
    assert known.spec.malleable is not None
    malleable = msgspec.structs.replace(known.spec.malleable, desired_total_gpus=desired)
    lab.put(msgspec.structs.replace(known, spec=msgspec.structs.replace(known.spec, malleable=malleable)))
    lab.settle()


def groups(lab: Lab, name: str) -> dict[int, int]:
    """GPUs of each group, spares not counted."""
    found: dict[int, int] = {}
    for lease in lab.leases(name):
        if lease.role != "Spare":
            found[lease.group] = found.get(lease.group, 0) + lease.gpus
    return found


def said(lab: Lab, name: str, reason: Reason) -> str:
    """The sentence of one reason that the Run was given."""
    return "; ".join(str(why) for why in lab.whys(name) if why.reason is reason)


def opened_for(lab: Lab, name: str, reason: str) -> list[GpuLease]:
    return [record.lease for record in lab.history(name) if record.lease.reason == reason]


# Growing


def test_e1_it_grows_a_step_per_checkpoint_interval_up_to_what_it_wants() -> None:
    lab = Lab(RICH, nodes("nv-a", 4))
    lab.submit(run("r", "org", 8, malleable=(8, 32, 8), checkpoint="10m"))
    widths = []
    for minutes in (9, 10, 19, 20, 30, 60):
        lab.live(minutes * MINUTE)
        widths.append(lab["r"].width)
    assert widths == [8, 16, 16, 24, 32, 32]
    assert [lease.start - lab["r"].created for lease in opened_for(lab, "r", "Grow")] == [
        10 * MINUTE,
        20 * MINUTE,
        30 * MINUTE,
    ]


def test_e1_who_started_provisionally_grows_once_it_has_what_it_was_promised() -> None:
    lab = Lab(nodes("nv-a", 3), budget("org:a", 8), budget("p", 16), budget("g", envelope(16, start=HOUR)))
    lab.submit(run("long", "org:a", 8))
    lab.submit(run("guest", "g", 16, at=1, max_duration="1h"))
    lab.submit(run("passing", "p", 8, at=2, malleable=(8, 16, 8), checkpoint="10m"))
    assert (lab["passing"].provisional, lab["passing"].width) == (True, 8)
    lab.advance(MINUTE)
    lab.world.drop_run(("ns", "guest"))
    lab.settle()
    lab.live(4 * HOUR)
    assert not lab["passing"].provisional
    assert lab["passing"].width == 16


def test_e1_without_a_checkpoint_a_rendezvous_run_grows_once_a_minute() -> None:
    lab = Lab(RICH, nodes("nv-a", 3))
    lab.submit(run("r", "org", 8, malleable=(8, 24, 8), rendezvous=True))
    lab.live(MINUTE)
    assert lab["r"].width == 16
    lab.live(2 * MINUTE - 1)
    assert lab["r"].width == 16
    lab.live(2 * MINUTE)
    assert lab["r"].width == 24


def test_e1_a_run_with_neither_checkpoint_nor_rendezvous_does_not_grow() -> None:
    lab = Lab(RICH, nodes("nv-a", 4))
    lab.submit(run("r", "org", 8, malleable=(8, 32, 8)))
    lab.live(5 * HOUR)
    assert (lab["r"].width, lab["r"].attempt) == (8, 1)


def test_e1_it_never_grows_above_what_it_wants_though_max_is_higher() -> None:
    lab = Lab(RICH, nodes("nv-a", 4))
    lab.submit(run("r", "org", 8, malleable=(8, 32, 8), rendezvous=True))
    wish(lab, "r", 16)
    lab.live(HOUR)
    assert lab["r"].width == 16


def test_e1_it_never_grows_above_max_nor_by_part_of_a_step() -> None:
    lab = Lab(RICH, nodes("nv-a", 4))
    lab.submit(run("r", "org", 8, malleable=(8, 28, 8), rendezvous=True))
    lab.live(HOUR)
    assert lab["r"].width == 24  # 32 would be above 28


def test_e1_a_grouped_run_grows_by_whole_groups_or_not_at_all() -> None:
    lab = Lab(RICH, nodes("nv-a", 2), nodes("nv-b", 1))
    lab.submit(run("r", "org", 16, group=16, malleable=(16, 48, 16), rendezvous=True))
    lab.live(HOUR)
    assert groups(lab, "r") == {0: 16}  # 8 free GPUs are half a group
    lab.put(node("nv-b-01", "nv-b"))
    lab.live(HOUR + MINUTE)
    assert (groups(lab, "r"), lab.domains("r")) == ({0: 16, 1: 16}, {0: {"nv-a"}, 1: {"nv-b"}})


def test_e1_a_run_that_must_not_spread_grows_in_its_own_domain_alone() -> None:
    lab = Lab(RICH, nodes("nv-a", 1), nodes("nv-b", 4))
    lab.submit(run("r", "org", 8, group=8, spread=False, malleable=(8, 16, 8), rendezvous=True))
    assert lab.domains("r") == {0: {"nv-a"}}
    lab.live(HOUR)
    assert lab["r"].width == 8
    lab.put(node("nv-a-01", "nv-a"))
    lab.live(2 * HOUR)
    assert (lab["r"].width, set.union(*lab.domains("r").values())) == (16, {"nv-a"})


def test_e1_growth_needs_money_and_says_so() -> None:
    lab = Lab(budget("org", 12), nodes("nv-a", 4))
    lab.submit(run("r", "org", 8, malleable=(8, 32, 8), rendezvous=True))
    lab.live(HOUR)
    assert lab["r"].width == 8
    assert "envelope org/main has 4 of the 8 GPUs" in said(lab, "r", Reason.NOT_GROWING)
    lab.put(budget("org", 16))
    lab.settle()
    assert lab["r"].width == 16


def test_e1_growth_needs_room_and_says_so() -> None:
    lab = Lab(RICH, nodes("nv-a", 1))
    lab.submit(run("r", "org", 8, malleable=(8, 16, 8), rendezvous=True))
    lab.live(HOUR)
    assert lab["r"].width == 8
    assert "0 of 8 GPUs are free" in said(lab, "r", Reason.NOT_GROWING)


def test_e1_it_does_not_grow_with_slots_that_a_waiting_run_needs() -> None:
    lab = Lab(RICH, nodes("nv-a", 3))
    lab.submit(run("grows", "org", 8, malleable=(8, 24, 8), checkpoint="10m"))
    lab.submit(run("holds", "org", 8, max_duration="3h", at=1))
    lab.submit(run("waits", "org", 16, at=2))  # nodes 1 and 2, at 3h when holds is gone
    assert lab.phase("waits") == "Pending"
    lab.live(2 * HOUR)
    assert lab["grows"].width == 8
    assert "NotGrowing" in lab.reasons("grows")


def test_e1_it_does_not_grow_with_money_that_a_waiting_run_needs() -> None:
    lab = Lab(budget("org", 24), nodes("nv-a", 8))
    lab.submit(run("holds", "org", 8, max_duration="3h"))
    lab.submit(run("grows", "org", 8, malleable=(8, 24, 8), checkpoint="10m", at=1))
    lab.submit(run("waits", "org", 16, at=2))  # can be paid when holds is gone
    assert (lab.phase("waits"), lab.promised_at("waits")) == ("Pending", 3 * HOUR)
    lab.live(3 * HOUR - 1)
    assert lab["grows"].width == 8
    lab.live(3 * HOUR)
    assert (lab["grows"].width, lab.phase("waits")) == (8, "Running")


def test_e1_growth_may_reclaim_unpaid_work() -> None:
    lab = Lab(budget("org", 16), budget("lab", 1), nodes("nv-a", 2))
    lab.submit(run("grows", "org", 8, malleable=(8, 16, 8), checkpoint="10m"))
    lab.submit(run("unpaid", "lab", 8, opportunistic=True, at=1))
    assert lab.phase("unpaid") == "Running"
    lab.live(10 * MINUTE)
    assert lab["grows"].width == 16
    assert lab.endings("unpaid") == [("Reclaimed", 10 * MINUTE)]
    assert lab.phase("unpaid") == "Pending"


def test_e1_growth_takes_nothing_from_unpaid_work_that_it_does_not_need() -> None:
    lab = Lab(budget("org", 16), budget("lab", 1), nodes("nv-a", 3))
    lab.submit(run("grows", "org", 8, malleable=(8, 16, 8), checkpoint="10m"))
    lab.submit(run("unpaid", "lab", 8, opportunistic=True, at=1))
    lab.live(HOUR)
    assert (lab["grows"].width, lab.phase("unpaid"), lab.endings("unpaid")) == (16, "Running", [])


def test_e1_growth_ends_no_unpaid_work_if_it_could_not_be_paid_anyway() -> None:
    lab = Lab(budget("org", 8), budget("lab", 1), nodes("nv-a", 2))
    lab.submit(run("grows", "org", 8, malleable=(8, 16, 8), checkpoint="10m"))
    lab.submit(run("unpaid", "lab", 8, opportunistic=True, at=1))
    lab.live(HOUR)
    assert (lab["grows"].width, lab.endings("unpaid")) == (8, [])


def test_e1_a_run_that_nobody_pays_for_does_not_grow() -> None:
    lab = Lab(budget("org", 1), nodes("nv-a", 4))
    lab.submit(run("r", "org", 8, malleable=(8, 16, 8), checkpoint="10m", opportunistic=True))
    assert lab.phase("r") == "Running"
    lab.live(HOUR)
    assert lab["r"].width == 8


def test_e1_a_resize_starts_the_interval_anew() -> None:
    lab = Lab(RICH, nodes("nv-a", 4))
    lab.submit(run("r", "org", 24, malleable=(8, 32, 8), checkpoint="10m"))
    wish(lab, "r", 24)
    lab.live(9 * MINUTE)
    wish(lab, "r", 16)
    assert lab["r"].width == 16
    wish(lab, "r", 32)
    lab.live(19 * MINUTE - 1)
    assert lab["r"].width == 16
    lab.live(19 * MINUTE)
    assert lab["r"].width == 24


def test_e1_a_swap_starts_the_interval_anew() -> None:
    lab = Lab(RICH, nodes("nv-a", 4))
    lab.submit(run("r", "org", 8, spares=1, malleable=(8, 16, 8), checkpoint="10m"))
    lab.live(9 * MINUTE)
    lab.put(node("nv-a-00", failed=True))
    lab.settle()
    assert lab["r"].changed_at - lab["r"].created == 9 * MINUTE
    lab.live(19 * MINUTE - 1)
    assert lab["r"].width == 8
    lab.live(19 * MINUTE)
    assert lab["r"].width == 16


def test_e1_two_runs_that_want_the_same_gpus_grow_in_creation_order() -> None:
    lab = Lab(RICH, nodes("nv-a", 3))
    lab.submit(
        run("younger", "org", 8, malleable=(8, 16, 8), rendezvous=True, at=1),
        run("older", "org", 8, malleable=(8, 16, 8), rendezvous=True, at=0),
    )
    lab.live(HOUR)
    assert (lab["older"].width, lab["younger"].width) == (16, 8)


def test_e1_new_groups_get_their_spares() -> None:
    lab = Lab(RICH, nodes("nv-a", 4))
    lab.submit(run("r", "org", 8, group=8, spares=1, malleable=(8, 16, 8), rendezvous=True))
    lab.live(MINUTE)
    assert {lease.group for lease in lab.leases("r") if lease.role == "Spare"} == {0, 1}


def test_p5_growth_does_not_wait_for_spares_of_the_new_group_nor_give_up_old_ones() -> None:
    lab = Lab(RICH, nodes("nv-a", 3))
    lab.submit(run("r", "org", 8, group=8, spares=1, malleable=(8, 16, 8), rendezvous=True))
    lab.live(HOUR)
    assert (lab["r"].width, lab.spares("r")) == (16, 8)
    assert "SpareMissing" in lab.reasons("r")


# Spares that come late (P5)


def test_p5_a_missing_spare_is_added_when_there_is_room() -> None:
    lab = Lab(RICH, nodes("nv-a", 1), node("nv-a-01", "nv-a", cordoned=True))
    lab.submit(run("r", "org", 8, spares=1))
    assert lab.spares("r") == 0
    lab.put(node("nv-a-01", "nv-a"))
    lab.live(HOUR)
    assert (lab.spares("r"), lab["r"].attempt) == (8, 1)
    assert [lease.role for lease in opened_for(lab, "r", "Grow")] == ["Spare"]


def test_p5_a_missing_spare_is_added_when_there_is_money() -> None:
    lab = Lab(budget("org", 8), nodes("nv-a", 2))
    lab.submit(run("r", "org", 8, spares=1))
    lab.live(HOUR)
    assert lab.spares("r") == 0
    assert "8 spare GPUs are missing" in said(lab, "r", Reason.SPARE_MISSING)
    lab.put(budget("org", 10))
    lab.settle()
    assert lab.spares("r") == 8


def test_p5_a_late_spare_takes_nothing_that_a_waiting_run_needs() -> None:
    lab = Lab(RICH, nodes("nv-a", 3))
    lab.submit(run("blocks", "org", 16, max_duration="1h"))
    lab.submit(run("r", "org", 8, spares=1, at=1))
    lab.submit(run("waits", "org", 16, at=2))
    assert lab.promised_at("waits") == HOUR
    lab.live(HOUR)
    assert (lab.phase("waits"), lab.spares("r")) == ("Running", 0)


def test_p5_a_late_spare_sits_in_its_groups_domain() -> None:
    lab = Lab(RICH, nodes("nv-a", 1), nodes("nv-b", 4))
    lab.submit(run("r", "org", 8))
    lab.submit(run("s", "org", 32, spares=1, at=1))
    assert lab.domains("s") == {0: {"nv-b"}}
    lab.finish("r")
    lab.live(HOUR)
    assert lab.spares("s") == 0  # nv-a is free, and another domain
    lab.put(node("nv-b-04", "nv-b"))
    lab.live(2 * HOUR)
    assert lab.on("s", "Spare") == {"nv-b-04": 8}


# Shrinking when asked (E2)


def test_e2_an_ungrouped_run_gives_up_its_highest_ranks() -> None:
    lab = Lab(RICH, nodes("nv-a", 4))
    lab.submit(run("r", "org", 32, malleable=(8, 32, 8)))
    places = dict(lab["r"].rank_slots)
    wish(lab, "r", 16)
    assert lab["r"].width == 16
    assert dict(lab["r"].rank_slots) == {seat: places[seat] for seat in list(places)[:2]}
    assert ("Shrink", 0) in lab.endings("r")
    assert {lease.reason for lease in lab.leases("r")} <= {"Start", "Continue"}


def test_e2_a_grouped_run_closes_whole_groups_highest_index_first() -> None:
    lab = Lab(RICH, nodes("nv-a", 4))
    lab.submit(run("r", "org", 32, group=8, malleable=(8, 32, 8)))
    wish(lab, "r", 16)
    assert groups(lab, "r") == {0: 8, 1: 8}


def test_e2_groups_that_others_pay_for_go_before_those_of_its_own() -> None:
    lends = {"allow": True, "to": ["*"]}
    lab = Lab(budget("org", 16), budget("lab", envelope(32, lending=lends)), nodes("nv-a", 4))
    lab.submit(run("r", "org", 32, group=8, malleable=(8, 32, 8), sponsors=["lab"]))
    classes = {lease.group: lease.class_ for lease in lab.leases("r")}
    assert sorted(classes.values()) == ["Borrowed", "Borrowed", "Owned", "Owned"]
    lab.put(budget("org", 8))  # the newest of its own leases is paid by the sponsor instead
    lab.settle()
    classes = {lease.group: lease.class_ for lease in lab.leases("r")}
    (own,) = [group for group, class_ in classes.items() if class_ == "Owned"]
    wish(lab, "r", 8)
    assert (groups(lab, "r"), lab.paid("r")) == ({own: 8}, {"Owned org/main": 8})


def test_e2_spares_of_closed_groups_go_with_them() -> None:
    lab = Lab(RICH, nodes("nv-a", 4))
    lab.submit(run("r", "org", 16, group=8, spares=1, malleable=(8, 16, 8)))
    assert lab.spares("r") == 16
    wish(lab, "r", 8)
    assert (lab["r"].width, lab.spares("r")) == (8, 8)


@pytest.mark.parametrize("group", [None, 8])
def test_e2_it_never_shrinks_below_min_whatever_is_asked_at_once(group: int | None) -> None:
    lab = Lab(RICH, nodes("nv-a", 4))
    lab.submit(run("r", "org", 32, group=group, malleable=(16, 32, 8)))
    wish(lab, "r", 16)
    assert (lab["r"].width, lab.phase("r")) == (16, "Running")


def test_e2_a_narrower_wish_of_a_run_that_waits_is_how_it_starts() -> None:
    lab = Lab(RICH, nodes("nv-a", 1))
    lab.submit(run("holds", "org", 8, max_duration="1h"))
    lab.submit(run("r", "org", 32, malleable=(8, 32, 8), at=1))
    lab.put(nodes("nv-b", 4))
    wish(lab, "r", 16)
    assert lab["r"].width == 16


def test_e2_it_grows_again_after_a_shrink_when_asked_to() -> None:
    lab = Lab(RICH, nodes("nv-a", 2))
    lab.submit(run("r", "org", 16, malleable=(8, 16, 8), checkpoint="10m"))
    wish(lab, "r", 8)
    lab.live(HOUR)
    assert lab["r"].width == 8
    wish(lab, "r", 16)
    assert lab["r"].width == 16


# What a resize does to attempts


def test_e3_restart_begins_an_attempt_with_every_resize() -> None:
    lab = Lab(RICH, nodes("nv-a", 2))
    lab.submit(run("r", "org", 8, malleable=(8, 16, 8), checkpoint="10m"))
    lab.live(10 * MINUTE)
    assert (lab["r"].width, lab["r"].attempt) == (16, 2)
    lab.live(11 * MINUTE)
    wish(lab, "r", 8)
    assert (lab["r"].attempt, lab["r"].restarts, lab["r"].resume_at) == (3, 0, lab.world.now)


def test_e3_rendezvous_keeps_the_attempt() -> None:
    lab = Lab(RICH, nodes("nv-a", 2))
    lab.submit(run("r", "org", 8, malleable=(8, 16, 8), rendezvous=True))
    lab.live(MINUTE)
    assert (lab["r"].width, lab["r"].attempt) == (16, 1)
    wish(lab, "r", 8)
    assert lab["r"].attempt == 1


def test_e1_ranks_that_are_there_keep_their_seats_when_others_come() -> None:
    lab = Lab(RICH, nodes("nv-a", 4))
    lab.put(foreign_pod("nv-a-01", 8))
    lab.submit(run("r", "org", 16, malleable=(8, 24, 8), rendezvous=True))
    before = dict(lab["r"].rank_slots)
    lab.world.drop_pod("other-nv-a-01")  # a node with a lower name comes free
    lab.live(MINUTE)
    assert lab["r"].width == 24
    after = dict(lab["r"].rank_slots)
    assert {seat: after[seat] for seat in before} == before
