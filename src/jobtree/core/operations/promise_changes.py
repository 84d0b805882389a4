"""Reservations: a promise is made, kept, moved earlier, or slips with a reason (R1, R5, R9)."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from operator import attrgetter

import msgspec

from jobtree.core.availability.availability_profile import is_kept
from jobtree.core.availability.occupancy import immunity
from jobtree.core.availability.payer_placement import agree, pay_throughout, payers_there, reaches
from jobtree.core.availability.start_search import Foresight, Outlook
from jobtree.core.funding.current_funding_lower_bound import surely_paid
from jobtree.core.funding.future_funding import Split, fundable_ever, funding_at
from jobtree.core.lottery.draw import commitment_of, nonce_for
from jobtree.core.model.gpu_lease import EnvelopeKey
from jobtree.core.model.promise import FREE, LOTTERY, Promise, Rank, Slip, add_slip
from jobtree.core.model.reasons import Reason, Why
from jobtree.core.operations.trial import Trial
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.world import World


def promise_start(trial: Trial, state: RunState, size: int) -> Promise:
    """Give the Run a Reservation, behind all promises already made."""
    world = trial.world
    blank = blank_promise(world, state, size, state, state.reservations + 1)
    promise = filled(world, state, blank, look(world, state, size, None))
    trial.act("Reserve", state, world.now, Why(Reason.RESERVED, promise.name), promise=promise)
    return promise


def blank_promise(world: World, state: RunState, size: int, holder: RunState, number: int) -> Promise:
    """A promise that says nothing yet. Its holder is the Run that the Reservation is named after."""
    nonce = nonce_for(world.lottery_key, holder.uid, number)
    return Promise(
        run=state.key,
        flavor=state.flavor,
        number=number,
        made=world.now,
        order=state.order,
        commitment=commitment_of(nonce),
        at=None,
        level=FREE,
        width=state.shape.min if state.shape else 0,
        pod_size=size,
        shares=(),
        funding=(),
        end=None,
        firm_until=0,
        turn=turn_behind(world, state),
        holder=holder.key[1],
    )


def turn_behind(world: World, state: RunState) -> int:
    """The turn that ranks a promise made now behind all that were made before (R5)."""
    if not world.ranks or world.ranks[-1][0] < world.now:
        return 0
    _, turn, order = world.ranks[-1]
    return turn if order < state.order else turn + 1


def look(world: World, state: RunState, size: int, rank: Rank | None, not_before: int = 0) -> Outlook | None:
    """The best start there is, where the Run's payers pay (C3)."""
    if rank is None and not fundable_ever(world, state, size):
        return None
    best = Foresight(world, state, size, rank, not_before).look()
    if best is None or pay_throughout(world, state.flavor, best.shares, best.funding):
        return best
    looks = (Foresight(world, state, size, rank, not_before, one).look() for one in reaches(world, state))
    found = [one for one in looks if one is not None]
    if found or not agree(world, state.flavor, best.shares, best.funding):
        return best_of(world, found)
    return best


def best_of(world: World, found: Sequence[Outlook]) -> Outlook | None:
    """The earliest, but one without a lottery if it comes within ``maxNotice`` of that (R1)."""
    drawn = min((one for one in found if one.level == LOTTERY), key=attrgetter("at"), default=None)
    other = min((one for one in found if one.level != LOTTERY), key=attrgetter("at"), default=None)
    if drawn is None or other is None:
        return drawn or other
    return other if other.at <= drawn.at + world.policy.max_notice_ms else drawn


def filled(world: World, state: RunState, promise: Promise, found: Outlook | None) -> Promise:
    """The promise with what was foreseen; without a date it keeps the money that comes back (C12)."""
    shape = state.shape
    assert shape is not None
    if found is None:
        return msgspec.structs.replace(
            promise,
            at=None,
            level=FREE,
            width=shape.min,
            shares=(),
            funding=payable_ever(world, state, promise.pod_size),
            end=None,
            firm_until=0,
            window_aligned=False,
            beacon=None,
        )
    source = world.policy.beacon
    return msgspec.structs.replace(
        promise,
        at=found.at,
        level=found.level,
        width=found.width,
        shares=found.shares,
        funding=found.funding,
        end=None if shape.max_duration is None else found.at + shape.max_duration,
        firm_until=found.at + immunity(world, state),
        window_aligned=found.window_aligned,
        beacon=None if source is None else (source.name, source.round_heard_by(found.at)),
    )


def payable_ever(world: World, state: RunState, size: int) -> Split:
    """Who would pay for the least width with all their money, where the empty fleet could hold it."""
    assert state.shape is not None
    for one in reaches(world, state):
        split, lacking = funding_at(
            world, state, state.shape.min, size, world.now, None, empty=True, only=one.payers
        )
        if not lacking and placeable_ever(Foresight(world, state, size, None, 0, one)):
            return split
    return ()


