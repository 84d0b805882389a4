"""Sums over time that are read by bisection equal sums that are added up one by one."""

from random import Random

from jobtree.api.kinds.budget import Envelope
from jobtree.core.accounts.budget_timeline import HeadroomTimeline, ReservedCharges
from jobtree.core.accounts.envelope_accounts import FOREVER, EnvelopeState, ProvisionalCharge
from jobtree.core.model.promise import NO_DISRUPTION, Promise
from tests.unit.core.build import H100

KEY = ("team", "main")


def promise(number: int, at: int | None, end: int | None, gpus: int) -> Promise:
    return Promise(
        run_key=("ns", f"r{number}"),
        flavor=H100,
        number=1,
        made_at=number,
        creation_order=(0, "ns", f"r{number}"),
        commitment="",
        at=at,
        disruption=NO_DISRUPTION,
        width=gpus,
        pod_size=1,
        domain_gpus=(),
        funding=((KEY, gpus), (("other", "main"), 5)),
        end=end,
        immune_until=0,
    )


def some_promise(dice: Random, number: int) -> Promise:
    at = dice.choice([None, *range(1, 20)])
    end = None if at is None else dice.choice([None, at + dice.randrange(1, 9)])
    return promise(number, at, end, dice.randrange(1, 9))


def added_up(promises: list[Promise], ends: list[tuple[int, int]], at: int) -> int:
    taken = sum(
        one.width * 1000
        for one in promises
        if one.at is not None and one.at <= at < (FOREVER if one.end is None else one.end)
    )
    return sum(charge for end, charge in ends if end <= at) - taken


def given_back(back: list[tuple[int, int]], at: int) -> int:
    return sum(charge for end, charge in back if end > at)


def some_yields(dice: Random) -> dict[str, ProvisionalCharge]:
    ends = (None, *range(25))
    return {
        f"l{number}": ProvisionalCharge(dice.randrange(9), dice.choice(ends), dice.randrange(1, 5) * 1000)
        for number in range(dice.randrange(4))
    }


def an_envelope(promises: list[Promise], yields: dict[str, ProvisionalCharge]) -> EnvelopeState:
    envelope = EnvelopeState("team", "team", Envelope(name="main", flavor=H100, concurrency=99), 1)
    for one in promises:
        envelope.add_promise(one, "team")
    envelope.provisional_charges = yields
    return envelope


def test_future_free_charge_is_that_of_a_sum_over_all_leases_and_promises() -> None:
    for seed in range(50):
        dice = Random(seed)
        promises = [some_promise(dice, number) for number in range(dice.randrange(9))]
        yields = some_yields(dice)
        envelope, other = an_envelope(promises, yields), an_envelope(promises, yields)
        ends = [(dice.randrange(25), dice.randrange(1, 5) * 1000) for _ in range(dice.randrange(9))]
        for end, charge in ends:
            envelope.record_known_end(end, charge, 1)
        for rank in (None, *(one.precedence for one in promises)):
            ahead = [one for one in promises if rank is None or one.precedence <= rank]
            yielded = [
                (FOREVER if one.known_end is None else one.known_end, one.charge)
                for one in yields.values()
                if rank is not None and one.since >= rank[0]
            ]
            claims = ReservedCharges(envelope, rank)
            back = [(dice.randrange(25), dice.randrange(1, 5) * 1000) for _ in range(dice.randrange(3))]
            levels = HeadroomTimeline([claims], back)
            together = HeadroomTimeline([claims, ReservedCharges(other, rank)], ())
            later = sorted({one.at for one in ahead if one.at is not None})
            for at in range(25):
                assert claims.change(at) == added_up(ahead, ends, at) + given_back(yielded, at), (seed, at)
                lows = [
                    added_up(ahead, ends, start) + given_back([*back, *yielded], start)
                    for start in later
                    if at <= start < 15
                ]
                assert levels.lowest(at, 15) == min(lows, default=FOREVER), (seed, at)
                twice = [
                    added_up(ahead, ends, start)
                    + added_up(ahead, [], start)
                    + given_back([*yielded, *yielded], start)
                    for start in later
                    if start >= at
                ]
                assert together.lowest(at, FOREVER) == min(twice, default=FOREVER), (seed, at)
                assert claims.starts_between(at, 15) == [start for start in later if at < start < 15]
