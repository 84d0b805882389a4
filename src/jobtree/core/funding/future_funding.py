"""The purse: who could pay for a Run at a coming instant, behind the promises made before."""

from collections.abc import Iterator, Sequence, Set as AbstractSet

import msgspec

from jobtree.api.schema.quantities import MILLI
from jobtree.core.accounts.budget_timeline import returns_of
from jobtree.core.accounts.envelope_accounts import FOREVER, Account, EnvelopeState, credits_used
from jobtree.core.accounts.payers import PayerCandidate
from jobtree.core.funding.cover import committed_duration
from jobtree.core.funding.future_recall import (
    RecallableCharges,
    has_recallable,
    recallable_charges,
    recallable_instants,
)
from jobtree.core.funding.reserved_budget import unreserved_charge, unreserved_charge_under_cap
from jobtree.core.funding.reserved_hours import credits_left, hours_left, use_limits
from jobtree.core.funding.shared_limits import lending_limit, quota_limits
from jobtree.core.model.gpu_lease import EnvelopeKey
from jobtree.core.model.promise import Precedence
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.payer_candidates import payer_candidates
from jobtree.core.world.world import World

FundingSplit = tuple[tuple[EnvelopeKey, int], ...]

END_OF_TIME = FOREVER - 1  # when all that ever comes back has come


def funding_at(  # noqa: PLR0913, PLR0917  one question with its circumstances
    world: World,
    run: RunState,
    width: int,
    size: int,
    at: int,
    precedence: Precedence | None,
    *,
    empty: bool = False,
    only: AbstractSet[EnvelopeKey] | None = None,
    recall: bool = True,
) -> tuple[FundingSplit, int]:
    """Who would pay for that width at that instant, in pods of that size, in the order of C2; what lacks.

    Where money lacks, an owner's own Run counts on what it could recall by then (C11).
    """
    ask = FundingQuery(world, run, at, precedence, empty=empty)
    found = _split(ask, width, size, only)
    if found[1] and recall and not empty and has_recallable(world, run, precedence):
        recalled = _split(msgspec.structs.replace(ask, recall=True), width, size, only)
        found = found if recalled[1] else recalled
    return found


def fundable_ever(world: World, run: RunState, size: int) -> bool:
    """Whether a Run behind all promises might be paid for at its least width at any coming instant.

    Who may stay for ever finds most at last, when everything has come back and all promises have begun; who
    is certain to end may come before these. Only concurrency counts: a no is certain.
    """
    shape = run.shape
    assert shape is not None
    ask, pods = FundingQuery(world, run, END_OF_TIME, None, recall=has_recallable(world, run, None)), 0
    for candidate in payer_candidates(world, run):
        envelope = candidate.envelope
        back = ask.recallable_charges(candidate, [envelope])
        charge = unreserved_charge(world, envelope, END_OF_TIME, FOREVER, run.key, None, back)
        if shape.max_duration is not None:
            charge += sum(claim.charge for claim in envelope.dated_reservations)
        pods += max(0, charge) // (MILLI * size)
        if pods * size >= shape.min:
            return True
    return False


class FundingQuery(msgspec.Struct, frozen=True, eq=False):
    """One question with its circumstances."""

    world: World
    run: RunState
    at: int
    precedence: Precedence | None
    empty: bool = False
    recall: bool = False  # what its owner lends to the family comes back

    def recallable_charges(
        self, candidate: PayerCandidate, envelopes: list[EnvelopeState]
    ) -> RecallableCharges:
        """What could be recalled for these envelopes, if they are the Run's own."""
        if not self.recall or candidate.tier:
            return ()
        return recallable_charges(self.world, envelopes, self.at, self.run.key, self.precedence)


def _split(
    ask: FundingQuery, width: int, size: int, only: AbstractSet[EnvelopeKey] | None
) -> tuple[FundingSplit, int]:
    split: list[tuple[EnvelopeKey, int]] = []
    still = width
    shared: dict[str, int] = {}  # GPUs taken so far under each limit that several payers share
    for candidate in payer_candidates(ask.world, ask.run):
        if only is not None and candidate.envelope.key not in only:
            continue
        gpus = min(still, payer_gpus_at(ask, candidate))
        bounds = list(shared_limits_at(ask, candidate)) if gpus >= size else []
        gpus = min([gpus, *(most - shared.get(limit, 0) for limit, most in bounds)])
        gpus = gpus // size * size  # one pod has one payer (C3)
        if gpus > 0:
            split.append((candidate.envelope.key, gpus))
            still -= gpus
            for limit in {limit for limit, _ in bounds}:
                shared[limit] = shared.get(limit, 0) + gpus
        if not still:
            break
    return tuple(split), still


