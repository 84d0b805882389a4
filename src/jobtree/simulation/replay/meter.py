"""Measures a replay, in the same way for every scheduler.

Values that change with time (GPUs in use, in service, waited for) are summed in integers, per step of time.
Figures of the fleet count only the time from the first submission to the last, because afterwards the fleet
empties under every scheduler.
"""

from array import array
from itertools import accumulate

from jobtree.api.schema.quantities import HOUR
from jobtree.simulation.inputs.job_trace import Trace

MAX_STEPS = 400  # of the time in which jobs arrive
NEVER = -1


class TimeWeightedValue:
    """A value that changes with time, and its sum over time: per step, and while jobs arrive."""

    def __init__(self, begin: int, end: int, step: int) -> None:
        self.value = 0
        self.in_window = 0  # value × milliseconds
        self._begin, self._end, self._step = begin, end, step
        self._changes: list[int] = []
        self._parts: list[int] = []

    def add(self, change: int, at: int) -> None:
        self.value += change
        if at < self._end:
            self.in_window += change * (self._end - at)
        number, past = divmod(at - self._begin, self._step)
        while len(self._changes) <= number:
            self._changes.append(0)
            self._parts.append(0)
        self._changes[number] += change
        self._parts[number] += change * (self._step - past)

    @property
    def steps(self) -> int:
        """The number of steps up to the last change."""
        return len(self._changes)

    def means(self, steps: int) -> list[float]:
        """Returns the mean value in each of the first steps."""
        more = [0] * (steps - self.steps)
        before = accumulate([0, *self._changes, *more])
        return [
            (level * self._step + part) / self._step
            for level, part in zip(before, [*self._parts, *more], strict=False)
        ]


class Stops:
    """The number of stops for one reason, and the GPU-milliseconds of work that they cost."""

    def __init__(self) -> None:
        self.count = 0
        self.lost = 0


class Meter:
    def __init__(self, trace: Trace, node_gpus: list[int], restart_cost: int = 0) -> None:
        self.trace = trace
        self.restart_cost = restart_cost  # milliseconds without progress after each restart
        self.restart_lost = 0  # GPU-milliseconds of these
        self._working_at: dict[int, int] = {}  # when the jobs that restart make progress again
        self.begin, self.end = trace.submit[0], max(trace.submit[-1], trace.submit[0] + 1)
        self.step = max(HOUR, -(-(self.end - self.begin) // (MAX_STEPS * HOUR)) * HOUR)
        self.used, self.capacity, self.waiting, self.stranded = (self._new_value() for _ in range(4))
        self.by_team = [self._new_value() for _ in trace.teams]
        count = len(trace)
        self.first_start = array("q", [NEVER]) * count
        self.finish = array("q", [NEVER]) * count
        self.stopped = array("l", [0]) * count
        self.finished = 0
        self.lost_in_window = 0
        self.stops: dict[str, Stops] = {}
        self._node_gpus = node_gpus
        self._free = list(node_gpus)
        self._up = [True] * len(node_gpus)
        self.capacity.add(sum(node_gpus), self.begin)

    def _new_value(self) -> TimeWeightedValue:
        return TimeWeightedValue(self.begin, self.end, self.step)

    # The fleet

    def take(self, node: int, gpus: int, at: int) -> None:
        """Counts GPUs of a node as used; a negative number is released."""
        before = self._stranded(node)
        self._free[node] -= gpus
        self._update_stranded(node, before, at)

    def go_down(self, node: int, at: int) -> None:
        before, self._up[node] = self._stranded(node), False
        self._update_stranded(node, before, at)
        self.capacity.add(-self._node_gpus[node], at)

    def come_up(self, node: int, at: int) -> None:
        before, self._up[node] = self._stranded(node), True
        self._update_stranded(node, before, at)
        self.capacity.add(self._node_gpus[node], at)

    def _stranded(self, node: int) -> int:
        """Returns the free GPUs of a node that is partly in use: a job of a whole node cannot have them."""
        free = self._free[node]
        return free if self._up[node] and free < self._node_gpus[node] else 0

    def _update_stranded(self, node: int, before: int, at: int) -> None:
        if change := self._stranded(node) - before:
            self.stranded.add(change, at)

    # Jobs

    def arrive(self, job: int, at: int) -> None:
        self.waiting.add(self.trace.gpus[job], at)

    def widen(self, job: int, gpus: int, at: int) -> None:
        """Counts a change of the GPUs of a job."""
        self.used.add(gpus, at)
        self.by_team[self.trace.team[job]].add(gpus, at)

    def start(self, job: int, at: int) -> int:
        """A job starts. Returns how long it makes no progress: after a stop it restarts."""
        self.waiting.add(-self.trace.gpus[job], at)
        if self.first_start[job] == NEVER:
            self.first_start[job] = at
        return self.restart(job, at) if self.stopped[job] else 0

    def restart(self, job: int, at: int) -> int:
        """A job that was stopped or lost a node begins again. Returns how long it makes no progress."""
        if self.restart_cost:
            self._end_restart(job, at)
            self._working_at[job] = at + self.restart_cost
            self._lose_to_restart(self.restart_cost * self.trace.gpus[job], at)
        return self.restart_cost

    def _end_restart(self, job: int, at: int) -> None:
        """What is left of a restart that did not come to its end was not lost."""
        left = self._working_at.pop(job, at) - at
        if left > 0:
            self._lose_to_restart(-left * self.trace.gpus[job], at)

    def _lose_to_restart(self, amount: int, at: int) -> None:
        self.restart_lost += amount
        if at < self.end:
            self.lost_in_window += amount

    def undo_start(self, job: int, at: int) -> None:
        """Undoes a start of this same instant."""
        self._end_restart(job, at)
        self.waiting.add(self.trace.gpus[job], at)
        if self.first_start[job] == at:
            self.first_start[job] = NEVER

    def stop(self, job: int, at: int, reason: str, lost: int) -> None:
        """Counts a job that was stopped and waits again; it repeats ``lost`` GPU-milliseconds of work."""
        self.stopped[job] += 1
        self._end_restart(job, at)
        self.waiting.add(self.trace.gpus[job], at)
        self.interrupt(at, reason, lost)

    def interrupt(self, at: int, reason: str, lost: int) -> None:
        """Counts a job that continues from its last checkpoint, later or on another node."""
        stops = self.stops.setdefault(reason, Stops())
        stops.count += 1
        stops.lost += lost
        if at < self.end:
            self.lost_in_window += lost

    def end_job(self, job: int, at: int) -> None:
        self._end_restart(job, at)
        self.finish[job] = at
        self.finished += 1
