"""Telling: what Runs, Reservations and Budgets say of themselves, written only where it changed.

GPU-hours grow while nothing happens. They are brought up to date with every other change, and never make
one by themselves: a quiet cluster costs no writes.

A plan passes over Runs that a change does not help; what they were told may then speak of earlier figures.
They are told again when nothing else is to be done, so many at a time: there may be thousands of them.

What Budgets say changes with every lease. They say it when nothing is decided, and while much is, every other
second, or in turn, five a second, where they are many: figures for people need not be written twenty times as
often as they are read. What is foreseen of promises is told by foretelling.
"""

from itertools import islice

import msgspec

from jobtree.api.kinds.budget import Budget, BudgetStatus, ClassUse
from jobtree.api.kinds.run import RunStatus
from jobtree.core import (
    KnownRisks,
    RunKey,
    RunState,
    World,
    budget_status,
    refresh_stalled_verdicts,
    refresh_verdicts,
    run_status,
)
from jobtree.manager.decisions.write_set import EventNote, RunWrite
from jobtree.manager.planner.cluster_intake import ClusterIntake
from jobtree.manager.planner.event_notes import event_note
from jobtree.manager.planner.reservation_status import BUSY_MS, ReservationPublisher, ReservationWrites
from jobtree.messages.run_events import risk_event

REFRESH_MS = 5_000
REFRESH_BATCH = 200
REST_MS = 200
TURN_MS = 200


class StatusWrites(msgspec.Struct, frozen=True):
    statuses: tuple[RunWrite, ...]
    foretold: ReservationWrites
    budgets: tuple[tuple[str, BudgetStatus], ...]
    notes: tuple[EventNote, ...]