def payer_gpus_at(ask: FundingQuery, candidate: PayerCandidate) -> int:
    """GPUs that the candidate's own limits leave from that instant on (or when it is empty)."""
    world, run, at, precedence = ask.world, ask.run, ask.at, ask.precedence
    envelope = candidate.envelope
    span, end = committed_duration(run, envelope, at), _end(run, at)
    if ask.empty:
        if envelope.retired_at is not None or envelope.end <= at:
            return 0
        bounds = [envelope.spec.concurrency]
    elif envelope.open_at(at):
        back = ask.recallable_charges(candidate, [envelope])
        bounds = [unreserved_charge(world, envelope, at, end, run.key, precedence, back) // MILLI]
    else:
        return 0
    bounds += _account_limits(envelope.account, span, at, [envelope])
    if candidate.class_ == "Borrowed":
        bounds += _account_limits(envelope.lending_account, span, at)
        if not ask.empty:
            bounds += lending_limit(world, envelope, run.key, precedence).gpus(MILLI, at, end, span)
    if envelope.max_credits is not None and span:
        left = credits_left(envelope.max_credits, [envelope], at)
        bounds.append(left // (MILLI * span * envelope.price))
    if not ask.empty:
        bounds += [gpus for _, gpus in use_limits(run, envelope, precedence, MILLI, at, span)]
    return max(0, min(bounds))


def shared_limits_at(ask: FundingQuery, candidate: PayerCandidate) -> Iterator[tuple[str, int]]:
    """Caps, quotas and borrowing, which the candidate shares with others: by name, the GPUs they leave."""
    world, run, at, envelope = ask.world, ask.run, ask.at, candidate.envelope
    span, end = committed_duration(run, envelope, at), _end(run, at)
    shape = run.shape
    if candidate.class_ == "Borrowed" and shape and shape.max_borrow is not None:
        yield "borrow", shape.max_borrow
    for cap in envelope.caps:
        bounds = _account_limits(cap.account, span, at, cap.envelopes)
        if not ask.empty and cap.account.max_charge < FOREVER:
            back = ask.recallable_charges(candidate, cap.envelopes)
            bounds.append(
                max(0, unreserved_charge_under_cap(world, cap, at, end, run.key, ask.precedence, back))
                // MILLI
            )
        if cap.max_credits is not None and span:
            left = credits_left(cap.max_credits, cap.envelopes, at)
            bounds.append(left // (MILLI * span * envelope.price))
        yield from (("cap " + cap.account.label, bound) for bound in bounds)
    for quota in run.quotas:
        bounds = _account_limits(quota, span, at)
        yield from (("quota " + quota.label, bound) for bound in bounds)
    for pool in quota_limits(world, run, ask.precedence) if not ask.empty else ():
        bounds = list(pool.gpus(MILLI, at, end, span))
        yield from (("quota " + pool.account.label, bound) for bound in bounds)


def _end(run: RunState, at: int) -> int:
    """When the Run is certain to have ended, if it starts then."""
    shape = run.shape
    return FOREVER if shape is None or shape.max_duration is None else at + shape.max_duration


def _account_limits(
    account: Account, span: int, at: int, envelopes: Sequence[EnvelopeState] = ()
) -> list[int]:
    """GPUs that an account leaves: by its charge, when empty, and by hours, which stay used."""
    found = []
    if account.max_charge < FOREVER:
        found.append(account.max_charge // MILLI)
    if account.max_use is not None and span:
        found.append(hours_left(account, envelopes, at) // (MILLI * span))
    return found


def funding_instants(world: World, run: RunState, after: int) -> list[int]:
    """Instants at which a payer of the Run may have more than before: ends, openings, promises' ends."""
    found: set[int] = set()
    for candidate in payer_candidates(world, run):
        envelope = candidate.envelope
        found.add(envelope.start)
        if not candidate.tier:
            found.update(recallable_instants(world, envelope))
        found.update(_late_enough(run, envelope, after))
        for one in envelope.sharing_a_cap:
            found.update(returns_of(one).instants(after))
            found.update(claim.end for claim in one.dated_reservations)
    for pool in quota_limits(world, run, None):
        found.update(end for end, _, _ in pool.ends if end is not None)
        found.update(promise.end for promise, _ in pool.claims if promise.end is not None)
    return sorted(at for at in found if after < at < FOREVER)


def _late_enough(run: RunState, envelope: EnvelopeState, after: int) -> Iterator[int]:
    """When so little is left of the window that hours and credits suffice: no Run commits beyond it (C5)."""
    shape = run.shape
    if shape is None or shape.max_duration is None or envelope.end >= FOREVER:
        return
    gpus = shape.min * MILLI
    for account, max_credits, envelopes in envelope.exhaustible_limits:
        hours = account.free_use(after)
        if hours is not None:
            yield from _suffices(hours, gpus, account.open_ended, after, envelope.end)
        if max_credits is not None:
            flow = sum(one.account.open_ended * one.price for one in envelopes)
            left = max_credits - credits_used(envelopes, after)
            yield from _suffices(left, gpus * envelope.price, flow, after, envelope.end)


def _suffices(left: int, needed: int, used: int, after: int, end: int) -> Iterator[int]:
    """When what is needed until the end is no more than what is left, of which others use some meanwhile."""
    if left > 0 and needed > used:
        yield after - (left - needed * (end - after)) // (needed - used)


def is_window_aligned(world: World, run: RunState, split: FundingSplit, at: int) -> bool:
    """Whether a window's opening sets that time."""
    keys = {key for key, _ in split}
    return any(
        candidate.envelope.start == at
        for candidate in payer_candidates(world, run)
        if candidate.envelope.key in keys
    )
