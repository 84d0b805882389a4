"""A rank keeps its group, its position and its hostname when leases close and open."""

import msgspec

from jobtree.api.schema.quantities import HOUR, MINUTE
from jobtree.core.runs.rank_assignment import decode_ranks, encode_ranks, rank_of
from tests.unit.core.build import T0, budget, envelope, node, nodes, run
from tests.unit.core.lab import Lab

RICH = budget("org", 10_000)


def test_ranks_count_from_zero_in_the_order_of_groups_and_positions() -> None:
    lab = Lab(RICH, nodes("nv-a", 4))
    lab.submit(run("r", "org", 32, group=16))
    assert list(lab["r"].rank_slots) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [rank_of(lab["r"], seat) for seat in lab["r"].rank_slots] == [0, 1, 2, 3]


def test_ranks_have_no_gap_when_a_group_leaves() -> None:
    lab = Lab(RICH, nodes("nv-a", 4))
    lab.submit(run("r", "org", 32, group=8, malleable=(8, 32, 8)))
    (gone,) = [on for on, _ in [lab["r"].rank_slots[1, 0]]]
    lab.put(node(gone, failed=True))
    lab.settle()
    assert list(lab["r"].rank_slots) == [(0, 0), (2, 0), (3, 0)]
    assert rank_of(lab["r"], (3, 0)) == 2


def test_new_group_takes_the_lowest_free_number() -> None:
    lab = Lab(RICH, nodes("nv-a", 4))
    lab.submit(run("r", "org", 32, group=8, malleable=(8, 32, 8), rendezvous=True))
    gone = lab["r"].rank_slots[1, 0][0]
    lab.put(node(gone, failed=True))
    lab.settle()
    lab.put(node(gone))
    lab.live(HOUR)
    assert list(lab["r"].rank_slots) == [(0, 0), (1, 0), (2, 0), (3, 0)]


def test_group_ranks_stay_when_the_payer_changes() -> None:
    day = envelope(16, "day", end=HOUR)
    lab = Lab(budget("org", day, envelope(16, "night")), nodes("nv-a", 4))
    lab.submit(run("r", "org", 16))
    before = dict(lab["r"].rank_slots)
    lab.live(2 * HOUR)
    assert lab.paid("r") == {"Owned org/night": 16}
    assert dict(lab["r"].rank_slots) == before


def test_group_ranks_of_several_payers_stay_when_one_rank_is_swapped() -> None:
    own = [envelope(8, f"e{number}") for number in range(3)]
    lab = Lab(budget("org", *own, envelope(8, "spare")), nodes("nv-a", 4))
    lab.submit(run("r", "org", 24, spares=1))
    before = dict(lab["r"].rank_slots)
    lab.live(MINUTE)
    lost = before[0, 1][0]
    lab.put(node(lost, failed=True))
    lab.settle()
    after = dict(lab["r"].rank_slots)
    assert list(after) == list(before)
    assert {seat for seat in before if before[seat] != after[seat]} == {(0, 1)}


def test_two_pods_on_one_node_have_two_group_ranks() -> None:
    lab = Lab(RICH, nodes("nv-a", 1))
    lab.submit(run("r", "org", 8, per_pod=4))
    assert lab["r"].rank_slots == {(0, 0): ("nv-a-00", 0x0F), (0, 1): ("nv-a-00", 0xF0)}


def test_spares_have_no_group_rank() -> None:
    lab = Lab(RICH, nodes("nv-a", 2))
    lab.submit(run("r", "org", 8, spares=1))
    assert list(lab["r"].rank_slots) == [(0, 0)]


def test_requeued_run_has_no_group_ranks() -> None:
    lab = Lab(RICH, nodes("nv-a", 1))
    lab.submit(run("r", "org", 8))
    lab.put(node("nv-a-00", failed=True))
    lab.settle()
    assert (lab.phase("r"), lab["r"].rank_slots) == ("Pending", {})


def test_group_ranks_are_read_back_as_written() -> None:
    lab = Lab(RICH, nodes("nv-a", 2))
    lab.submit(run("r", "org", 16, per_pod=4))
    written = encode_ranks(lab["r"].rank_slots)
    assert written[1] == "0/1 nv-a-00#4-7"
    assert decode_ranks(written) == lab["r"].rank_slots


def test_separate_slots_on_one_node_are_read_back_as_one_pod() -> None:
    seats = {(0, 0): ("a", 0b1001), (1, 0): ("b", 0b0110)}
    assert decode_ranks(encode_ranks(seats)) == seats


def test_invalid_entries_of_a_status_are_left_out() -> None:
    assert decode_ranks(("nonsense", "0/x a#0", "0/1 ", "0/2 a#0+b#0", "1/0 b#3")) == {(1, 0): ("b", 8)}


def test_edited_status_moves_no_rank_off_its_lease() -> None:
    lab = Lab(RICH, nodes("nv-a", 2))
    lab.submit(run("r", "org", 16))
    state = lab["r"]
    forged = msgspec.structs.replace(state.run_object.status, ranks=("0/0 elsewhere#0-7", "5/5 nv-a-01#0-7"))
    state.update_object(msgspec.structs.replace(state.run_object, status=forged))
    state.assign_ranks(decode_ranks(forged.ranks))
    lab.world.lease_intake.mark_running(state)
    assert state.rank_slots == {(0, 0): ("nv-a-00", 255), (0, 1): ("nv-a-01", 255)}
    assert state.since == T0
