"""Judges the promises of a replay by the dates that its Reservations showed (R5).

The date that counts is the earliest that any Reservation ever showed. The promise is kept if at
that date the Run has finished, or runs, paid, at the promised width or wider, and is not stopped for a while
afterwards: for its checkpoint interval, between 30 minutes and ``minRuntime``. An early start that was
stopped before the date neither keeps nor breaks it.

A promise is conditional if it counts on the funding of the family, else firm.
"""

from array import array
from heapq import heappop, heappush

import msgspec

from jobtree.core import REQUEUES, RUN_ENDS, Action, Promise, PromiseCount, Reason, RunKey

NOT_RECORDED = "NotRecorded"  # a promise was broken and no reason was recorded: that is a fault
WITHDRAWN_BY_USER = frozenset({Reason.CANCELLED, Reason.EDITED, Reason.FINISHED})
UNPAID = "Unpaid"  # its Run ran at the date, but not all of the promised width was paid


class TrackedPromise(msgspec.Struct):
    """The dates that a Run was promised, and the outcome so far."""

    created: int  # the creation time of the Run
    due: int | None = None  # the earliest date ever shown
    shown_at: int | None = None  # when that date was shown first
    gpus: int = 0  # the width promised for that date
    conditional: bool = False
    slips: int = 0  # of the present Reservation, already counted
    slipped: bool = False
    reason: str = NOT_RECORDED  # why the promise would be broken, as it was last recorded
    judged: bool = False


class Miss(msgspec.Struct, frozen=True):
    """A promise that was not kept."""

    run_key: RunKey
    due: int
    conditional: bool
    reason: str


class Guard(msgspec.Struct):
    """A promise that was kept at its date and must not be stopped yet."""

    promise: TrackedPromise
    until: int


