"""The indexes that a Run is in: timers, queue, open leases, promises, and estimates of its start."""

from jobtree.core.runs.run_state import RunState
from jobtree.core.runs.start_calibration import StartCalibration
from jobtree.core.world.open_leases import OpenLeases
from jobtree.core.world.promise_index import PromiseIndex
from jobtree.core.world.run_queue import RunQueue
from jobtree.core.world.timers import TimerQueue


class RunIndexes:
    """Everything outside of a Run that must be updated when the Run changes."""

    def __init__(
        self,
        timers: TimerQueue,
        run_queue: RunQueue,
        open_leases: OpenLeases,
        promise_index: PromiseIndex,
        start_calibration: StartCalibration,
    ) -> None:
        self.timers = timers
        self.run_queue = run_queue
        self.open_leases = open_leases
        self.promise_index = promise_index
        self.start_calibration = start_calibration

    def reindex(self, run: RunState) -> None:
        """Updates the indexes after the phase, the promise or the provisional state of a Run changed."""
        if self.promise_index.update_provisional(run):
            self.open_leases.record_provisional(run)
        self.open_leases.record_interim(run)
        self.requeue(run)

    def requeue(self, run: RunState) -> None:
        """Updates the timers and the queue after a Run changed."""
        self.timers.schedule_run(run)
        self.run_queue.update(run)

    def edit(self, run: RunState) -> None:
        """Updates what was posted for an edited Run, and whether it wants to grow."""
        self.open_leases.repost(list(run.leases))
        self.run_queue.update_growth(run)

    def forget(self, run: RunState) -> None:
        """Forgets the timers and the expected start of a Run that the world does not have any more."""
        self.start_calibration.drop_run(run.key)
        self.timers.schedule_run(run)
