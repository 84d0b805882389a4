"""Counts how many Runs of a replay started by their expected start.

A Run gets an estimate, p50 and p90, when its Reservation is made and it must wait. The estimates are
calibrated if half of the Runs start by p50 and 90 % by p90.
"""

from jobtree.core import ExpectedStarts, RunKey, StartEstimate, World
from jobtree.simulation.replay.start_log import StartLog


class EstimateLog:
    def __init__(self) -> None:
        self.started = 0  # Runs with an estimate that have started
        self.by_p50 = 0
        self.by_p90 = 0
        self.starts: StartLog[StartEstimate] = StartLog()
        self._new: list[RunKey] = []
        self._expectations: ExpectedStarts | None = None

    def record_reservation(self, run_key: RunKey) -> None:
        self._new.append(run_key)

    def close_instant(self, world: World) -> None:
        """Counts the starts of this instant, and estimates the starts of Runs with a new Reservation."""
        for first_estimate, at in self.starts.close_instant():
            self.started += 1
            self.by_p50 += at <= first_estimate.p50
            self.by_p90 += at <= first_estimate.p90
        if not self._new:
            return
        if self._expectations is None or not self._expectations.is_current():
            self._expectations = ExpectedStarts(world)
        for run_key in self._new:
            run = world.runs.get(run_key)
            waits = run is not None and run.waiting and run_key not in self.starts.waiting
            estimate = self._expectations.estimate_and_record(run) if run is not None and waits else None
            if estimate is not None:
                self.starts.waiting[run_key] = estimate
        self._new.clear()
