"""The Runs whose pods are refused: since when, and when something about that is due (N3).

A report of refused pods changes the refusals of a Run. When the grace of one is over, the next pass checks
the Run. When a pause is over, the Run queues or grows again, and the node is tried again.
"""

from collections.abc import Iterable
from heapq import heappop, heappush

from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.refusals import RefusedPods, reported_refusals
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.fleet import Fleet
from jobtree.core.world.pending_changes import PendingChanges
from jobtree.core.world.run_indexes import RunIndexes


class RefusedRuns:
    def __init__(
        self, runs: dict[RunKey, RunState], fleet: Fleet, indexes: RunIndexes, changes: PendingChanges
    ) -> None:
        self._runs = runs
        self._fleet = fleet
        self._indexes = indexes
        self._changes = changes
        self._due: list[tuple[int, RunKey]] = []

    def report(self, run: RunState, refused: Iterable[RefusedPods], grace: int) -> None:
        """Records which of its pods are refused now."""
        now = self._indexes.timers.now
        refusals = reported_refusals(run.refusals, refused, now, grace)
        if refusals != run.refusals:
            run.set_refusals(refusals, now)
            self.schedule(run)
            self._changes.runs_to_check.add(run.key)

    def schedule(self, run: RunState) -> None:
        """Schedules when the refusals of a Run are due."""
        now = self._indexes.timers.now
        for refusal in run.refusals:
            if refusal.next_instant > now:
                heappush(self._due, (refusal.next_instant, run.key))
        self._indexes.timers.schedule_run(run)

    def forget(self, run: RunState) -> None:
        """Forgets the refusals of an edited Run, which may not be refused any more."""
        if run.refusals and run.phase != "Running":
            run.set_refusals((), self._indexes.timers.now)
            self._retry(run)

    def process_due(self) -> None:
        """Handles what became due when the clock advanced."""
        now = self._indexes.timers.now
        while self._due and self._due[0][0] <= now:
            _, key = heappop(self._due)
            run = self._runs.get(key)
            if run is not None and run.refusals:
                self._changes.runs_to_check.add(key)
                run.update_pauses(now)
                self._retry(run)

    def _retry(self, run: RunState) -> None:
        """Has the next pass consider a Run again, on nodes that it avoided too."""
        self._indexes.promise_index.invalidate_feasibility(run)
        self._indexes.requeue(run)
        self._indexes.run_queue.update_growth(run)
        self._changes.date_search_generation += 1
        if run.flavor:
            self._fleet.flavor(run.flavor).reconsider_generation += 1
