"""Computes who can pay for a Run at a future instant, beside the promises that were made before."""

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
from jobtree.core.funding.payer_candidates import payer_candidates
from jobtree.core.funding.reserved_budget import unreserved_charge, unreserved_charge_under_cap
from jobtree.core.funding.reserved_hours import credits_left, hours_left, use_limits
from jobtree.core.funding.shared_limits import lending_limit, quota_limits
from jobtree.core.model.gpu_lease import EnvelopeKey
from jobtree.core.model.promise import Precedence
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.world import World

FundingSplit = tuple[tuple[EnvelopeKey, int], ...]  # the GPUs that each envelope pays for

END_OF_TIME = FOREVER - 1  # an instant after the last change of any envelope


def funding_at(  # noqa: PLR0913, PLR0917  one question with its circumstances
    world: World,
    run: RunState,
    width: int,
    pod_size: int,
    at: int,
    precedence: Precedence | None,
    *,
    empty: bool = False,
    only: AbstractSet[EnvelopeKey] | None = None,
    recall: bool = True,
) -> tuple[FundingSplit, int]:
    """Returns which envelopes would pay for that width at that instant, and the GPUs that none pays for.

    Payers come in the order of C2; with ``only``, no other payer counts. With ``empty``, no lease and no
    promise uses their concurrency. With ``recall``, the owner's own Run counts on what can be recalled for it
    by then (C11), if that pays for the whole width and nothing else does.
    """
    query = FundingQuery(world, run, at, precedence, empty=empty)
    split, missing = _split(query, width, pod_size, only)
    if missing and recall and not empty and has_recallable(world, run, precedence):
        recalled_split, still_missing = _split(
            msgspec.structs.replace(query, recall=True), width, pod_size, only
        )
        if not still_missing:
            return recalled_split, 0
    return split, missing


def fundable_ever(world: World, run: RunState, pod_size: int) -> bool:
    """Whether the least width of a Run could be paid for at any future instant, beside all promises.

    Only concurrency counts, so a refusal is certain. An open-ended Run finds most free charge at the end of
    time: all leases with a known end are over then, and all promises have started. A declared Run may end
    before these promises start.
    """
    shape = run.shape
    assert shape is not None
    query = FundingQuery(world, run, END_OF_TIME, None, recall=has_recallable(world, run, None))
    pods = 0
    for candidate in payer_candidates(world, run):
        envelope = candidate.envelope
        recallable = query.recallable_charges(candidate, [envelope])
        charge = unreserved_charge(world, envelope, END_OF_TIME, FOREVER, run.key, None, recallable)
        if shape.max_duration is not None:
            charge += sum(reservation.charge for reservation in envelope.dated_reservations)
        pods += max(0, charge) // (MILLI * pod_size)
        if pods * pod_size >= shape.min:
            return True
    return False


class FundingQuery(msgspec.Struct, frozen=True, eq=False):
    """The question who can pay for a Run at an instant, with its circumstances."""

    world: World
    run: RunState
    at: int
    precedence: Precedence | None
    empty: bool = False  # no lease and no promise uses the concurrency of the payers
    recall: bool = False  # what the Run's owner can recall by then counts as free

    def recallable_charges(
        self, candidate: PayerCandidate, envelopes: list[EnvelopeState]
    ) -> RecallableCharges:
        """Returns what can be recalled from these envelopes of a candidate; only the owner can recall."""
        if not self.recall or candidate.tier:
            return ()
        return recallable_charges(self.world, envelopes, self.at, self.run.key, self.precedence)


def _split(
    query: FundingQuery, width: int, pod_size: int, only: AbstractSet[EnvelopeKey] | None
) -> tuple[FundingSplit, int]:
    split: list[tuple[EnvelopeKey, int]] = []
    missing = width
    taken: dict[str, int] = {}  # GPUs so far under each limit that several payers share
    for candidate in payer_candidates(query.world, query.run):
        if only is not None and candidate.envelope.key not in only:
            continue
        gpus = min(missing, payer_gpus_at(query, candidate))
        limits = list(shared_limits_at(query, candidate)) if gpus >= pod_size else []
        gpus = min([gpus, *(most - taken.get(limit, 0) for limit, most in limits)])
        gpus = gpus // pod_size * pod_size  # one pod has one payer (C3)
        if gpus > 0:
            split.append((candidate.envelope.key, gpus))
            missing -= gpus
            for limit in {limit for limit, _ in limits}:
                taken[limit] = taken.get(limit, 0) + gpus
        if not missing:
            break
    return tuple(split), missing


