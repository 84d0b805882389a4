"""Pledges: hours and credits that promises count on (R2: money is promised like GPUs).

Concurrency of one envelope is held in ``holds``, what several share in ``pools``. What is used up for good
is counted here: whoever starts, or is promised a start, behind a promise must leave what that one needs.
By an instant t a declared Run has taken all its time, an open-ended one what it used until t and an hour at
least (C5). So there is a bound for the instant of the start and one for each promise that follows it.
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

Left = Callable[[int], int]


class ReservedUsage(msgspec.Struct, frozen=True):
    """A promise as it draws on something that runs out."""

    at: int
    span: int | None  # None: open-ended
    flow: int  # thousandths of a GPU; of credits, times the price

    def used_by(self, by: int) -> int:
        return self.flow * (max(HOUR, by - self.at) if self.span is None else self.span)


def dated_promises_on(
    envelopes: Iterable[EnvelopeState], run_key: RunKey, precedence: Precedence | None
) -> list[Promise]:
    """Others' promises with a date on these envelopes, made before that rank (all, without one)."""
    dated = (claim.promise for one in envelopes for claim in one.dated_reservations)
    found = {promise.run_key: promise for promise in dated if promise.run_key != run_key}
    return [promise for promise in found.values() if precedence is None or promise.precedence < precedence]


def reserved_usages(
    envelopes: list[EnvelopeState], run_key: RunKey, precedence: Precedence | None, *, priced: bool
) -> list[ReservedUsage]:
    prices = {one.key: one.price if priced else 1 for one in envelopes}
    return [
        ReservedUsage(
            promise.at or 0,
            None if promise.end is None else promise.end - (promise.at or 0),
            sum(gpus * MILLI * prices.get(key, 0) for key, gpus in promise.funding),
        )
        for promise in dated_promises_on(envelopes, run_key, precedence)
    ]


def hours_left(account: Account, envelopes: Sequence[EnvelopeState], by: int) -> int:
    """What is left of an account's hours by then: leases on sufferance end when their promise is due."""
    return (account.free_use(by) or 0) + unused_interim_usage(envelopes, by)


def credits_left(most: int, envelopes: Sequence[EnvelopeState], by: int) -> int:
    """The same of credits."""
    return most - credits_used(envelopes, by) + unused_interim_usage(envelopes, by, priced=True)


def max_gpus(  # noqa: PLR0913  one question with its circumstances
    known: list[ReservedUsage], left: Left, at: int, span: int, cost: int, *, declared: bool
) -> int:
    """GPUs that may be taken at ``cost`` a millisecond, so that every pledge still finds its part."""
    bounds = []
    for instant in {at, *(one.at for one in known if one.at > at)}:
        rest = left(instant) - sum(one.used_by(instant) for one in known if one.at <= instant)
        mine = cost * (span if declared else max(HOUR, instant - at))
        bounds.append(rest // mine if mine else FOREVER)
    return max(0, min(bounds))


def use_limits(  # noqa: PLR0913, PLR0917  one question with its circumstances
    run: RunState, envelope: EnvelopeState, precedence: Precedence | None, rate: int, at: int, span: int
) -> Iterator[tuple[str, int]]:
    """By name, the GPUs that hours and credits of an envelope and its caps leave a Run behind all pledges."""
    declared = run.shape is not None and run.shape.max_duration is not None
    return use_limits_of(run.key, envelope, precedence, rate, at, span, declared=declared)


def use_limits_of(  # noqa: PLR0913, PLR0917  the same, of a Run that is known by name only
    run_key: RunKey,
    envelope: EnvelopeState,
    precedence: Precedence | None,
    rate: int,
    at: int,
    span: int,
    *,
    declared: bool,
) -> Iterator[tuple[str, int]]:
    for account, max_credits, envelopes in envelope.exhaustible_limits:
        if account.max_use is None and max_credits is None:
            continue
        if account.max_use is not None:
            known = reserved_usages(envelopes, run_key, precedence, priced=False)
            if known:
                hours = partial(hours_left, account, envelopes)
                yield account.label, max_gpus(known, hours, at, span, rate, declared=declared)
        if max_credits is not None:
            known = reserved_usages(envelopes, run_key, precedence, priced=True)
            if known:
                money = partial(credits_left, max_credits, envelopes)
                cost = rate * envelope.price
                yield account.label, max_gpus(known, money, at, span, cost, declared=declared)
