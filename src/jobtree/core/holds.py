"""Holds: what an envelope keeps for whom (R2, C12).

Money is promised like GPUs. What an envelope gets back is kept for those promised before; a Run that
waits without a date because open-ended Runs hold the money keeps what comes back until it has enough.
"""

from typing import TYPE_CHECKING

import msgspec

from jobtree.api.quantities import MILLI
from jobtree.core.books import FOREVER, EnvelopeState
from jobtree.core.lease import RunKey
from jobtree.core.promise import Promise, Rank
from jobtree.core.runs import RunState

if TYPE_CHECKING:
    from jobtree.core.world import World


class Claim(msgspec.Struct, frozen=True):
    """A promise as it counts in one envelope."""

    rank: Rank
    at: int | None
    end: int
    charge: int


def claims(envelope: EnvelopeState, run: RunKey, rank: Rank | None) -> list[Claim]:
    """Others' promises on this envelope made before that rank (all, without one), oldest first.

    Promises without a date are served in the order of their making: a later one keeps nothing from an
    earlier one, and none of them keeps anything from a promise with a date that was made.
    """
    own = envelope.promises.get(run)
    found = []
    for promise in sorted(envelope.promises.values(), key=lambda promise: promise.rank):
        if promise.run == run or (rank is not None and (promise.at is None or promise.rank > rank)):
            continue
        queues = own is not None and own.at is None and promise.at is None
        if not queues or (own is not None and promise.rank < own.rank):
            end = FOREVER if promise.end is None else promise.end
            found.append(Claim(promise.rank, promise.at, end, _charge(promise, envelope)))
    return found


def _charge(promise: Promise, envelope: EnvelopeState) -> int:
    """What the envelope has promised to pay."""
    return sum(gpus for key, gpus in promise.funding if key == envelope.key) * MILLI


def free_charge(world: "World", envelope: EnvelopeState, at: int, rank: Rank | None) -> int:
    """What the envelope has free at that instant, by known ends and by provisional work that yields."""
    free = envelope.account.free_charge()
    for name, lease in envelope.leases.items():
        held = world.held[name]
        ended = held.known_end is not None and held.known_end <= at
        if ended or (rank is not None and held.run is not None and held.run.yields_to(rank)):
            free += lease.charge
    return free


def spare_charge(  # noqa: PLR0913, PLR0917  from when to when, for whom, behind whom
    world: "World", envelope: EnvelopeState, at: int, end: int, run: RunKey, rank: Rank | None
) -> int:
    """Charge that somebody could take from ``at`` to ``end`` without touching what was promised before."""
    known = claims(envelope, run, rank)
    free = free_charge(world, envelope, at, rank) - _claimed(known, at)
    own = envelope.promises.get(run) if rank is None else None
    for claim in known:
        if claim.at is not None and at < claim.at < end:
            later = free_charge(world, envelope, claim.at, rank) - _claimed(known, claim.at)
            if own is not None and own.at is not None and own.at <= claim.at:
                later = max(later, _charge(own, envelope))  # it will have that by then anyway (R7)
            free = min(free, later)
    undated = next((claim for claim in known if claim.at is None), None)
    return free if undated is None else min(free, free - undated.charge)


def _claimed(known: list[Claim], at: int) -> int:
    return sum(claim.charge for claim in known if claim.at is not None and claim.at <= at < claim.end)


def kept_back(world: "World", state: RunState, envelope: EnvelopeState, at: int) -> int | None:
    """Charge this Run may still take now from an envelope with promises on it; None where there are none."""
    others = [promise for promise in envelope.promises.values() if promise.run != state.key]
    if not others:
        return None
    if state.provisional and all(
        promise.at is None or promise.at - at >= provisional_notice(world, state) for promise in others
    ):
        return None
    end = FOREVER
    if state.shape is not None and state.shape.max_duration is not None:
        end = (at if state.since is None else state.since) + state.shape.max_duration
    rank = state.standing(at)
    return spare_charge(world, envelope, at, end, state.key, rank)


def provisional_notice(world: "World", state: RunState) -> int:
    """How long provisional work must be able to run: its checkpoint, and no less than minNotice (R6)."""
    checkpoint = state.shape.checkpoint if state.shape else None
    return max(checkpoint or 0, world.policy.min_notice_ms)
