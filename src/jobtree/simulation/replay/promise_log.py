"""Promises as a replay saw them: what was promised, and what came of it.

The promise that counts is the earliest start that the Run was ever told by a Reservation. It is kept if the
Run starts by then, to the second; the error is how much later it started, negative where it was earlier. A
start that is taken back at the same instant is none: what the Run was told before still counts.
"""

from array import array

import msgspec

from jobtree.api.schema.quantities import SECOND
from jobtree.core import KEEPS_PROMISE, REQUEUES, Action, Reason
from jobtree.simulation.replay.start_log import StartLog

TAKEN = str(Reason.RECLAIMED)  # started, and lost it again at once to somebody with more right


class PromisedStart(msgspec.Struct):
    """What a waiting Run knows of its start."""

    earliest: int | None
    slips: int = 0  # of its present Reservation, that were counted
    slipped: bool = False


class PromiseLog:
    def __init__(self) -> None:
        self.made = 0
        self.dated = 0
        self.kept = 0
        self.slipped = 0
        self.withdrawn = 0  # its Run ended before the promise was due, having started provisionally or unpaid
        self.slip_reasons: dict[str, int] = {}
        self.errors = array("q")  # milliseconds, of those with a date
        self._starts: StartLog[PromisedStart] = StartLog()

    def note(self, action: Action, at: int) -> None:
        """Take in what an action says of its Run's promise; ``at`` on the planner's clock."""
        promise, run_key, waiting = action.promise, action.run_key, self._starts.told
        if action.kind in REQUEUES:
            self._starts.take_back(run_key)
        if promise is None:
            return
        if action.kind == "Reserve":
            self.made += 1
            self._told_again(waiting.setdefault(run_key, PromisedStart(promise.at)), promise.at)
        elif action.kind == "Move":
            self._moved(waiting[run_key], promise.at, [slip.reason for slip in promise.slips])
        elif action.kind in KEEPS_PROMISE:
            self._starts.begin(run_key, at)
        elif waiting.pop(run_key, None) is not None:
            self.withdrawn += 1

    def close(self) -> None:
        """The instant is over: what started stays."""
        for promised, at in self._starts.close():
            self._count(promised, at)

    def _told_again(self, promised: PromisedStart, at: int | None) -> None:
        """Another Reservation: of a Run whose start was taken back, if it was told of one before."""
        promised.slips = 0
        if promised.earliest is not None and (at is None or at > promised.earliest):
            self.slip_reasons[TAKEN] = self.slip_reasons.get(TAKEN, 0) + 1
            promised.slipped = True
        self._earlier(promised, at)

    def _moved(self, promised: PromisedStart, at: int | None, slips: list[str]) -> None:
        for reason in slips[promised.slips :]:
            self.slip_reasons[reason] = self.slip_reasons.get(reason, 0) + 1
        promised.slips = len(slips)
        promised.slipped = promised.slipped or bool(slips)
        self._earlier(promised, at)

    @staticmethod
    def _earlier(promised: PromisedStart, at: int | None) -> None:
        if at is not None:
            promised.earliest = at if promised.earliest is None else min(at, promised.earliest)

    def _count(self, promised: PromisedStart, at: int) -> None:
        if promised.earliest is not None:
            error = at - promised.earliest
            self.dated += 1
            self.kept += error < SECOND
            self.slipped += promised.slipped
            self.errors.append(error)
