"""Promises that meet: what an earlier one takes is gone for a later one, and the odds say so (R12, X9)."""

import msgspec
import pytest

from jobtree.api.kinds.policy import Policy
from jobtree.api.kinds.run import Risk
from jobtree.api.schema.quantities import HOUR, MINUTE, SECOND
from jobtree.core.model.promise import LOTTERY, STRUCTURAL
from jobtree.core.operations.victims import PromiseCase
from jobtree.core.reporting.object_status import KnownRisks
from tests.unit.core.build import budget, envelope, node, nodes, run
from tests.unit.core.lab import Lab

NO_PEACE = Policy(peace_ms=0)


def odds(lab: Lab, name: str) -> dict[str, int]:
    return {uid.removesuffix("-uid"): chance for uid, chance in lab.forecast(name).odds.items()}


def losers(lab: Lab) -> list[str]:
    return [uid.removesuffix("-uid") for record in lab.lotteries for uid in record.decision.losers]


def taken_spare() -> Lab:
    """``first`` gets a free node and a spare of ``holder`` when its window opens; ``second`` comes next."""
    lab = Lab(nodes("nv-a", 4), budget("org:a", 32), budget("org:b", envelope(32, start=2 * HOUR)))
    lab.put(budget("org:c", 32))
    lab.submit(run("holder", "org:a", 16, spares=1, checkpoint="30m"))
    lab.submit(run("first", "org:b", 16, at=1))
    lab.submit(run("second", "org:c", 16, at=2))
    return lab


def test_who_counts_on_a_spare_that_an_earlier_promise_takes_warns_of_the_lottery_at_once() -> None:
    """It read 0 for two hours, then 0.667 with 30 seconds left (issue 20, 7a)."""
    lab = taken_spare()
    assert (lab.promised_at("first"), lab.promise("first").disruption) == (2 * HOUR, STRUCTURAL)
    assert (lab.promised_at("second"), lab.promise("second").disruption) == (2 * HOUR, LOTTERY)
    assert odds(lab, "first") == {"holder": 0}
    assert odds(lab, "second") == {"holder": 1000}
    assert lab.remedies("second") == [("Lottery", 16, ["holder"])]
    lab.live(2 * HOUR)
    assert (losers(lab), lab["first"].phase, lab["second"].phase) == (["holder"], "Running", "Running")


def two_draws(key: bytes = b"key") -> Lab:
    """Two promises of one instant draw from a Run of 24 GPUs and one of 8: there is no peace."""
    lab = Lab(nodes("nv-a", 4), budget("org:a", 32), budget("org:b", 32), policy=NO_PEACE)
    lab.world.lottery_key = key
    lab.submit(run("wide", "org:a", 24), run("small", "org:a", 8))
    lab.advance(2 * HOUR)
    lab.submit(run("x", "org:b", 8, at=2 * HOUR), run("y", "org:b", 8, at=2 * HOUR + 1))
    assert lab.promised_at("x") == lab.promised_at("y") == 2 * HOUR + 5 * MINUTE
    return lab


def test_of_two_draws_at_one_instant_the_second_is_told_behind_the_first() -> None:
    """If ``wide`` loses the first, there is room for the second, too. Both told 0.75 and 0.25 (7b)."""
    lab = two_draws()
    assert odds(lab, "x") == {"wide": 750, "small": 250}
    assert odds(lab, "y") == {"wide": 250, "small": 1}


def test_two_draws_at_one_instant_come_out_as_told() -> None:
    lost = {"wide": 0, "small": 0}
    for number in range(60):
        lab = two_draws(b"key %d" % number)
        lab.live(2 * HOUR + 5 * MINUTE)
        for name in losers(lab):
            lost[name] += 1
    assert lost["wide"] == 60, "by one of them for certain: 0.75 and 0.25"
    assert abs(lost["small"] / 60 - 0.25) < 0.15


def test_probabilities_of_one_run_add_up_to_that_of_being_stopped_by_any() -> None:
    risks = tuple(
        Risk(reservation=name, at="", kill_probability=odds) for name, odds in (("x", "0.75"), ("y", "0.25"))
    )
    assert KnownRisks(0, risks).kill_probability == "1"
    assert KnownRisks(0, risks[1:]).kill_probability == "0.25"
    assert KnownRisks(0).kill_probability is None


def test_provisional_work_is_stopped_by_the_first_promise_only() -> None:
    lab = Lab(nodes("nv-a", 2), budget("org:a", 64), budget("org:b", envelope(64, start=HOUR)))
    lab.put(budget("org:c", envelope(64, start=2 * HOUR)))
    lab.submit(run("first", "org:b", 16, max_duration="1h"), run("next", "org:c", 16, at=1))
    lab.submit(run("passing", "org:a", 16, at=2, checkpoint="10m"))
    assert lab["passing"].provisional
    assert (odds(lab, "first"), odds(lab, "next")) == ({"passing": 1000}, {})


