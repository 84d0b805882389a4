"""The commit point: all that a lease says can be read back from its Run, and ranks stay where they are."""

import msgspec

from jobtree.api.quantities import HOUR
from jobtree.core.allocation import assign_ranks, format_rank, leases_of, parse_rank, ranks_of
from jobtree.core.lease import Lease
from jobtree.core.status import Warned, run_status
from tests.unit.core.build import budget, envelope, nodes, run
from tests.unit.core.lab import Lab

PODS = [("a", 0xF), ("a", 0xF0), ("b", 0xF), ("b", 0xF0)]


def lease(name: str, *slots: tuple[str, int], group: int = 0, role: str = "Active") -> Lease:
    return Lease(
        name=name,
        run=("ns", "r"),
        uid="uid",
        owner="org",
        payer=("org", "main"),
        payer_owner="org",
        class_="Owned",
        role=role,  # type: ignore[arg-type]
        group=group,
        flavor="H100-80GB",
        slots=slots,
        gpus=0,
        start=0,
        rate=1000,
        reason="Start",
    )


def test_every_lease_is_read_back_from_the_status_as_it_was() -> None:
    lab = Lab(*nodes("nv-a", 4), *nodes("nv-b", 4), budget("org", envelope(64)))
    lab.submit(run("r", "org", 32, group=16, spares=1))
    lab.advance(HOUR)
    state = lab["r"]
    status = run_status(lab.world, state, Warned(0))
    again = leases_of(msgspec.structs.replace(state.run, status=status))
    assert sorted(again, key=lambda one: one.name) == sorted(lab.leases("r"), key=lambda one: one.name)
    assert ranks_of(status.allocation) == state.ranks
    assert len(state.ranks) == 4


def test_ranks_follow_the_order_of_groups_and_leave_out_spares() -> None:
    leases = [
        lease("r-2", ("b", 0xFF), group=1),
        lease("r-1", ("a", 0xFF)),
        lease("r-3", ("c", 0xFF), role="Spare"),
    ]
    assert list(assign_ranks((), leases, 4)) == PODS


def test_a_rank_whose_slots_are_lost_moves_and_no_other() -> None:
    leases = [lease("r-2", ("a", 0xF0), ("b", 0xFF)), lease("r-3", ("c", 0xF))]
    assert assign_ranks(PODS, leases, 4) == (("c", 0xF), *PODS[1:])


def test_of_a_narrower_run_the_highest_ranks_move_down() -> None:
    assert assign_ranks(PODS, [lease("r-2", ("a", 0xF0), ("b", 0xFF))], 4) == (PODS[3], *PODS[1:3])


def test_new_ranks_come_after_the_old_ones() -> None:
    leases = [lease("r-1", ("a", 0xFF), ("b", 0xFF)), lease("r-2", ("0", 0xF), group=0)]
    assert assign_ranks(PODS, leases, 4) == (*PODS, ("0", 0xF))


def test_the_slots_of_a_rank_are_written_as_ranges() -> None:
    assert format_rank(("gpu-a-01", 0b1011)) == "gpu-a-01#0-1,3"
    assert parse_rank("gpu-a-01#0-1,3") == ("gpu-a-01", 0b1011)
