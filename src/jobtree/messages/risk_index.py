"""Threats: which promises may stop which Runs, and so who is warned (R11).

A promise that is told says anew whom it threatens. That changes something for those alone, so nobody else is
looked at.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain, islice

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
    risks: tuple[Risk, ...]  # one for each of the stages that would go together


class RiskIndex:
    def __init__(self) -> None:
        self.changed: set[RunKey] = set()  # who was warned, or is not any more, since this was last emptied
        self._of: dict[RunKey, dict[ReservationKey, PromiseRisk]] = {}
        self._by: dict[ReservationKey, set[RunKey]] = {}

    def known_risks(self, run_key: RunKey) -> KnownRisks | None:
        """What a Run has to know, those promises first that were made first; None: nothing threatens it."""
        threats = sorted(self._of.get(run_key, {}).values(), key=lambda one: one.precedence)
        if not threats:
            return None
        risks = chain.from_iterable(one.risks for one in threats)
        return KnownRisks(threats[0].since, tuple(islice(risks, MOST_RISKS)))

    def replace_risks(
        self, reservation: ReservationKey, promise: Promise, risks: Iterable[tuple[RunKey, Risk]]
    ) -> None:
        """All that this promise threatens now, and nobody else."""
        found: dict[RunKey, PromiseRisk] = {}
        for run_key, risk in risks:
            before = found[run_key].risks if run_key in found else ()
            found[run_key] = PromiseRisk(promise.precedence, promise.made_at, (*before, risk))
        for run_key in self._by.get(reservation, set()) - found.keys():
            self._remove(run_key, reservation)
        for run_key, threat in found.items():
            threats = self._of.setdefault(run_key, {})
            if threats.get(reservation) != threat:
                threats[reservation] = threat
                self.changed.add(run_key)
        self._by[reservation] = set(found)

    def keep_only(self, standing: Collection[ReservationKey]) -> None:
        """What other promises than these threatened is lifted."""
        for reservation in self._by.keys() - standing:
            for run_key in self._by.pop(reservation):
                self._remove(run_key, reservation)

    def forget(self, run_key: RunKey) -> None:
        """It has nothing to lose any more."""
        if self._of.pop(run_key, None):
            self.changed.add(run_key)

    def _remove(self, run_key: RunKey, reservation: ReservationKey) -> None:
        threats = self._of.get(run_key, {})
        if threats.pop(reservation, None) is not None:
            self.changed.add(run_key)
        if not threats:
            self._of.pop(run_key, None)


def runs_at_risk(
    world: World, key_of: Callable[[str], RunKey], run: RunState, promise: Promise
) -> Iterator[tuple[RunKey, Risk]]:
    """Who might have to go for a promise, with what probability, and all stages that would go with it.

    ``key_of`` names a Run by its UID.
    """
    if promise.at is None:
        return
    at = format_time(promise.at)
    for uid, odds in sorted(reservation_forecast(world, run, promise).odds.items()):
        risk = Risk(reservation=promise.name, at=at, kill_probability=format_milli(odds))
        for other in world.run_graph.members(world.runs[key_of(uid)]):
            yield other.key, risk