def test_a_provisional_run_that_gets_what_it_was_promised_is_not_reclaimed_after_that() -> None:
    lab = Lab(nodes("nv-a", 2), budget("org:a", 64), budget("org:b", 64), budget("org:c", 64))
    lab.submit(run("old", "org:a", 8))
    lab.submit(run("big", "org:b", 16, at=1, max_duration="1h"))
    lab.submit(run("passing", "org:a", 8, at=2, checkpoint="10m"))
    assert lab["passing"].provisional
    assert odds(lab, "big") == {"old": 1000, "passing": 1000}


def ring() -> Lab:
    """Three islands, each with a Run and its spare; three Runs want two spares each, from two islands."""
    islands = [nodes(f"nv-{island}", 2) for island in "abc"]
    lab = Lab(*islands, budget("org:a", 64), budget("org:b", envelope(64, start=3 * HOUR)))
    lab.submit(*(run(f"holder-{number}", "org:a", 8, spares=1) for number in range(3)))
    lab.submit(*(run(f"ring-{number}", "org:b", 16, at=number + 1, group=8) for number in range(3)))
    return lab


def test_a_ring_of_promises_over_three_islands_of_spares_is_told_as_it_comes_out() -> None:
    lab = ring()
    told = {name: odds(lab, name) for name in ("ring-0", "ring-1", "ring-2")}
    for holder in ("holder-0", "holder-1", "holder-2"):
        assert sum(by_name.get(holder, 0) for by_name in told.values()) <= 1000
    lab.live(3 * HOUR)
    for record in lab.lotteries:
        for uid in record.decision.losers:
            assert told[record.reservation[:-2]][uid.removesuffix("-uid")] > 0


def crowd(key: int) -> Lab:
    """Four Runs hold a domain; one promise draws from them, and another one two hours later."""
    lab = Lab(nodes("nv-a", 8), budget("org:a", 64), budget("org:b", 64))
    lab.world.lottery_key = bytes([key])
    lab.submit(*(run(f"old-{number}", "org:a", 16, checkpoint="10m") for number in range(4)))
    lab.advance(2 * HOUR)
    lab.submit(run("first", "org:b", 16, at=2 * HOUR), run("second", "org:b", 16, at=2 * HOUR + 1))
    assert [lab.promised_at(name) for name in ("first", "second")] == [
        2 * HOUR + 10 * MINUTE,
        4 * HOUR + 10 * MINUTE,
    ]
    return lab


def test_a_later_draw_is_told_as_it_is_now_and_not_given_that_one_survives() -> None:
    """One Run read 0.402, 1 for certain and 0.107 for three draws in a row (issue 20, 7d)."""
    lab = crowd(0)
    assert odds(lab, "first") == {f"old-{number}": 250 for number in range(4)}
    second = odds(lab, "second")
    assert second.pop("first") == 250
    assert set(second.values()) == {188}, "3/4 of 1/4"


@pytest.mark.parametrize("key", range(4))
def test_when_the_earlier_promise_is_cancelled_a_second_before_nobody_is_drawn_untold(key: int) -> None:
    lab = crowd(key)
    told = odds(lab, "second")
    lab.live(2 * HOUR + 10 * MINUTE - SECOND)
    lab.world.drop_run(("ns", "first"))
    lab.settle()
    assert losers(lab) == []
    at = lab.promised_at("second")
    assert at is not None
    assert set(odds(lab, "second")) <= {*told}
    lab.live(at)
    assert set(losers(lab)) <= {*told}
    assert lab["second"].phase == "Running"


@pytest.mark.parametrize("key", range(4))
def test_when_a_node_is_lost_between_notice_and_draw_only_who_was_told_is_drawn(key: int) -> None:
    lab = crowd(key)
    told = {*odds(lab, "first"), *odds(lab, "second")}
    lab.live(2 * HOUR + 9 * MINUTE)
    (on, _) = lab.on("old-0")
    lab.put(node(on, failed=True))
    lab.settle()
    lab.live(2 * HOUR + 10 * MINUTE)
    assert set(losers(lab)) <= told
    for name in ("first", "second"):
        if lab[name].phase != "Running":
            assert {slip.reason for slip in lab.promise(name).slips} <= {"NodesLost", "Collision"}


@pytest.mark.parametrize(("minutes", "tickets"), [(4, []), (5, ["newcomer-uid"])])
def test_who_came_to_a_domain_too_late_for_its_notice_has_no_ticket_there(
    minutes: int, tickets: list[str]
) -> None:
    """It is told when it comes, and needs five minutes of notice (R12)."""
    lab = Lab(nodes("nv-a", 3), budget("org:a", 8), policy=Policy(min_runtime_ms=0))
    lab.put(budget("org:b", envelope(64, start=3 * HOUR)))
    lab.submit(run("late", "org:b", 16))
    lab.advance(HOUR)
    lab.submit(run("newcomer", "org:a", 8, at=HOUR, max_duration="9h"))
    assert lab["newcomer"].phase == "Running"
    due = lab.world.now + minutes * MINUTE
    soon = msgspec.structs.replace(lab.promise("late"), at=due, disruption=LOTTERY)
    case = PromiseCase(lab.world, lab["late"], soon)
    assert [ticket.run for ticket in case.case.tickets] == tickets
    assert [left_out.uid for left_out in case.left_out] == ([] if tickets else ["newcomer-uid"])