def placeable_ever(sight: Foresight) -> bool:
    """Whether the fleet, empty, could hold the Run at its least width."""
    shape, pods = sight.shape, sight.shape.min // sight.size
    if not shape.spread:
        return any(one.capacity >= pods for one in sight.horizons)
    chunk = max(1, shape.group // sight.size) if shape.group else 1
    return sum(one.capacity // chunk for one in sight.horizons) * chunk >= pods


def renew(trial: Trial, state: RunState, reason: Reason, not_before: int = 0) -> None:
    """Look again."""
    world, before = trial.world, state.promise
    assert before is not None
    if before.at is not None:
        trial.act("Withdraw", state, world.now, Why(reason, before.name))
    rank = None if before.at is None else before.rank  # without a date it held nobody up: nor does it now
    found = look(world, state, before.pod_size, rank, not_before)
    move(trial, state, before, filled(world, state, before, found), reason)


def move(trial: Trial, state: RunState, before: Promise, after: Promise, reason: Reason) -> Promise:
    """One promise in place of another. Earlier is free; later, or no longer, is a slip and says why.

    What was promised in this very pass was told to nobody: it does not slip.
    """
    slips = before.slips
    later = before.at is not None and (after.at is None or after.at > before.at)
    if before.at is not None and later and not trial.has_promised(state, before):
        slips = add_slip(slips, Slip(before.at, after.at, str(reason)))
    after = msgspec.structs.replace(after, slips=slips)
    trial.act("Move", state, trial.world.now, Why(reason, before.name), promise=after)
    return after


def find_date(trial: Trial, state: RunState, size: int) -> bool:
    """Something new is known: perhaps a promise without a date gets one, behind all that have one (R9).

    A date that does not stand once it is promised is none: else it would be found and lost again for ever.
    Returns whether there is any.
    """
    world, before, mark = trial.world, state.promise, trial.mark()
    assert before is not None
    blank = msgspec.structs.replace(before, pod_size=size)
    after = filled(world, state, blank, look(world, state, size, None, hoped_from(world, before)))
    if after.at is not None:
        (after,) = behind_all(world, [state], [after])
    if is_news(before, after):
        trial.act("Move", state, world.now, Why(Reason.RESERVED, before.name), promise=after)
        if broken(world, state) is not None:
            trial.rollback(mark)
    return after.at is not None


def behind_all(world: World, party: Sequence[RunState], promises: Sequence[Promise]) -> list[Promise]:
    """As made now, in their order: those that had their date before hold against them (R5)."""
    turn = max(turn_behind(world, one) for one in party)
    return [
        msgspec.structs.replace(promise, made=world.now, turn=turn + place)
        for place, promise in enumerate(promises)
    ]


def hoped_from(world: World, promise: Promise) -> int:
    """From when a date is looked for: one that could not be kept is put off, as it was then."""
    return world.now + world.policy.max_notice_ms if promise.failed_by(world.now) else 0


def is_news(before: Promise, after: Promise) -> bool:
    """Whether a promise without a date has one now, or money that comes back is kept for it now."""
    return after.at is not None or (bool(after.funding) and not before.funding)


def refund(trial: Trial, state: RunState) -> bool:
    """Count on other payers, or on others of them for more, where one cannot pay its part any longer."""
    world, promise = trial.world, state.promise
    if promise is None or promise.at is None or pay_their_parts(world, state, promise):
        return False
    split, lacking = funding_then(world, state, promise, frozenset(key for key, _ in promise.funding))
    if lacking:
        split, _ = funding_then(world, state, promise, payers_there(world, state, promise))
    if split == promise.funding:
        return False
    after = msgspec.structs.replace(promise, funding=split)
    trial.act("Move", state, world.now, Why(Reason.FUNDING_LOST, promise.name), promise=after)
    return True


def pay_their_parts(world: World, state: RunState, promise: Promise) -> bool:
    """Whether each payer that a promise counts on can pay as much as it does, and all of them together."""
    parts = [(frozenset((key,)), gpus) for key, gpus in promise.funding]
    if len(parts) > 1:
        parts.append((frozenset(key for key, _ in promise.funding), promise.width))
    at = max(promise.at or 0, world.now)
    terms = (promise.pod_size, at, promise.rank)
    return not any(funding_at(world, state, gpus, *terms, only=payers)[1] for payers, gpus in parts)


def funding_then(
    world: World, state: RunState, promise: Promise, payers: AbstractSet[EnvelopeKey] | None
) -> tuple[Split, int]:
    """Who of these would pay when the promise is due, and what they lack."""
    at = max(promise.at or 0, world.now)
    return funding_at(world, state, promise.width, promise.pod_size, at, promise.rank, only=payers)


def broken(world: World, state: RunState) -> Reason | None:
    """Why a promise can no longer be kept as it stands; None where it can (R2, R5)."""
    return flaw(world, state)[0]


def flaw(world: World, state: RunState) -> tuple[Reason | None, bool]:
    """The same, and whether it is certain that each of its payers has its part."""
    promise = state.promise
    if promise is None or promise.at is None or state.shape is None:
        return None, True
    at, crowded = max(promise.at, world.now), None
    domains = world.fleet.flavor(promise.flavor).domains
    for name, _ in promise.shares:
        if name not in domains:
            return Reason.NODES_LOST, False
        if not is_kept(world, domains[name], promise):
            if name in world.diminished:
                return Reason.NODES_LOST, False
            crowded = Reason.CROWDED_OUT
    if surely_paid(world, state, promise):
        return crowded, True
    terms, payers = (promise.width, promise.pod_size, at, promise.rank), payers_there(world, state, promise)
    _, lacking = funding_at(world, state, *terms, only=payers)
    return Reason.FUNDING_LOST if lacking else crowded, False


def uses_up_its_own(world: World, state: RunState) -> bool:
    """Whether a Run on sufferance leaves too little of the money that its own promise counts on."""
    return state.lapses_at is not None and broken(world, state) is Reason.FUNDING_LOST
