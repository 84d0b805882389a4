"""The beacon: its round is fixed with the promise, its value is mixed into the draw (X7)."""

import msgspec
import pytest

from jobtree.api.kinds.policy import Beacon, Policy
from jobtree.api.schema.quantities import HOUR, MINUTE, SECOND
from jobtree.core.lottery.resolution_record import BeaconInput, verify
from jobtree.core.reporting import reservation_codec
from jobtree.messages.record_signature import sign
from tests.unit.core.build import T0, budget, node, nodes, run
from tests.unit.core.lab import Lab

DRAND = Beacon("drand", MINUTE, T0)


def lottery_ahead() -> Lab:
    """``b`` is promised, in two hours, what ``a1`` and ``a2`` hold half of each."""
    lab = Lab(nodes("nv-a", 2), budget("org:a", 16), budget("org:b", 8), policy=Policy(beacon=DRAND))
    lab.submit(run("a1", "org:a", 8), run("a2", "org:a", 8), run("b", "org:b", 8, at=1))
    assert lab.promised_at("b") == 2 * HOUR
    return lab


@pytest.mark.parametrize(("at", "number"), [(-1, 0), (0, 1), (MINUTE - 1, 1), (MINUTE, 2), (2 * HOUR, 121)])
def test_rounds_are_counted_from_the_genesis(at: int, number: int) -> None:
    assert DRAND.round_at(T0 + at) == number


@pytest.mark.parametrize(
    ("at", "number"), [(0, 0), (5 * SECOND - 1, 0), (5 * SECOND, 1), (HOUR, 60), (HOUR + 5 * SECOND, 61)]
)
def test_the_round_of_a_start_is_published_before_it(at: int, number: int) -> None:
    """The one that is published at the very instant of a draw would always be missing from it."""
    assert DRAND.round_known_by(T0 + at) == number


def test_the_round_is_fixed_with_the_promise_and_published_with_it() -> None:
    lab = lottery_ahead()
    promise = lab.promise("b")
    assert promise.beacon == ("drand", 120)
    written = reservation_codec.reservation_object(lab.world, lab["b"], promise)
    assert written.status.terms is not None
    assert msgspec.to_builtins(written.status.terms.beacon) == {"name": "drand", "round": 120}
    assert reservation_codec.promise_from_reservation(written, lab["b"]) == promise


def test_the_value_of_a_round_is_part_of_the_seed_and_of_the_record() -> None:
    losers: set[str] = set()
    for value in ("00", "01", "02", "03", "04", "05"):
        lab = lottery_ahead()
        lab.world.beacon_values["drand", 120] = value
        lab.live(2 * HOUR)
        (record,) = lab.lotteries
        assert record.beacon == BeaconInput("drand", 120, value)
        assert verify(sign(record, lab.world.lottery_key)) == []
        losers.update(record.decision.losers)
    assert losers == {"a1-uid", "a2-uid"}  # the same key, UIDs and case: the beacon alone decides


def test_a_draw_without_the_value_is_held_and_recorded() -> None:
    lab = lottery_ahead()
    lab.world.beacon_values["drand", 121] = "00"
    lab.live(2 * HOUR)
    assert lab["b"].phase == "Running"
    (record,) = lab.lotteries
    assert record.beacon == BeaconInput("drand", 120, "")
    assert verify(sign(record, lab.world.lottery_key)) == []


def test_the_round_moves_when_the_start_moves() -> None:
    """a1 could be drawn after two hours; its node is lost, and a2 started an hour later."""
    lab = Lab(nodes("nv-a", 1), budget("org:a", 16), budget("org:b", 8), policy=Policy(beacon=DRAND))
    lab.submit(run("a1", "org:a", 8))
    lab.advance(HOUR)
    lab.put(nodes("nv-a", 2)[1:])
    lab.submit(run("a2", "org:a", 8, at=HOUR), run("b", "org:b", 8, at=HOUR + 1))
    assert (lab.promised_at("b"), lab.promise("b").beacon) == (2 * HOUR, ("drand", 120))
    lab.put(node("nv-a-00", "nv-a", failed=True))
    lab.settle()
    assert (lab.promised_at("b"), lab.promise("b").beacon) == (3 * HOUR, ("drand", 180))


def test_two_draws_that_use_one_round_have_seeds_of_their_own() -> None:
    islands = [nodes("nv-a", 1), nodes("nv-b", 1)]
    lab = Lab(*islands, budget("org:a", 16), budget("org:b", 16), policy=Policy(beacon=DRAND))
    lab.submit(run("a1", "org:a", 8), run("a2", "org:a", 8))
    lab.submit(run("b1", "org:b", 8, at=1), run("b2", "org:b", 8, at=2))
    assert lab.promised_at("b1") == lab.promised_at("b2") == 2 * HOUR
    lab.world.beacon_values["drand", 120] = "00"
    lab.live(2 * HOUR)
    first, second = lab.lotteries
    assert first.beacon == second.beacon == BeaconInput("drand", 120, "00")
    assert first.seed != second.seed
    for record in (first, second):
        assert verify(sign(record, lab.world.lottery_key)) == []
        assert len(record.decision.losers) == 1
