"""Computes what an envelope, or all envelopes under a cap, keep for promises (R2, C12).

Promises reserve budget as they reserve GPUs: charge that returns to an envelope is kept for the promises that
were made before. A promise that has no date because open-ended Runs use its budget keeps what returns, until
it has enough.
"""

from collections.abc import Iterable, Sequence

from jobtree.core.accounts.budget_timeline import HeadroomTimeline, reserved_charges_on
from jobtree.core.accounts.envelope_accounts import FOREVER, Account, CapState, EnvelopeState
from jobtree.core.funding.future_recall import RecallableCharges
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.promise import Precedence, Promise
from jobtree.core.runs.notice import min_provisional_ms
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.world import World


def unreserved_charge(  # noqa: PLR0913, PLR0917  the period, the Run and its precedence
    world: World,
    envelope: EnvelopeState,
    at: int,
    end: int,
    run_key: RunKey,
    precedence: Precedence | None,
    recallable: RecallableCharges = (),
) -> int:
    """Returns the charge that a Run can take from ``at`` to ``end`` without touching earlier promises.

    ``recallable`` is what the owner of the envelope could recall for the Run.
    """
    unreserved = _unreserved(world, envelope.account, [envelope], at, end, run_key, precedence, recallable)
    return unreserved if precedence is not None else unreserved - _kept_without_date(world, envelope, run_key)


def unreserved_charge_under_cap(  # noqa: PLR0913, PLR0917  the same question
    world: World,
    cap: CapState,
    at: int,
    end: int,
    run_key: RunKey,
    precedence: Precedence | None,
    recallable: RecallableCharges = (),
) -> int:
    """Returns the same for a cap, which all its envelopes share."""
    return _unreserved(world, cap.account, cap.envelopes, at, end, run_key, precedence, recallable)


def _unreserved(  # noqa: PLR0913, PLR0917  the same question
    world: World,
    account: Account,
    envelopes: Sequence[EnvelopeState],
    at: int,
    end: int,
    run_key: RunKey,
    precedence: Precedence | None,
    recallable: RecallableCharges,
) -> int:
    """Returns the lowest free charge of an account in that time, less what dated promises reserve."""
    reserved = [reserved_charges_on(envelope, precedence) for envelope in envelopes]
    free_now = account.free_charge()
    own = next((envelope.promises[run_key] for envelope in envelopes if run_key in envelope.promises), None)
    dated_own = (
        own
        if own is not None and own.at is not None and (precedence is None or own.precedence <= precedence)
        else None
    )
    headroom = HeadroomTimeline(reserved, recallable)
    if dated_own is None:
        return free_now + headroom.lowest_between(at, end)
    return _free_to_promised_run(
        world, envelopes, dated_own, headroom, at, end, free_now, later=precedence is None
    )


def _free_to_promised_run(  # noqa: PLR0913, PLR0917  the same question, with the free charge of now
    world: World,
    envelopes: Sequence[EnvelopeState],
    own: Promise,
    headroom: HeadroomTimeline,
    at: int,
    end: int,
    free_now: int,
    *,
    later: bool,
) -> int:
    """Returns the charge that a Run with a dated promise can take: its own promise is not in its way.

    With ``later``, it can have now what its promise has later in any case (R7), less what it has already.
    """
    assert own.at is not None
    own_start, own_end = own.at, max(own.at, FOREVER if own.end is None else own.end)
    own_charge = sum(envelope.charge_of(own) for envelope in envelopes)
    least = own_charge - _paid_for_run(world, envelopes, own.run_key) if later else -FOREVER
    at_first = free_now + headroom.at(at) + (own_charge if own_start <= at < own_end else 0)
    before_own = headroom.lowest(at + 1, min(own_start, end))
    during_own = headroom.lowest(max(at + 1, own_start), min(own_end, end))
    after_own = headroom.lowest(max(at + 1, own_end), end)
    return min(
        at_first,
        free_now + before_own,
        max(free_now + own_charge + during_own, least),
        max(free_now + after_own, least),
    )


def _paid_for_run(world: World, envelopes: Sequence[EnvelopeState], run_key: RunKey) -> int:
    """Returns what these envelopes pay for a Run already; interim leases do not count."""
    return sum(
        lease.charge
        for lease in world.runs[run_key].leases.values()
        for envelope in envelopes
        if lease.name in envelope.leases and lease.name not in envelope.interim_charges
    )


def _kept_without_date(world: World, envelope: EnvelopeState, run_key: RunKey) -> int:
    """Returns the charge that is kept for the first promise without a date (C12).

    Nothing is kept from a Run that is in line before the Run of that promise.
    """
    if not envelope.undated_promises:
        return 0
    first_turn, first = envelope.undated_promises[0]
    run = world.runs.get(run_key)  # None: any Run, however far behind in line
    if run is not None and envelope.turn(run.owner, run.creation_order) <= first_turn:
        return 0
    return envelope.charge_of(envelope.promises[first])


def available_beside_promises(world: World, run: RunState, envelope: EnvelopeState, at: int) -> int | None:
    """Returns the charge that a Run may still take beside promises to others; None where there are none."""
    if len(envelope.promises) == (run.key in envelope.promises):
        return None
    others = (promise for promise in envelope.promises.values() if promise.run_key != run.key)
    if may_run_provisionally(world, run, others, at):
        return None
    return unreserved_charge(world, envelope, at, run.certain_end(at), run.key, run.precedence_at(at))


def may_run_provisionally(world: World, run: RunState, promises: Iterable[Promise], at: int) -> bool:
    """Whether a provisional Run ends for all these promises and has enough time before each of them (R6).

    It does not end for promises that were made after it started, so it may not take what they reserve.
    """
    return run.provisional and all(
        promise.at is None
        or (
            run.is_provisional_to(promise.precedence)
            and promise.at - at >= min_provisional_ms(world.policy, run)
        )
        for promise in promises
    )
