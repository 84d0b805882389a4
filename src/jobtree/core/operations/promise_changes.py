"""Reservations: a promise is made, kept, moved earlier, or slips with a reason (R1, R5, R9)."""

from collections.abc import Sequence, Set as AbstractSet
from operator import attrgetter

import msgspec

from jobtree.core.availability.availability_profile import keeps_promise
from jobtree.core.availability.payer_placement import (
    can_pay_slice,
    pay_throughout,
    payer_placements,
    payers_in_slice,
)
from jobtree.core.availability.start_search import StartOption, StartSearch
from jobtree.core.funding.current_funding_lower_bound import is_certainly_funded
from jobtree.core.funding.future_funding import FundingSplit, fundable_ever, funding_at
from jobtree.core.lottery.draw import commitment_of, nonce_for
from jobtree.core.model.gpu_lease import EnvelopeKey
from jobtree.core.model.promise import LOTTERY, NO_DISRUPTION, Precedence, Promise, PromiseSlip, add_slip
from jobtree.core.model.reasons import Cause, Reason
from jobtree.core.operations.trial import Trial
from jobtree.core.runs.notice import immunity_ms
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.world import World


def make_promise(trial: Trial, run: RunState, size: int) -> Promise:
    """Give the Run a Reservation, behind all promises already made."""
    world = trial.world
    blank = empty_promise(world, run, size, run, run.reservations_made + 1)
    promise = with_option(world, run, blank, search_start(world, run, size, None))
    trial.begin_action("Reserve", run, world.now, Cause(Reason.RESERVED, promise.name), promise=promise)
    return promise


def empty_promise(world: World, run: RunState, size: int, holder: RunState, number: int) -> Promise:
    """A promise that says nothing yet. Its holder is the Run that the Reservation is named after."""
    nonce = nonce_for(world.lottery_key, holder.uid, number)
    return Promise(
        run_key=run.key,
        flavor=run.flavor,
        number=number,
        made_at=world.now,
        creation_order=run.creation_order,
        commitment=commitment_of(nonce),
        at=None,
        disruption=NO_DISRUPTION,
        width=run.shape.min if run.shape else 0,
        pod_size=size,
        domain_gpus=(),
        funding=(),
        end=None,
        immune_until=0,
        sequence=next_sequence(world, run),
        named_after=holder.key[1],
    )


def next_sequence(world: World, run: RunState) -> int:
    """The turn that ranks a promise made now behind all that were made before (R5)."""
    if not world.promise_order or world.promise_order[-1][0] < world.now:
        return 0
    _, turn, order = world.promise_order[-1]
    return turn if order < run.creation_order else turn + 1


def search_start(
    world: World, run: RunState, size: int, precedence: Precedence | None, not_before: int = 0
) -> StartOption | None:
    """The best start there is, where the Run's payers pay (C3)."""
    if precedence is None and not fundable_ever(world, run, size):
        return None
    best = StartSearch(world, run, size, precedence, not_before).find()
    if best is None or pay_throughout(world, run.flavor, best.shares, best.funding):
        return best
    looks = (
        StartSearch(world, run, size, precedence, not_before, one).find()
        for one in payer_placements(world, run)
    )
    found = [one for one in looks if one is not None]
    if found or not can_pay_slice(world, run.flavor, best.shares, best.funding):
        return preferred_option(world, found)
    return best


def preferred_option(world: World, found: Sequence[StartOption]) -> StartOption | None:
    """The earliest, but one without a lottery if it comes within ``maxNotice`` of that (R1)."""
    drawn = min((one for one in found if one.disruption == LOTTERY), key=attrgetter("at"), default=None)
    other = min((one for one in found if one.disruption != LOTTERY), key=attrgetter("at"), default=None)
    if drawn is None or other is None:
        return drawn or other
    return other if other.at <= drawn.at + world.policy.max_notice_ms else drawn


