"""Expected starts as a replay saw them: of the Runs that were told one, how many started by then.

A Run is told p50 and p90 when its Reservation is made and it has to wait. Odds are even where half of the
true starts come by p50, and nine in ten by p90.
"""

from jobtree.core import ExpectedStarts, RunKey, StartEstimate, World
from jobtree.simulation.replay.start_log import StartLog


class EstimateLog:
    def __init__(self) -> None:
        self.told = 0  # and started since
        self.by_p50 = 0
        self.by_p90 = 0
        self.starts: StartLog[StartEstimate] = StartLog()
        self._new: list[RunKey] = []
        self._expectations: ExpectedStarts | None = None

    def reserved(self, run_key: RunKey) -> None:
        """A Reservation was made."""
        self._new.append(run_key)

    def ask(self, world: World) -> None:
        """At the end of an instant: what started stays, and what the Runs that still wait are told."""
        for expected, at in self.starts.close():
            self.told += 1
            self.by_p50 += at <= expected.p50
            self.by_p90 += at <= expected.p90
        if not self._new:
            return
        if self._expectations is None or not self._expectations.is_current():
            self._expectations = ExpectedStarts(world)
        for run_key in self._new:
            run = world.runs.get(run_key)
            waits = run is not None and run.waiting and run_key not in self.starts.told
            answer = self._expectations.estimate_and_record(run) if run is not None and waits else None
            if answer is not None:
                self.starts.told[run_key] = answer
        self._new.clear()
