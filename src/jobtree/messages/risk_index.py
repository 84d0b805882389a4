"""Risks: which promises could stop which Runs (R11).

When the forecast of a promise is computed, it replaces the risks of that promise. Only the Runs whose risks
change get another status.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain, islice
from operator import attrgetter

import msgspec

from jobtree.api.kinds.run import Risk
from jobtree.api.schema.quantities import format_milli, format_time
from jobtree.core import (
    MOST_RISKS,
    KnownRisks,
    Precedence,
    Promise,
    RunKey,
    RunState,
    World,
    reservation_forecast,
)

ReservationKey = tuple[str, str]  # namespace and name


class PromiseRisk(msgspec.Struct, frozen=True):
    precedence: Precedence
    since: int
    risks: tuple[Risk, ...]  # one for each stage that would stop together


def is_news(before: str | None, risk: Risk) -> bool:
    """Whether a Run must be told of a risk whose probability it was told as ``before``; None: not at all."""
    return before is None or (before == "0" and risk.kill_probability != "0")


class RiskIndex:
    def __init__(self) -> None:
        self.changed: set[RunKey] = set()  # Runs whose risks changed since this was last emptied
        self._of: dict[RunKey, dict[ReservationKey, PromiseRisk]] = {}
        self._by: dict[ReservationKey, set[RunKey]] = {}

    def known_risks(self, run_key: RunKey) -> KnownRisks | None:
        """Returns the risks of a Run by precedence of their promises; None if there are none."""
        by_precedence = sorted(self._of.get(run_key, {}).values(), key=attrgetter("precedence"))
        if not by_precedence:
            return None
        risks = chain.from_iterable(promise_risk.risks for promise_risk in by_precedence)
        return KnownRisks(by_precedence[0].since, tuple(islice(risks, MOST_RISKS)))

    def replace_risks(
        self, reservation: ReservationKey, promise: Promise, risks: Iterable[tuple[RunKey, Risk]]
    ) -> None:
        """Replaces all risks of a promise."""
        by_run: dict[RunKey, PromiseRisk] = {}
        for run_key, risk in risks:
            before = by_run[run_key].risks if run_key in by_run else ()
            by_run[run_key] = PromiseRisk(promise.precedence, promise.made_at, (*before, risk))
        for run_key in self._by.get(reservation, set()) - by_run.keys():
            self._remove(run_key, reservation)
        for run_key, promise_risk in by_run.items():
            of_run = self._of.setdefault(run_key, {})
            if of_run.get(reservation) != promise_risk:
                of_run[reservation] = promise_risk
                self.changed.add(run_key)
        self._by[reservation] = set(by_run)

    def keep_only(self, reservations: Collection[ReservationKey]) -> None:
        """Removes the risks of all other promises."""
        for reservation in self._by.keys() - reservations:
            for run_key in self._by.pop(reservation):
                self._remove(run_key, reservation)

    def forget(self, run_key: RunKey) -> None:
        """Removes the risks of a Run that does not run any more."""
        if self._of.pop(run_key, None):
            self.changed.add(run_key)

    def _remove(self, run_key: RunKey, reservation: ReservationKey) -> None:
        of_run = self._of.get(run_key, {})
        if of_run.pop(reservation, None) is not None:
            self.changed.add(run_key)
        if not of_run:
            self._of.pop(run_key, None)


def runs_at_risk(
    world: World, key_of: Callable[[str], RunKey], run: RunState, promise: Promise
) -> Iterator[tuple[RunKey, Risk]]:
    """Yields the Runs that the start of a promise could stop.

    ``key_of`` returns the key of a Run by its UID.
    """
    if promise.at is None:
        return
    at = format_time(promise.at)
    for uid, odds in sorted(reservation_forecast(world, run, promise).odds.items()):
        risk = Risk(reservation=promise.name, at=at, kill_probability=format_milli(odds))
        yield key_of(uid), risk
