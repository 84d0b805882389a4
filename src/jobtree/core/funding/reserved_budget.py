"""Holds: what an envelope, or all under one cap, keep for whom (R2, C12).

Money is promised like GPUs. What an envelope gets back is kept for those promised before; a Run that
waits without a date because open-ended Runs hold the money keeps what comes back until it has enough.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from jobtree.core.accounts.budget_timeline import HeadroomTimeline, reserved_charges_on
from jobtree.core.accounts.envelope_accounts import FOREVER, Account, CapState, EnvelopeState
from jobtree.core.funding.future_recall import RecallableCharges
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.promise import Precedence, Promise
from jobtree.core.runs.notice import min_provisional_ms
from jobtree.core.runs.run_state import RunState

if TYPE_CHECKING:
    from jobtree.core.world.world import World


def unreserved_charge(  # noqa: PLR0913, PLR0917  from when to when, for whom, behind whom
    world: "World",
    envelope: EnvelopeState,
    at: int,
    end: int,
    run_key: RunKey,
    precedence: Precedence | None,
    back: RecallableCharges = (),
) -> int:
    """Charge that somebody could take from ``at`` to ``end`` without touching what was promised before.

    ``back`` is what the envelope's owner could recall for it.
    """
    free = _spare(world, envelope.account, [envelope], at, end, run_key, precedence, back)
    return (
        free
        if precedence is not None
        else min(free, free - _undated(envelope, envelope.promises.get(run_key)))
    )


def unreserved_charge_under_cap(  # noqa: PLR0913, PLR0917  the same question
    world: "World",
    cap: CapState,
    at: int,
    end: int,
    run_key: RunKey,
    precedence: Precedence | None,
    back: RecallableCharges = (),
) -> int:
    """The same of a cap, which all its envelopes draw on together."""
    return _spare(world, cap.account, cap.envelopes, at, end, run_key, precedence, back)


def _spare(  # noqa: PLR0913, PLR0917  the same question
    world: "World",
    account: Account,
    envelopes: Sequence[EnvelopeState],
    at: int,
    end: int,
    run_key: RunKey,
    precedence: Precedence | None,
    back: RecallableCharges,
) -> int:
    known, free = [reserved_charges_on(one, precedence) for one in envelopes], account.free_charge()
    own = next((one.promises[run_key] for one in envelopes if run_key in one.promises), None)
    dated = (
        own
        if own is not None and own.at is not None and (precedence is None or own.precedence <= precedence)
        else None
    )
    levels = HeadroomTimeline(known, back)
    if dated is None:
        return free + levels.lowest_between(at, end)
    return _free_to_promised_run(world, envelopes, dated, levels, at, end, free, later=precedence is None)


def _free_to_promised_run(  # noqa: PLR0913, PLR0917  the same question, of what is free now
    world: "World",
    envelopes: Sequence[EnvelopeState],
    own: Promise,
    levels: HeadroomTimeline,
    at: int,
    end: int,
    free: int,
    *,
    later: bool,
) -> int:
    """What is free to a Run that is promised something: its promise does not stand in its own way.

    What it will have by a later instant anyway it may have already now (R7), less what it has.
    """
    assert own.at is not None
    begin, over = own.at, max(own.at, FOREVER if own.end is None else own.end)
    mine = sum(one.charge_of(own) for one in envelopes)
    least = mine - _paid_for_run(world, envelopes, own.run_key) if later else -FOREVER
    now = free + levels.at(at) + (mine if begin <= at < over else 0)
    before = levels.lowest(at + 1, min(begin, end))
    while_mine = levels.lowest(max(at + 1, begin), min(over, end))
    after = levels.lowest(max(at + 1, over), end)
    return min(now, free + before, max(free + mine + while_mine, least), max(free + after, least))


def _paid_for_run(world: "World", envelopes: Sequence[EnvelopeState], run_key: RunKey) -> int:
    """What these pay for a Run that starts, in place of its promise."""
    return sum(
        lease.charge
        for lease in world.runs[run_key].leases.values()
        for one in envelopes
        if lease.name in one.leases and lease.name not in one.interim_charges
    )


def _undated(envelope: EnvelopeState, own: Promise | None) -> int:
    """What is kept for the first of those promised money without a date.

    They are served in the order of their making: a later one keeps nothing from an earlier one, and none of
    them keeps anything from a promise with a date that was made.
    """
    first = next(
        (run_key for _, run_key in envelope.undated_promises if own is None or run_key != own.run_key), None
    )
    if first is None:
        return 0
    kept = envelope.promises[first]
    queues_before = own is not None and own.at is None and own.precedence < kept.precedence
    return 0 if queues_before else envelope.charge_of(kept)


def available_beside_promises(world: "World", run: RunState, envelope: EnvelopeState, at: int) -> int | None:
    """Charge this Run may still take now from an envelope with promises on it; None where there are none."""
    if len(envelope.promises) == (run.key in envelope.promises):
        return None
    others = (promise for promise in envelope.promises.values() if promise.run_key != run.key)
    if may_run_provisionally(world, run, others, at):
        return None
    return unreserved_charge(world, envelope, at, run.certain_end(at), run.key, run.precedence_at(at))


def may_run_provisionally(world: "World", run: RunState, promises: Iterable[Promise], at: int) -> bool:
    """Whether the Run is provisional, yields to all of these and has enough time before any of them (R6).

    It does not yield to those made after it started: what they count on it may not take later either.
    """
    return run.provisional and all(
        promise.at is None
        or (
            run.is_provisional_to(promise.precedence)
            and promise.at - at >= min_provisional_ms(world.policy, run.checkpoint_ms)
        )
        for promise in promises
    )
