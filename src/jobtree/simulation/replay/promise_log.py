"""Counts the promises of a replay, and whether they were kept.

The earliest start that a Reservation ever gave to a Run counts. The promise is kept if the Run starts by
then, to the second. The error is the difference of start and promise, negative for an earlier start. A start
that is undone at the same instant does not count, and the promise from before still holds.
"""

from array import array

import msgspec

from jobtree.api.schema.quantities import SECOND
from jobtree.core import KEEPS_PROMISE, REQUEUES, Action, Reason
from jobtree.simulation.replay.start_log import StartLog

RECLAIMED = str(Reason.RECLAIMED)  # the Run started, and lost its GPUs at the same instant


class PromisedStart(msgspec.Struct):
    """The promised start of a waiting Run."""

    earliest: int | None
    slips: int = 0  # counted slips of its present Reservation
    slipped: bool = False


class PromiseLog:
    def __init__(self) -> None:
        self.made = 0
        self.dated = 0
        self.kept = 0
        self.slipped = 0
        self.withdrawn = 0  # the Run ended before the date: it had started provisionally or opportunistically
        self.slip_reasons: dict[str, int] = {}
        self.errors = array("q")  # milliseconds, of those with a date
        self._starts: StartLog[PromisedStart] = StartLog()

    def record_action(self, action: Action, at: int) -> None:
        """Counts what an action means for the promise of its Run; ``at`` is an instant of the planner."""
        promise, run_key, waiting = action.promise, action.run_key, self._starts.waiting
        if action.kind in REQUEUES:
            self._starts.undo_start(run_key)
        if promise is None:
            return
        if action.kind == "Reserve":
            self.made += 1
            self._record_reservation(waiting.setdefault(run_key, PromisedStart(promise.at)), promise.at)
        elif action.kind == "Move":
            self._moved(waiting[run_key], promise.at, [slip.reason for slip in promise.slips])
        elif action.kind in KEEPS_PROMISE:
            self._starts.record_start(run_key, at)
        elif waiting.pop(run_key, None) is not None:
            self.withdrawn += 1

    def close_instant(self) -> None:
        """Counts the starts of this instant."""
        for promised, at in self._starts.close_instant():
            self._count(promised, at)

    def _record_reservation(self, promised: PromisedStart, at: int | None) -> None:
        """Counts a Reservation, which may be another one after a start that was undone."""
        promised.slips = 0
        if promised.earliest is not None and (at is None or at > promised.earliest):
            self.slip_reasons[RECLAIMED] = self.slip_reasons.get(RECLAIMED, 0) + 1
            promised.slipped = True
        self._keep_earliest(promised, at)

    def _moved(self, promised: PromisedStart, at: int | None, slips: list[str]) -> None:
        for reason in slips[promised.slips :]:
            self.slip_reasons[reason] = self.slip_reasons.get(reason, 0) + 1
        promised.slips = len(slips)
        promised.slipped = promised.slipped or bool(slips)
        self._keep_earliest(promised, at)

    @staticmethod
    def _keep_earliest(promised: PromisedStart, at: int | None) -> None:
        if at is not None:
            promised.earliest = at if promised.earliest is None else min(at, promised.earliest)

    def _count(self, promised: PromisedStart, at: int) -> None:
        if promised.earliest is not None:
            error = at - promised.earliest
            self.dated += 1
            self.kept += error < SECOND
            self.slipped += promised.slipped
            self.errors.append(error)