class PromiseLog:
    """The promises of all Runs of a replay, by Run. Instants are milliseconds of the planner's clock."""

    def __init__(self, guard: int) -> None:
        self.guard = guard  # a Run that is stopped sooner than this did not get its promised start
        self.made = 0
        self.firm, self.conditional = PromiseCount(), PromiseCount()
        self.slipped = 0
        self.withdrawn = 0  # by cancel, edit or the Run's own failure
        self.slip_reasons: dict[str, int] = {}
        self.broken_reasons: dict[str, int] = {}
        self.misses: list[Miss] = []
        self.errors = array("q")  # start minus date, of promises whose date has passed
        self.promised_waits = array("q")  # date minus creation, of the same
        self._tracked: dict[RunKey, TrackedPromise] = {}
        self._due: list[tuple[int, RunKey]] = []
        self._guards: dict[RunKey, Guard] = {}
        self._late: dict[RunKey, int] = {}  # dates of broken promises whose Run has not started since
        self._started: dict[RunKey, int] = {}  # when the running Runs started
        self._new_starts: list[RunKey] = []  # since the last judgement
        self._paid_widths: dict[RunKey, int] = {}  # of the running Runs
        self._recalled: set[RunKey] = set()  # running Runs that were demoted by a recall

    # Events

    def note(self, action: Action, paid_width: int, *, conditional: bool) -> None:
        """Notes an action whose leases were applied: ``paid_width`` is what its Run is paid for since.

        ``conditional`` says whether the promise of the action counts on the funding of the family.
        """
        run_key, promise = action.run_key, action.promise
        self._paid_widths[run_key] = paid_width
        if action.kind in REQUEUES:
            self._stop(run_key, action)
        elif action.kind in RUN_ENDS:
            self._end(run_key, action)
        elif action.kind == "Demote" and any(closing.reason == "Recalled" for closing in action.closes):
            self._recalled.add(run_key)
        elif action.kind == "Repay" and action.cause.reason is Reason.ADMITTED:
            self._recalled.discard(run_key)  # an envelope pays again
        elif action.kind == "Start":
            self._started[run_key] = action.at
            self._new_starts.append(run_key)
        if promise is not None and action.kind in ("Reserve", "Move"):
            self._tell(action, promise, conditional=conditional)
        elif action.kind == "Withdraw" and action.cause.reason in WITHDRAWN_BY_USER:
            self._withdraw(run_key)

    def judge(self, before: int) -> None:
        """Judges the promises whose date is before that instant, by how their Runs are now."""
        for run_key in self._new_starts:
            if run_key in self._late and run_key in self._started:  # the start was not undone at once
                self.errors.append(self._started[run_key] - self._late.pop(run_key))
        self._new_starts.clear()
        while self._due and self._due[0][0] < before:
            due, run_key = heappop(self._due)
            tracked = self._tracked.get(run_key)
            if tracked is not None and tracked.due == due and not tracked.judged:
                self._judge(run_key, tracked, due)

    # Verdicts

    def _judge(self, run_key: RunKey, tracked: TrackedPromise, due: int) -> None:
        self.promised_waits.append(due - tracked.created)
        self.slipped += tracked.slipped
        started = self._started.get(run_key)
        if started is None:
            tracked.judged = True
            self._late[run_key] = due
            self._break(run_key, tracked, tracked.reason)
            return
        self.errors.append(started - due)
        del self._tracked[run_key]
        if self._paid_widths[run_key] < tracked.gpus:
            reason = str(Reason.OWNER_NEEDS) if run_key in self._recalled else UNPAID
            self._break(run_key, tracked, reason)
        else:
            self._count(tracked).kept += 1
            self._guards[run_key] = Guard(tracked, due + self.guard)

    def _break(self, run_key: RunKey, tracked: TrackedPromise, reason: str) -> None:
        assert tracked.due is not None
        self.misses.append(Miss(run_key, tracked.due, tracked.conditional, reason))
        self._count(tracked).broken += 1
        self.broken_reasons[reason] = self.broken_reasons.get(reason, 0) + 1

    def _count(self, tracked: TrackedPromise) -> PromiseCount:
        return self.conditional if tracked.conditional else self.firm

    # What happens to a Run

    def _stop(self, run_key: RunKey, action: Action) -> None:
        reason = str(Reason.OWNER_NEEDS if run_key in self._recalled else action.cause.reason)
        self._recalled.discard(run_key)
        self._started.pop(run_key, None)
        guard = self._guards.pop(run_key, None)
        if guard is not None and action.at < guard.until:
            self._count(guard.promise).kept -= 1
            self._break(run_key, guard.promise, reason)
        if run_key in self._tracked:
            self._tracked[run_key].reason = reason

    def _end(self, run_key: RunKey, action: Action) -> None:
        """A Run that completes before its date keeps its promise; one that fails withdraws it."""
        tracked = self._tracked.get(run_key)
        if tracked is not None and tracked.due is not None and not tracked.judged:
            if action.kind == "Complete":
                self.promised_waits.append(tracked.due - tracked.created)
                self.slipped += tracked.slipped
                self._count(tracked).kept += 1
                self.errors.append(self._started[run_key] - tracked.due)
            else:
                self.withdrawn += 1
        for by_run in (self._tracked, self._guards, self._late, self._started, self._paid_widths):
            by_run.pop(run_key, None)
        self._recalled.discard(run_key)

    def _withdraw(self, run_key: RunKey) -> None:
        tracked = self._tracked.pop(run_key, None)
        self.withdrawn += tracked is not None and tracked.due is not None and not tracked.judged

    def _tell(self, action: Action, promise: Promise, *, conditional: bool) -> None:
        """A Reservation is made, or moves. Of the dates that one pass gives it, only the last is shown."""
        run_key, tracked = action.run_key, self._tracked.get(action.run_key)
        if action.kind == "Reserve":
            self.made += 1
            if tracked is None or tracked.judged:  # the promises of the former wait are over
                tracked = self._tracked[run_key] = TrackedPromise(promise.creation_order[0])
            tracked.slips = 0
        if tracked is None:
            return
        new_slips = promise.slips[tracked.slips :]
        for slip in new_slips:
            self.slip_reasons[slip.reason] = self.slip_reasons.get(slip.reason, 0) + 1
            tracked.slipped, tracked.reason = True, slip.reason
        tracked.slips = len(promise.slips)
        if action.kind == "Move" and tracked.shown_at == action.at and not new_slips:
            tracked.due = None
        if promise.at is not None and (tracked.due is None or promise.at < tracked.due):
            tracked.due, tracked.shown_at = promise.at, action.at
            tracked.gpus, tracked.conditional = promise.width, conditional
            heappush(self._due, (promise.at, run_key))
