"""Runs a replay in virtual time, from instant to instant: jobs arrive and end, nodes fail and return.

At one instant, jobs end first, then nodes change, then jobs arrive, then the scheduler decides.
"""

from abc import ABC, abstractmethod
from heapq import heapify, heappop, heappush

from jobtree.simulation.inputs.replay_setup import ReplaySetup
from jobtree.simulation.replay.meter import Meter

FOREVER = 1 << 62


class Simulation(ABC):
    """One scheduler on one setup. Times are milliseconds from the beginning of the trace."""

    def __init__(self, setup: ReplaySetup) -> None:
        self.setup = setup
        self.trace = setup.trace
        self.meter = Meter(setup.trace, [node.gpus for node in setup.nodes], setup.behavior.restart_cost)
        self.now = 0
        self._arrived = 0
        changes = [(outage.start, 0, outage.node) for outage in setup.outages]
        changes += [(outage.end, 1, outage.node) for outage in setup.outages]
        self._node_changes = sorted(changes, key=lambda change: (change[0], -change[1], change[2]))
        self._changed = 0
        self._ends: list[tuple[int, int, int]] = []  # instant, job, number of the expected end
        self._valid_end: dict[int, int] = {}  # by job, the number of the expected end that is valid
        self._expected = 0

    def step(self) -> bool:
        """Processes the next instant; returns False if there is none, or all jobs are finished."""
        if self.meter.finished == len(self.trace):
            return False
        at = self._next_instant()
        if at == FOREVER:
            return False
        self.now = at
        self.arrive_at(at)
        while self._ends and self._ends[0][0] <= at:
            end, job, number = heappop(self._ends)
            if self._valid_end.get(job) == number:
                self.complete(job, end)
        self._change_nodes(at)
        while self._arrived < len(self.trace) and self.trace.submit[self._arrived] <= at:
            self.meter.arrive(self._arrived, at)
            self.submit(self._arrived)
            self._arrived += 1
        self.decide(at)
        return True

    def _next_instant(self) -> int:
        ends = self._ends
        while ends and self._valid_end.get(ends[0][1]) != ends[0][2]:
            heappop(ends)
        at = ends[0][0] if ends else FOREVER
        if self._arrived < len(self.trace):
            at = min(at, self.trace.submit[self._arrived])
        if self._changed < len(self._node_changes):
            at = min(at, self._node_changes[self._changed][0])
        return min(at, self.own_instant())

    def _change_nodes(self, at: int) -> None:
        while self._changed < len(self._node_changes) and self._node_changes[self._changed][0] <= at:
            _, up, node = self._node_changes[self._changed]
            self._changed += 1
            (self.meter.come_up if up else self.meter.go_down)(node, max(at, self.meter.begin))
            (self.node_up if up else self.node_down)(node, at)

    def expect_end(self, job: int, at: int | None) -> None:
        """Sets the instant at which the work of a job is done; None if the job does not run."""
        if at is None:
            self._valid_end.pop(job, None)
            return
        self._expected += 1
        self._valid_end[job] = self._expected
        heappush(self._ends, (at, job, self._expected))
        if len(self._ends) > 4 * len(self._valid_end) + 1000:
            self._ends = [entry for entry in self._ends if self._valid_end.get(entry[1]) == entry[2]]
            heapify(self._ends)

    def own_instant(self) -> int:
        """Returns the next instant at which the scheduler has something to do by itself."""
        return FOREVER

    def arrive_at(self, at: int) -> None:  # noqa: B027  most schedulers have no clock of their own
        """Sets the clock of the scheduler to an instant."""

    @abstractmethod
    def submit(self, job: int) -> None: ...

    @abstractmethod
    def complete(self, job: int, at: int) -> None: ...

    @abstractmethod
    def node_down(self, node: int, at: int) -> None: ...

    @abstractmethod
    def node_up(self, node: int, at: int) -> None: ...

    @abstractmethod
    def decide(self, at: int) -> None: ...