def with_option(world: World, run: RunState, promise: Promise, found: StartOption | None) -> Promise:
    """The promise with what was foreseen; without a date it keeps the money that comes back (C12)."""
    shape = run.shape
    assert shape is not None
    if found is None:
        return msgspec.structs.replace(
            promise,
            at=None,
            disruption=NO_DISRUPTION,
            width=shape.min,
            domain_gpus=(),
            funding=payable_ever(world, run, promise.pod_size),
            end=None,
            immune_until=0,
            window_aligned=False,
            beacon=None,
        )
    source = world.policy.beacon
    return msgspec.structs.replace(
        promise,
        at=found.at,
        disruption=found.disruption,
        width=found.width,
        domain_gpus=found.shares,
        funding=found.funding,
        end=None if shape.max_duration is None else found.at + shape.max_duration,
        immune_until=found.at + immunity_ms(world.policy, run.lotteries_lost),
        window_aligned=found.window_aligned,
        beacon=None if source is None else (source.name, source.round_heard_by(found.at)),
    )


def payable_ever(world: World, run: RunState, size: int) -> FundingSplit:
    """Who would pay for the least width with all their money, where the empty fleet could hold it."""
    assert run.shape is not None
    for one in payer_placements(world, run):
        split, lacking = funding_at(
            world, run, run.shape.min, size, world.now, None, empty=True, only=one.payers
        )
        if not lacking and placeable_ever(StartSearch(world, run, size, None, 0, one)):
            return split
    return ()


