"""Promises as a replay saw them: what was promised, and what came of it.

The promise that counts is the earliest start that the Run was ever told by a Reservation. It is kept if the
Run starts by then, to the second; the error is how much later it started, negative where it was earlier.
"""

from array import array

import msgspec

from jobtree.api.quantities import SECOND
from jobtree.core.actions import Action
from jobtree.core.lease import RunKey

STARTS = ("Activate", "Supersede", "Settle")


class Told(msgspec.Struct):
    """What a waiting Run knows of its start."""

    earliest: int | None
    slips: int = 0


class Promises:
    def __init__(self) -> None:
        self.made = 0
        self.dated = 0
        self.kept = 0
        self.slipped = 0
        self.withdrawn = 0  # its Run ended before the promise was due, having started provisionally or unpaid
        self.slip_reasons: dict[str, int] = {}
        self.errors = array("q")  # milliseconds, of those with a date
        self._open: dict[RunKey, Told] = {}

    def note(self, action: Action, at: int) -> None:
        """Take in what an action says of its Run's promise; ``at`` on the planner's clock."""
        promise = action.promise
        if promise is None:
            return
        if action.kind == "Reserve":
            self.made += 1
            self._open[action.run] = Told(promise.at)
        elif action.kind == "Move":
            self._moved(self._open[action.run], promise.at, [slip.reason for slip in promise.slips])
        elif action.run in self._open:
            self._ended(self._open.pop(action.run), at, started=action.kind in STARTS)

    def _moved(self, told: Told, at: int | None, slips: list[str]) -> None:
        for reason in slips[told.slips :]:
            self.slip_reasons[reason] = self.slip_reasons.get(reason, 0) + 1
        told.slips = len(slips)
        if at is not None:
            told.earliest = at if told.earliest is None else min(at, told.earliest)

    def _ended(self, told: Told, at: int, *, started: bool) -> None:
        if not started:
            self.withdrawn += 1
        elif told.earliest is not None:
            error = at - told.earliest
            self.dated += 1
            self.kept += error < SECOND
            self.slipped += told.slips > 0
            self.errors.append(error)
