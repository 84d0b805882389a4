"""Computes the hours and credits that promises reserve, and what they leave (R2).

Concurrency is reserved in ``reserved_budget`` and, for limits of several Runs, in ``shared_limits``. This
module counts what is used up for good: a Run that starts, or gets a promise, must leave the hours and credits
that earlier promises need. Up to an instant, a declared Run counts with all its time, an open-ended one with
its time up to then, and with an hour at least (C5). So there is one bound for the instant of the start, and
one for the date of each promise after it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import msgspec

from jobtree.api.schema.quantities import HOUR, MILLI
from jobtree.core.accounts.envelope_accounts import (
    FOREVER,
    Account,
    EnvelopeState,
    credits_used,
    unused_interim_usage,
)
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.promise import Precedence, Promise
from jobtree.core.runs.run_state import RunState

LeftAt = Callable[[int], int]  # what is left of a limit at an instant


class ReservedUsage(msgspec.Struct, frozen=True):
    """The use of hours or credits that a promise reserves."""

    at: int
    span: int | None  # None: open-ended
    flow: int  # thousandths of a GPU; of credits, times the price

    def used_by(self, by: int) -> int:
        """Returns what counts as used up to that instant."""
        return self.flow * (max(HOUR, by - self.at) if self.span is None else self.span)


def dated_promises_on(
    envelopes: Iterable[EnvelopeState], run_key: RunKey, precedence: Precedence | None
) -> list[Promise]:
    """Returns the dated promises to other Runs on these envelopes that come before a precedence, or all."""
    dated = (reservation.promise for envelope in envelopes for reservation in envelope.dated_reservations)
    promises = {promise.run_key: promise for promise in dated if promise.run_key != run_key}
    return [promise for promise in promises.values() if precedence is None or promise.precedence < precedence]


def reserved_usages(
    envelopes: list[EnvelopeState], run_key: RunKey, precedence: Precedence | None, *, priced: bool
) -> list[ReservedUsage]:
    """Returns what these promises reserve on the envelopes; with ``priced``, in credits."""
    prices = {envelope.key: envelope.price if priced else 1 for envelope in envelopes}
    return [
        ReservedUsage(
            promise.at or 0,
            None if promise.end is None else promise.end - (promise.at or 0),
            sum(gpus * MILLI * prices.get(key, 0) for key, gpus in promise.funding),
        )
        for promise in dated_promises_on(envelopes, run_key, precedence)
    ]


def hours_left(account: Account, envelopes: Sequence[EnvelopeState], by: int) -> int:
    """Returns what is left of an account's hours at that instant; interim leases end at their promise."""
    return (account.free_use(by) or 0) + unused_interim_usage(envelopes, by)


def credits_left(max_credits: int, envelopes: Sequence[EnvelopeState], by: int) -> int:
    """Returns what is left of the credits at that instant; interim leases end at their promise."""
    return max_credits - credits_used(envelopes, by) + unused_interim_usage(envelopes, by, priced=True)


def max_gpus(  # noqa: PLR0913  one question with its circumstances
    reserved: list[ReservedUsage], left: LeftAt, at: int, span: int, cost: int, *, declared: bool
) -> int:
    """Returns how many GPUs a Run may take, so that enough is left for all that is reserved.

    A GPU costs ``cost`` in each millisecond.
    """
    bounds = []
    for instant in {at, *(usage.at for usage in reserved if usage.at > at)}:
        unreserved = left(instant) - sum(usage.used_by(instant) for usage in reserved if usage.at <= instant)
        gpu_cost = cost * (span if declared else max(HOUR, instant - at))
        bounds.append(unreserved // gpu_cost if gpu_cost else FOREVER)
    return max(0, min(bounds))


def use_limits(  # noqa: PLR0913, PLR0917  one question with its circumstances
    run: RunState, envelope: EnvelopeState, precedence: Precedence | None, rate: int, at: int, span: int
) -> Iterator[tuple[str, int]]:
    """Yields the GPUs that hours and credits of an envelope and its caps leave to a Run, with their names.

    Only limits on which earlier promises count are listed.
    """
    declared = run.shape is not None and run.shape.max_duration is not None
    return use_limits_of(run.key, envelope, precedence, rate, at, span, declared=declared)


def use_limits_of(  # noqa: PLR0913, PLR0917  one question with its circumstances
    run_key: RunKey,
    envelope: EnvelopeState,
    precedence: Precedence | None,
    rate: int,
    at: int,
    span: int,
    *,
    declared: bool,
) -> Iterator[tuple[str, int]]:
    """Yields the same as ``use_limits``, for a Run of which only the key is given."""
    for account, max_credits, envelopes in envelope.exhaustible_limits:
        if account.max_use is None and max_credits is None:
            continue
        if account.max_use is not None:
            reserved = reserved_usages(envelopes, run_key, precedence, priced=False)
            if reserved:
                hours = partial(hours_left, account, envelopes)
                yield account.label, max_gpus(reserved, hours, at, span, rate, declared=declared)
        if max_credits is not None:
            reserved = reserved_usages(envelopes, run_key, precedence, priced=True)
            if reserved:
                credits_at = partial(credits_left, max_credits, envelopes)
                cost = rate * envelope.price
                yield account.label, max_gpus(reserved, credits_at, at, span, cost, declared=declared)