class StatusPublisher:
    def __init__(self, world: World, intake: ClusterIntake) -> None:
        self.reservations = ReservationPublisher(world, intake)
        self._world = world
        self._intake = intake
        self._runs: dict[str, RunStatus] = {}  # by UID, as last told
        self._budgets: dict[str, tuple[str, BudgetStatus]] = {}  # by name, with the UID, as last told
        self._budgets_at: dict[str, int] = {}  # when they were last told
        self._touched: set[RunKey] = set()
        self._touched_budgets: set[str] = set()
        self._unsure = False  # something changed since Runs were last told why they wait, or do not grow
        self._stale: dict[RunKey, None] = {}  # waiting Runs to be told again, in the order of the queue
        self._retold_at = 0
        self._paused: dict[RunKey, int] = {}  # told when their ranks start again: not true for ever

    # What others know already

    def set_run_status(self, uid: str, status: RunStatus) -> None:
        self._runs[uid] = status

    def set_budget_status(self, budget: Budget) -> None:
        self._budgets[budget.metadata.name] = (budget.metadata.uid, budget.status)

    def mark_changed(self, run_key: RunKey) -> None:
        self._touched.add(run_key)

    def mark_budget_changed(self, name: str) -> None:
        self._touched_budgets.add(name)

    def mark_unwritten(self, uid: str, run_key: RunKey) -> None:
        """What was to be written was not: say it again."""
        self._intake.promise_inputs_changed = True
        self._runs.pop(uid, None)
        self._touched.add(run_key)

    def mark_names_unwritten(self, names: set[str]) -> None:
        """The same for Budgets and Reservations, by name."""
        self._intake.promise_inputs_changed = self._intake.promise_inputs_changed or bool(names)
        for name in names & self._budgets.keys():
            del self._budgets[name]
            self._touched_budgets.add(name)

    def known_risks_of(self, run: RunState) -> KnownRisks:
        return self.reservations.risks.known_risks(run.key) or KnownRisks(run.phase_at)

    # What is to be told now

    def refresh(self, *, at_rest: bool) -> StatusWrites:
        self._touched |= self._intake.changed_runs
        self._touched_budgets |= self._intake.budgets
        stirred, self._intake.promise_inputs_changed = (
            self._intake.promise_inputs_changed or bool(self._touched),
            False,
        )
        self._unsure = self._unsure or stirred
        if at_rest and self._has_refreshes() and self._world.now >= self._retold_at + REFRESH_MS:
            self._refresh()
        self._resume()
        foretold = self.reservations.refresh(stirred=stirred, at_rest=at_rest)
        self._touched |= foretold.touched
        notes = self._update_risks()
        statuses = self._statuses()
        budgets = self._usage(at_rest=at_rest)
        self._touched = set()
        self._intake.changed_runs, self._intake.budgets = set(), set()
        return StatusWrites(statuses, foretold, budgets, (*foretold.notes, *notes))

    def refresh_due_at(self) -> int | None:
        """When to look again, if nothing happens before, for those who are still to be told."""
        if self.reservations.has_more:
            return self.reservations.continues_at
        if self._touched_budgets or self.reservations.is_behind:
            return self._world.now + REST_MS
        resumed = min(self._paused.values(), default=None)
        if not self._has_refreshes():
            return resumed
        retold = max(self._world.now + REST_MS, self._retold_at + REFRESH_MS)
        return retold if resumed is None else min(retold, resumed)

    def _has_refreshes(self) -> bool:
        return self._unsure or bool(self._stale)

    def _refresh(self) -> None:
        if self._unsure:
            self._stale.update((order[1:], None) for order in self._world.queue)
            self._unsure = False
        due = list(islice(self._stale, REFRESH_BATCH))
        for key in due:
            del self._stale[key]
        self._touched.update(refresh_verdicts(self._world, due), refresh_stalled_verdicts(self._world))
        self._retold_at = self._world.now

    def _resume(self) -> None:
        """A pause is over by itself: nothing else would make its Run say so."""
        over = [key for key, at in self._paused.items() if at <= self._world.now]
        for key in over:
            del self._paused[key]
        self._touched.update(over)

    def _update_risks(self) -> tuple[EventNote, ...]:
        """Runs in a conflict set see it at once (R11)."""
        notes: list[EventNote] = []
        for key in sorted(self._touched):
            warned = self.reservations.risks.known_risks(key)
            run = self._world.runs.get(key)
            if warned is None or run is None:
                continue
            told = self._runs.get(run.uid) or run.run_object.status
            known = {risk.reservation for risk in told.risk}
            notes += [
                event_note(self._intake, run, risk_event(self._world.now, key, risk))
                for risk in warned.risks
                if risk.reservation not in known
            ]
        return tuple(notes)

    def _statuses(self) -> tuple[RunWrite, ...]:
        writes: list[RunWrite] = []
        for key in sorted(self._touched):
            state = self._world.runs.get(key)
            if state is None or state.uid not in self._intake.runs or state.cancelled:
                continue
            run = self._intake.runs[state.uid]
            closing = self._intake.book.closing(state.uid)
            status = run_status(self._world, state, self.known_risks_of(state), closing)
            if status.resume_at is not None:
                self._paused[key] = state.resume_at
            told = self._runs.get(state.uid) or run.status
            if status.reservation and self.reservations.is_unwritten(state, status.reservation):
                continue  # both are told together
            if timeless(status) != timeless(told):
                self._runs[state.uid] = status
                writes.append(RunWrite(run, status))
        return tuple(writes)

    def _usage(self, *, at_rest: bool) -> tuple[tuple[str, BudgetStatus], ...]:
        found: list[tuple[str, BudgetStatus]] = []
        self._touched_budgets &= self._world.budgets.budgets.keys()
        now = self._world.now
        pause = max(BUSY_MS, TURN_MS * len(self._touched_budgets))
        due = {
            name
            for name in self._touched_budgets
            if at_rest or name not in self._budgets_at or now >= self._budgets_at[name] + pause
        }
        self._touched_budgets -= due
        for name in sorted(due):
            status = budget_status(self._world, name)
            uid = self._world.budgets.budgets[name].metadata.uid
            known, told = self._budgets.get(name, ("", status))
            if known != uid or timeless_usage(told) != timeless_usage(status):
                self._budgets[name] = (uid, status)
                self._budgets_at[name] = now
                found.append((name, status))
        return tuple(found)


def timeless(status: RunStatus) -> RunStatus:
    """A status without what time alone changes, or only says which endings were written."""
    funding = tuple(msgspec.structs.replace(share, gpu_hours="0") for share in status.funding)
    return msgspec.structs.replace(status, funding=funding, closing=())


def timeless_usage(status: BudgetStatus) -> BudgetStatus:
    def without(usage: tuple[msgspec.Struct, ...]) -> tuple[msgspec.Struct, ...]:
        still = {
            "used_gpu_hours": "0",
            "left_gpu_hours": None,
            "used_credits": "0",
            "left_credits": None,
            "gpu_hours_by_class": ClassUse(),
        }
        known = [field for field in still if usage and hasattr(usage[0], field)]
        return tuple(
            msgspec.structs.replace(one, **{field: still[field] for field in known}) for one in usage
        )

    return msgspec.structs.replace(
        status, envelopes=without(status.envelopes), aggregate_caps=without(status.aggregate_caps)
    )
