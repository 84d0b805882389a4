"""The purse: who could pay for a Run at a coming instant, behind the promises made before."""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from jobtree.api.quantities import MILLI
from jobtree.core.books import FOREVER, Account, EnvelopeState, credits_used
from jobtree.core.cover import commitment
from jobtree.core.holds import spare_charge
from jobtree.core.lease import EnvelopeKey
from jobtree.core.payers import Candidate, candidates
from jobtree.core.pledges import cap_charge, use_limits
from jobtree.core.promise import Rank
from jobtree.core.runs import RunState
from jobtree.core.world import World

Split = tuple[tuple[EnvelopeKey, int], ...]


def funding_at(  # noqa: PLR0913, PLR0917  one question with its circumstances
    world: World,
    state: RunState,
    width: int,
    size: int,
    at: int,
    rank: Rank | None,
    *,
    empty: bool = False,
    only: AbstractSet[EnvelopeKey] | None = None,
) -> tuple[Split, int]:
    """Who would pay for that width at that instant, in pods of that size, in the order of C2; what lacks."""
    split: list[tuple[EnvelopeKey, int]] = []
    still = width
    shared: dict[str, int] = {}  # GPUs taken so far under each limit that several payers share
    for candidate in candidates(world, state):
        if only is not None and candidate.envelope.key not in only:
            continue
        gpus = min(still, future_gpus(world, state, candidate, at, rank, empty=empty))
        bounds = list(shared_limits(world, state, candidate, at, rank, empty=empty))
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


def future_gpus(  # noqa: PLR0913  one question with its circumstances
    world: World, state: RunState, candidate: Candidate, at: int, rank: Rank | None, *, empty: bool
) -> int:
    """GPUs that the candidate's own limits leave from that instant on (or when it is empty)."""
    envelope = candidate.envelope
    span = commitment(state, envelope, at)
    if empty:
        if envelope.retired_at is not None or envelope.end <= at:
            return 0
        bounds = [envelope.spec.concurrency]
    elif envelope.open_at(at):
        shape = state.shape
        end = FOREVER if shape is None or shape.max_duration is None else at + shape.max_duration
        bounds = [spare_charge(world, envelope, at, end, state.key, rank) // MILLI]
    else:
        return 0
    bounds += _account_limits(envelope.account, span, at, empty=True)
    if candidate.class_ == "Borrowed":
        bounds += _account_limits(envelope.lent, span, at, empty=empty)
    if envelope.max_credits is not None and span:
        left = envelope.max_credits - credits_used([envelope], at)
        bounds.append(left // (MILLI * span * envelope.price))
    if not empty:
        bounds += [gpus for _, gpus in use_limits(state, envelope, rank, MILLI, at, span)]
    return max(0, min(bounds))


def shared_limits(  # noqa: PLR0913  one question with its circumstances
    world: World, state: RunState, candidate: Candidate, at: int, rank: Rank | None, *, empty: bool
) -> Iterator[tuple[str, int]]:
    """Caps, quotas and borrowing, which the candidate shares with others: by name, the GPUs they leave."""
    envelope = candidate.envelope
    span = commitment(state, envelope, at)
    shape = state.shape
    if candidate.class_ == "Borrowed" and shape and shape.max_borrow is not None:
        yield "borrow", shape.max_borrow
    for cap in envelope.caps:
        bounds = _account_limits(cap.account, span, at, empty=True)
        if not empty and cap.account.max_charge < FOREVER:
            end = FOREVER if shape is None or shape.max_duration is None else at + shape.max_duration
            bounds.append(max(0, cap_charge(world, cap, at, end, state.key, rank)) // MILLI)
        if cap.max_credits is not None and span:
            left = cap.max_credits - credits_used(cap.envelopes, at)
            bounds.append(left // (MILLI * span * envelope.price))
        yield from (("cap " + cap.account.label, bound) for bound in bounds)
    for quota in state.quotas:
        bounds = _account_limits(quota, span, at, empty=empty)
        yield from (("quota " + quota.label, bound) for bound in bounds)


def _account_limits(account: Account, span: int, at: int, *, empty: bool) -> list[int]:
    """GPUs that an account leaves: by its charge (all of it, when empty) and by hours, which stay used."""
    found = []
    if account.max_charge < FOREVER:
        found.append((account.max_charge if empty else account.free_charge()) // MILLI)
    left = account.free_use(at)
    if left is not None and span:
        found.append(left // (MILLI * span))
    return found


def money_instants(world: World, state: RunState, after: int) -> list[int]:
    """Instants at which a payer of the Run may have more than before: ends, openings, promises' ends."""
    found: set[int] = set()
    for candidate in candidates(world, state):
        envelope = candidate.envelope
        found.add(envelope.start)
        found.update(_late_enough(state, envelope, after))
        for one in envelope.kin:
            for name in one.leases:
                end = world.held[name].known_end
                if end is not None:
                    found.add(end)
            for promise in one.promises.values():
                if promise.end is not None:
                    found.add(promise.end)
    return sorted(at for at in found if after < at < FOREVER)


def _late_enough(state: RunState, envelope: EnvelopeState, after: int) -> Iterator[int]:
    """When so little is left of the window that hours suffice: no Run commits beyond its end (C5)."""
    shape = state.shape
    if shape is None or shape.max_duration is None or envelope.end >= FOREVER:
        return
    for account in (envelope.account, *(cap.account for cap in envelope.caps)):
        left = account.free_use(after)
        if left is not None and left > 0:
            open_ended = account.charge - account.declared  # goes on using hours meanwhile
            flow = shape.min * MILLI - open_ended
            if flow > 0:
                yield after - (left - shape.min * MILLI * (envelope.end - after)) // flow


def opens_then(world: World, state: RunState, split: Split, at: int) -> bool:
    """Whether a window's opening sets that time."""
    keys = {key for key, _ in split}
    return any(
        candidate.envelope.start == at
        for candidate in candidates(world, state)
        if candidate.envelope.key in keys
    )
