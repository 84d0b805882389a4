"""Collects the statuses of Runs and Budgets that have changed, for the next write set.

GPU-hours grow while nothing happens. They are written with any other change of a status, and are no change by
themselves: a quiet cluster costs no writes.

A plan skips waiting Runs that a change does not help, so the figures in their verdicts can be outdated.
These verdicts are refreshed when nothing is decided, ``REFRESH_BATCH`` at a time: thousands of Runs may wait.

The status of a Budget changes with every lease. It is written when nothing is decided. While much is decided,
each Budget is written every ``BUSY_MS``, and at most one per ``TURN_MS`` if there are many: people do not
read these figures more often. Reservations are written by ``reservation_status``.
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
from jobtree.messages.risk_index import is_news
from jobtree.messages.run_events import risk_event

REFRESH_MS = 5_000
REFRESH_BATCH = 200
REST_MS = 200  # without a decision, until statuses that could wait are written
TURN_MS = 200  # between two Budgets, while much is decided


class StatusWrites(msgspec.Struct, frozen=True):
    statuses: tuple[RunWrite, ...]
    reservation_writes: ReservationWrites
    budgets: tuple[tuple[str, BudgetStatus], ...]
    event_notes: tuple[EventNote, ...]


class StatusPublisher:
    def __init__(self, world: World, intake: ClusterIntake) -> None:
        self.reservations = ReservationPublisher(world, intake)
        self._world = world
        self._intake = intake
        self._runs: dict[str, RunStatus] = {}  # by UID, as last written
        self._budgets: dict[str, tuple[str, BudgetStatus]] = {}  # by name, with the UID, as last written
        self._budgets_at: dict[str, int] = {}  # when each was last written
        self._touched: set[RunKey] = set()
        self._touched_budgets: set[str] = set()
        self._verdicts_changed = False  # whether verdicts may be outdated since the last refresh began
        self._stale: dict[
            RunKey, None
        ] = {}  # waiting Runs whose verdicts are to be refreshed, in queue order
        self._refreshed_at = 0
        self._paused: dict[
            RunKey, int
        ] = {}  # instants at which their ranks start again: their statuses change then

    # What is written already

    def set_run_status(self, uid: str, status: RunStatus) -> None:
        self._runs[uid] = status

    def set_budget_status(self, budget: Budget) -> None:
        self._budgets[budget.metadata.name] = (budget.metadata.uid, budget.status)

    def mark_changed(self, run_key: RunKey) -> None:
        self._touched.add(run_key)

    def mark_budget_changed(self, name: str) -> None:
        self._touched_budgets.add(name)

    def mark_unwritten(self, uid: str, run_key: RunKey) -> None:
        """Has a status written again that could not be written."""
        self._intake.promise_inputs_changed = True
        self._runs.pop(uid, None)
        self._touched.add(run_key)

    def mark_names_unwritten(self, names: set[str]) -> None:
        """Does the same for Budgets and Reservations, by name."""
        self._intake.promise_inputs_changed = self._intake.promise_inputs_changed or bool(names)
        for name in names & self._budgets.keys():
            del self._budgets[name]
            self._touched_budgets.add(name)

    def known_risks_of(self, run: RunState) -> KnownRisks:
        return self.reservations.risks.known_risks(run.key) or KnownRisks(run.phase_at)

    # What is to be written now

    def refresh(self, *, at_rest: bool) -> StatusWrites:
        self._touched |= self._intake.changed_runs
        self._touched_budgets |= self._intake.changed_budgets
        inputs_changed, self._intake.promise_inputs_changed = (
            self._intake.promise_inputs_changed or bool(self._touched),
            False,
        )
        self._verdicts_changed = self._verdicts_changed or inputs_changed
        if at_rest and self._has_refreshes() and self._world.now >= self._refreshed_at + REFRESH_MS:
            self._refresh()
        self._resume()
        reservation_writes = self.reservations.refresh(inputs_changed=inputs_changed, at_rest=at_rest)
        self._touched |= reservation_writes.touched
        graph = self._world.run_graph
        self._touched |= {tree for key in self._touched for tree in graph.trees_with_name(key)}
        event_notes = self._update_risks()
        statuses = self._statuses()
        budgets = self._budget_statuses(at_rest=at_rest)
        self._touched = set()
        self._intake.changed_runs, self._intake.changed_budgets = set(), set()
        return StatusWrites(
            statuses, reservation_writes, budgets, (*reservation_writes.event_notes, *event_notes)
        )

    def refresh_due_at(self) -> int | None:
        """Returns the instant at which statuses are left to write, even if nothing happens before."""
        if self.reservations.has_more and not self.reservations.is_held:
            return self.reservations.continues_at
        if self._touched_budgets or self.reservations.is_behind:
            return self._world.now + REST_MS
        resumed = min(self._paused.values(), default=None)
        if not self._has_refreshes():
            return resumed
        retold = max(self._world.now + REST_MS, self._refreshed_at + REFRESH_MS)
        return retold if resumed is None else min(retold, resumed)

    def _has_refreshes(self) -> bool:
        return self._verdicts_changed or bool(self._stale)

    def _refresh(self) -> None:
        if self._verdicts_changed:
            self._stale.update((order[1:], None) for order in self._world.queue)
            self._verdicts_changed = False
        due = list(islice(self._stale, REFRESH_BATCH))
        for key in due:
            del self._stale[key]
        self._touched.update(refresh_verdicts(self._world, due), refresh_stalled_verdicts(self._world))
        self._refreshed_at = self._world.now

    def _resume(self) -> None:
        """Marks Runs whose pause between two attempts is over: nothing else happens at that instant."""
        over = [key for key, at in self._paused.items() if at <= self._world.now]
        for key in over:
            del self._paused[key]
        self._touched.update(over)

    def _update_risks(self) -> tuple[EventNote, ...]:
        """Returns an Event for each risk of which a Run is not told in its status yet (R11)."""
        event_notes: list[EventNote] = []
        for key in sorted(self._touched):
            warned = self.reservations.risks.known_risks(key)
            run = self._world.runs.get(key)
            if warned is None or run is None:
                continue
            written = self._runs.get(run.uid) or run.run_object.status
            written_risks = {risk.reservation: risk.kill_probability for risk in written.risk}
            event_notes += [
                event_note(self._intake, run, risk_event(self._world.now, key, risk))
                for risk in warned.risks
                if is_news(written_risks.get(risk.reservation), risk)
            ]
        return tuple(event_notes)

    def _statuses(self) -> tuple[RunWrite, ...]:
        writes: list[RunWrite] = []
        for key in sorted(self._touched):
            run = self._world.runs.get(key)
            if run is None or run.uid not in self._intake.runs or run.cancelled:
                continue
            run_object = self._intake.runs[run.uid]
            closing = self._intake.lease_objects.closing(run.uid)
            status = run_status(self._world, run, self.known_risks_of(run), closing)
            if status.resume_at is not None:
                self._paused[key] = run.resume_at
            written = self._runs.get(run.uid) or run_object.status
            if status.reservation and self.reservations.is_unwritten(run, status.reservation):
                continue  # it is written together with the Reservation
            if timeless(status) != timeless(written):
                self._runs[run.uid] = status
                writes.append(RunWrite(run_object, status))
        return tuple(writes)

    def _budget_statuses(self, *, at_rest: bool) -> tuple[tuple[str, BudgetStatus], ...]:
        writes: list[tuple[str, BudgetStatus]] = []
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
            written_uid, written = self._budgets.get(name, ("", status))
            if written_uid != uid or timeless_usage(written) != timeless_usage(status):
                self._budgets[name] = (uid, status)
                self._budgets_at[name] = now
                writes.append((name, status))
        return tuple(writes)


def timeless(status: RunStatus) -> RunStatus:
    """Returns a status without figures that time alone changes, and without the list of unwritten endings."""
    funding = tuple(msgspec.structs.replace(share, gpu_hours="0") for share in status.funding)
    return msgspec.structs.replace(status, funding=funding, closing=(), ended=())


def timeless_usage(status: BudgetStatus) -> BudgetStatus:
    def without(usage: tuple[msgspec.Struct, ...]) -> tuple[msgspec.Struct, ...]:
        constant = {
            "used_gpu_hours": "0",
            "committed_gpu_hours": None,
            "left_gpu_hours": None,
            "used_credits": "0",
            "left_credits": None,
            "gpu_hours_by_class": ClassUse(),
        }
        fields = [field for field in constant if usage and hasattr(usage[0], field)]
        return tuple(
            msgspec.structs.replace(row, **{field: constant[field] for field in fields}) for row in usage
        )

    return msgspec.structs.replace(
        status, envelopes=without(status.envelopes), aggregate_caps=without(status.aggregate_caps)
    )
