"""What is measured while a trace is replayed, the same for every scheduler.

Levels (GPUs in use, in service, waited for) are summed up over time in steps, exactly and in integers: a
change adds once to its own step and once to all that follow. Figures about the fleet count the time in
which jobs arrive, from the first submission to the last: before and after it a fleet empties for want of
work, whatever the scheduler does.
"""

from array import array
from itertools import accumulate

from jobtree.api.schema.quantities import HOUR
from jobtree.simulation.inputs.job_trace import Trace

STEPS = 400  # that the time of arrivals is cut into, at most
NEVER = -1


class TimeWeightedValue:
    """A number that changes with time, and its sum over time: per step, and while jobs arrive."""

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
        """How many steps there are up to the last change."""
        return len(self._changes)

    def means(self, steps: int) -> list[float]:
        """The mean value in each of the first steps."""
        more = [0] * (steps - self.steps)
        before = accumulate([0, *self._changes, *more])
        return [
            (level * self._step + part) / self._step
            for level, part in zip(before, [*self._parts, *more], strict=False)
        ]


class Stops:
    """Jobs that were stopped for one reason: how often, and the GPU-milliseconds of work it cost."""

    def __init__(self) -> None:
        self.count = 0
        self.lost = 0


class Meter:
    def __init__(self, trace: Trace, node_gpus: list[int]) -> None:
        self.trace = trace
        self.begin, self.end = trace.submit[0], max(trace.submit[-1], trace.submit[0] + 1)
        self.step = max(HOUR, -(-(self.end - self.begin) // (STEPS * HOUR)) * HOUR)
        self.used, self.capacity, self.waiting, self.stranded = (self._level() for _ in range(4))
        self.by_team = [self._level() for _ in trace.teams]
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

    def _level(self) -> TimeWeightedValue:
        return TimeWeightedValue(self.begin, self.end, self.step)

    # The fleet

    def take(self, node: int, gpus: int, at: int) -> None:
        """GPUs of a node are in use from now on; a negative number is given back."""
        before = self._stranded(node)
        self._free[node] -= gpus
        self._note_stranded(node, before, at)

    def go_down(self, node: int, at: int) -> None:
        before, self._up[node] = self._stranded(node), False
        self._note_stranded(node, before, at)
        self.capacity.add(-self._node_gpus[node], at)

    def come_up(self, node: int, at: int) -> None:
        before, self._up[node] = self._stranded(node), True
        self._note_stranded(node, before, at)
        self.capacity.add(self._node_gpus[node], at)

    def _stranded(self, node: int) -> int:
        """Free GPUs beside others that are in use: no job that wants the whole node can have them."""
        free = self._free[node]
        return free if self._up[node] and free < self._node_gpus[node] else 0

    def _note_stranded(self, node: int, before: int, at: int) -> None:
        if change := self._stranded(node) - before:
            self.stranded.add(change, at)

    # Jobs

    def arrive(self, job: int, at: int) -> None:
        self.waiting.add(self.trace.gpus[job], at)

    def widen(self, job: int, gpus: int, at: int) -> None:
        """A job has so many GPUs more than before, or fewer."""
        self.used.add(gpus, at)
        self.by_team[self.trace.team[job]].add(gpus, at)

    def start(self, job: int, at: int) -> None:
        self.waiting.add(-self.trace.gpus[job], at)
        if self.first_start[job] == NEVER:
            self.first_start[job] = at

    def take_back_start(self, job: int, at: int) -> None:
        """A job that started at this very instant did not, after all."""
        self.waiting.add(self.trace.gpus[job], at)
        if self.first_start[job] == at:
            self.first_start[job] = NEVER

    def stop(self, job: int, at: int, reason: str, lost: int) -> None:
        """A job was stopped and waits again; ``lost`` GPU-milliseconds of its work must be done again."""
        self.stopped[job] += 1
        self.waiting.add(self.trace.gpus[job], at)
        self.interrupt(at, reason, lost)

    def interrupt(self, at: int, reason: str, lost: int) -> None:
        """A job goes on, but from its last checkpoint: it was stopped, or lost a node and found another."""
        stops = self.stops.setdefault(reason, Stops())
        stops.count += 1
        stops.lost += lost
        if at < self.end:
            self.lost_in_window += lost

    def end_job(self, job: int, at: int) -> None:
        self.finish[job] = at
        self.finished += 1