def placeable_ever(sight: StartSearch) -> bool:
    """Whether the fleet, empty, could hold the Run at its least width."""
    shape, pods = sight.shape, sight.shape.min // sight.size
    if not shape.spread:
        return any(one.capacity >= pods for one in sight.profiles)
    chunk = max(1, shape.group // sight.size) if shape.group else 1
    return sum(one.capacity // chunk for one in sight.profiles) * chunk >= pods


def search_start_again(trial: Trial, run: RunState, reason: Reason, not_before: int = 0) -> None:
    """Look again."""
    world, before = trial.world, run.promise
    assert before is not None
    if before.at is not None:
        trial.begin_action("Withdraw", run, world.now, Cause(reason, before.name))
    precedence = (
        None if before.at is None else before.precedence
    )  # without a date it held nobody up: nor does it now
    found = search_start(world, run, before.pod_size, precedence, not_before)
    replace_promise(trial, run, before, with_option(world, run, before, found), reason)


def replace_promise(trial: Trial, run: RunState, before: Promise, after: Promise, reason: Reason) -> Promise:
    """One promise in place of another. Earlier is free; later, or no longer, is a slip and says why.

    What was promised in this very pass was told to nobody: it does not slip.
    """
    slips = before.slips
    later = before.at is not None and (after.at is None or after.at > before.at)
    if before.at is not None and later and not trial.has_promised(run, before):
        slips = add_slip(slips, PromiseSlip(before.at, after.at, str(reason)))
    after = msgspec.structs.replace(after, slips=slips)
    trial.begin_action("Move", run, trial.world.now, Cause(reason, before.name), promise=after)
    return after


def find_date(trial: Trial, run: RunState, size: int) -> bool:
    """Something new is known: perhaps a promise without a date gets one, behind all that have one (R9).

    A date that does not stand once it is promised is none: else it would be found and lost again for ever.
    Returns whether there is any.
    """
    world, before, mark = trial.world, run.promise, trial.checkpoint()
    assert before is not None
    blank = msgspec.structs.replace(before, pod_size=size)
    after = with_option(world, run, blank, search_start(world, run, size, None, search_from(world, before)))
    if after.at is not None:
        (after,) = ordered_behind_all(world, [run], [after])
    if is_improvement(before, after):
        trial.begin_action("Move", run, world.now, Cause(Reason.RESERVED, before.name), promise=after)
        if broken_reason(world, run) is not None:
            trial.rollback(mark)
    return after.at is not None


def ordered_behind_all(world: World, party: Sequence[RunState], promises: Sequence[Promise]) -> list[Promise]:
    """As made now, in their order: those that had their date before hold against them (R5)."""
    turn = max(next_sequence(world, one) for one in party)
    return [
        msgspec.structs.replace(promise, made_at=world.now, sequence=turn + place)
        for place, promise in enumerate(promises)
    ]


def search_from(world: World, promise: Promise) -> int:
    """From when a date is looked for: one that could not be kept is put off, as it was then."""
    return world.now + world.policy.max_notice_ms if promise.has_failed_by(world.now) else 0


def is_improvement(before: Promise, after: Promise) -> bool:
    """Whether a promise without a date has one now, or money that comes back is kept for it now."""
    return after.at is not None or (bool(after.funding) and not before.funding)


def replace_payers(trial: Trial, run: RunState) -> bool:
    """Count on other payers, or on others of them for more, where one cannot pay its part any longer."""
    world, promise = trial.world, run.promise
    if promise is None or promise.at is None or payers_can_pay(world, run, promise):
        return False
    split, lacking = funding_then(world, run, promise, frozenset(key for key, _ in promise.funding))
    if lacking:
        split, _ = funding_then(world, run, promise, payers_in_slice(world, run, promise))
    if split == promise.funding:
        return False
    after = msgspec.structs.replace(promise, funding=split)
    trial.begin_action("Move", run, world.now, Cause(Reason.FUNDING_LOST, promise.name), promise=after)
    return True


def payers_can_pay(world: World, run: RunState, promise: Promise) -> bool:
    """Whether each payer that a promise counts on can pay as much as it does, and all of them together."""
    parts = [(frozenset((key,)), gpus) for key, gpus in promise.funding]
    if len(parts) > 1:
        parts.append((frozenset(key for key, _ in promise.funding), promise.width))
    at = max(promise.at or 0, world.now)
    terms = (promise.pod_size, at, promise.precedence)
    return not any(funding_at(world, run, gpus, *terms, only=payers)[1] for payers, gpus in parts)


def funding_then(
    world: World, run: RunState, promise: Promise, payers: AbstractSet[EnvelopeKey] | None
) -> tuple[FundingSplit, int]:
    """Who of these would pay when the promise is due, and what they lack."""
    at = max(promise.at or 0, world.now)
    return funding_at(world, run, promise.width, promise.pod_size, at, promise.precedence, only=payers)


def broken_reason(world: World, run: RunState) -> Reason | None:
    """Why a promise can no longer be kept as it stands; None where it can (R2, R5)."""
    return broken_reason_and_certainty(world, run)[0]


def broken_reason_and_certainty(world: World, run: RunState) -> tuple[Reason | None, bool]:
    """The same, and whether it is certain that each of its payers has its part."""
    promise = run.promise
    if promise is None or promise.at is None or run.shape is None:
        return None, True
    at, crowded = max(promise.at, world.now), None
    domains = world.fleet.flavor(promise.flavor).domains
    for name, _ in promise.domain_gpus:
        if name not in domains:
            return Reason.NODES_LOST, False
        if not keeps_promise(world, domains[name], promise):
            if name in world.domains_that_shrank:
                return Reason.NODES_LOST, False
            crowded = Reason.CROWDED_OUT
    if is_certainly_funded(world, run, promise):
        return crowded, True
    terms, payers = (
        (promise.width, promise.pod_size, at, promise.precedence),
        payers_in_slice(world, run, promise),
    )
    _, lacking = funding_at(world, run, *terms, only=payers)
    return Reason.FUNDING_LOST if lacking else crowded, False


def exhausts_own_promise(world: World, run: RunState) -> bool:
    """Whether a Run on sufferance leaves too little of the money that its own promise counts on."""
    return run.interim_until is not None and broken_reason(world, run) is Reason.FUNDING_LOST