def payer_gpus_at(query: FundingQuery, candidate: PayerCandidate) -> int:
    """Returns the GPUs that the candidate's own limits leave from that instant on."""
    world, run, at, precedence = query.world, query.run, query.at, query.precedence
    envelope = candidate.envelope
    span, end = committed_duration(run, envelope, at), _end(run, at)
    if query.empty:
        if envelope.retired_at is not None or envelope.end <= at:
            return 0
        bounds = [envelope.spec.concurrency]
    elif envelope.open_at(at):
        recallable = query.recallable_charges(candidate, [envelope])
        bounds = [unreserved_charge(world, envelope, at, end, run.key, precedence, recallable) // MILLI]
    else:
        return 0
    bounds += _account_bounds(envelope.account, span, at, [envelope])
    if candidate.class_ == "Borrowed":
        bounds += _account_bounds(envelope.lending_account, span, at)
        if not query.empty:
            bounds += lending_limit(world, envelope, run.key, precedence).gpus(MILLI, at, end, span)
    if envelope.max_credits is not None and span:
        left = credits_left(envelope.max_credits, [envelope], at)
        bounds.append(left // (MILLI * span * envelope.price))
    if not query.empty:
        bounds += [gpus for _, gpus in use_limits(run, envelope, precedence, MILLI, at, span)]
    return max(0, min(bounds))


def shared_limits_at(query: FundingQuery, candidate: PayerCandidate) -> Iterator[tuple[str, int]]:
    """Yields the name and the GPUs of each limit that the candidate shares: caps, quotas and borrowing."""
    world, run, at, envelope = query.world, query.run, query.at, candidate.envelope
    span, end = committed_duration(run, envelope, at), _end(run, at)
    shape = run.shape
    if candidate.class_ == "Borrowed" and shape and shape.max_borrow is not None:
        yield "borrow", shape.max_borrow
    for cap in envelope.caps:
        bounds = _account_bounds(cap.account, span, at, cap.envelopes)
        if not query.empty and cap.account.max_charge < FOREVER:
            recallable = query.recallable_charges(candidate, cap.envelopes)
            unreserved = unreserved_charge_under_cap(
                world, cap, at, end, run.key, query.precedence, recallable
            )
            bounds.append(max(0, unreserved) // MILLI)
        if cap.max_credits is not None and span:
            left = credits_left(cap.max_credits, cap.envelopes, at)
            bounds.append(left // (MILLI * span * envelope.price))
        yield from (("cap " + cap.account.label, bound) for bound in bounds)
    for quota in run.quotas:
        bounds = _account_bounds(quota, span, at)
        yield from (("quota " + quota.label, bound) for bound in bounds)
    for limit in quota_limits(world, run, query.precedence) if not query.empty else ():
        bounds = list(limit.gpus(MILLI, at, end, span))
        yield from (("quota " + limit.account.label, bound) for bound in bounds)


def _end(run: RunState, at: int) -> int:
    """Returns when the Run has ended for certain if it starts at that instant."""
    shape = run.shape
    return FOREVER if shape is None or shape.max_duration is None else at + shape.max_duration


def _account_bounds(
    account: Account, span: int, at: int, envelopes: Sequence[EnvelopeState] = ()
) -> list[int]:
    """Returns the GPUs that an account leaves: by concurrency when empty, and by the hours that are left."""
    bounds = []
    if account.max_charge < FOREVER:
        bounds.append(account.max_charge // MILLI)
    if account.max_use is not None and span:
        bounds.append(hours_left(account, envelopes, at) // (MILLI * span))
    return bounds


def funding_instants(world: World, run: RunState, after: int) -> list[int]:
    """Returns the later instants at which a payer of the Run may have more than before, in order."""
    instants: set[int] = set()
    for candidate in payer_candidates(world, run):
        envelope = candidate.envelope
        instants.add(envelope.start)
        if not candidate.tier:
            instants.update(recallable_instants(world, envelope))
        instants.update(_instants_before_closing(run, envelope, after))
        for sharing in envelope.sharing_a_cap:
            instants.update(returns_of(sharing).instants(after))
            instants.update(reservation.end for reservation in sharing.dated_reservations)
    for limit in quota_limits(world, run, None):
        instants.update(end for end, _, _ in limit.leases if end is not None)
        instants.update(promise.end for promise, _ in limit.promises if promise.end is not None)
    return sorted(at for at in instants if after < at < FOREVER)


def _instants_before_closing(run: RunState, envelope: EnvelopeState, after: int) -> Iterator[int]:
    """Yields when hours and credits suffice for the rest of the window; a Run commits none after it (C5)."""
    shape = run.shape
    if shape is None or shape.max_duration is None or envelope.end >= FOREVER:
        return
    charge = shape.min * MILLI
    for account, max_credits, envelopes in envelope.exhaustible_limits:
        hours = account.free_use(after)
        if hours is not None:
            yield from _instant_it_suffices(hours, charge, account.open_ended, after, envelope.end)
        if max_credits is not None:
            flow = sum(sharing.account.open_ended * sharing.price for sharing in envelopes)
            left = max_credits - credits_used(envelopes, after)
            yield from _instant_it_suffices(left, charge * envelope.price, flow, after, envelope.end)


def _instant_it_suffices(left: int, needed: int, used: int, after: int, end: int) -> Iterator[int]:
    """Yields when what is left suffices for use at the rate ``needed`` until ``end``.

    Until then, others use what is left at the rate ``used``.
    """
    if left > 0 and needed > used:
        yield after - (left - needed * (end - after)) // (needed - used)


def is_window_aligned(world: World, run: RunState, split: FundingSplit, at: int) -> bool:
    """Whether the window of one of these payers opens at that instant."""
    keys = {key for key, _ in split}
    return any(
        candidate.envelope.start == at
        for candidate in payer_candidates(world, run)
        if candidate.envelope.key in keys
    )
