"""The base of the schedulers that Jobtree is compared with.

A job keeps the GPUs of its placement until it ends, is stopped, or loses a node. A job that lost a node waits
again in its old place of the queue, and continues from its last checkpoint.
"""

from abc import abstractmethod
from array import array
from typing import NamedTuple

from jobtree.simulation.inputs.replay_setup import ReplaySetup
from jobtree.simulation.inputs.user_behavior import assumed_ends
from jobtree.simulation.replay.engine import Simulation
from jobtree.simulation.schedulers.node_pool import Nodes, Placement


class Running(NamedTuple):
    placement: Placement
    since: int
    until: int  # the end that the scheduler assumes
    delay: int  # after a stop, it makes no progress for so long


class Scheduler(Simulation):
    def __init__(self, setup: ReplaySetup) -> None:
        super().__init__(setup)
        self.nodes = Nodes(len(setup.nodes), setup.node_size())
        self.running: dict[int, Running] = {}
        self.on_node: list[set[int]] = [set() for _ in setup.nodes]
        self.assumed = assumed_ends(setup.trace, setup.behavior)
        self.left = array("q", setup.trace.duration)  # milliseconds of work
        self.has_changed = False  # since the last decision

    @abstractmethod
    def enqueue(self, job: int) -> None: ...

    @abstractmethod
    def schedule(self, at: int) -> None: ...

    def submit(self, job: int) -> None:
        self.enqueue(job)
        self.has_changed = True

    def decide(self, at: int) -> None:
        if self.has_changed:
            self.has_changed = False
            self.schedule(at)

    def begin(self, job: int, placement: Placement, at: int) -> None:
        self.nodes.take(placement)
        delay = self.meter.start(job, at)
        self.running[job] = Running(placement, at, at + delay + self.assumed[job], delay)
        for node, gpus in placement:
            self.on_node[node].add(job)
            self.meter.take(node, gpus, at)
        self.meter.widen(job, self.trace.gpus[job], at)
        self.expect_end(job, at + delay + self.left[job])

    def complete(self, job: int, at: int) -> None:
        self.release(job, at)
        self.meter.end_job(job, at)

    def halt(self, job: int, at: int, reason: str) -> None:
        """Stops a job, which waits again."""
        running = self.running[job]
        ran = max(0, at - running.since - running.delay)
        self.release(job, at)
        kept = self.setup.behavior.kept(ran)
        self.left[job] -= kept
        self.meter.stop(job, at, reason, (ran - kept) * self.trace.gpus[job])
        self.enqueue(job)

    def release(self, job: int, at: int) -> None:
        placement = self.running.pop(job).placement
        self.nodes.give_back(placement)
        for node, gpus in placement:
            self.on_node[node].discard(job)
            self.meter.take(node, -gpus, at)
        self.meter.widen(job, -self.trace.gpus[job], at)
        self.expect_end(job, None)
        self.has_changed = True

    def node_down(self, node: int, at: int) -> None:
        self.nodes.go_down(node)
        for job in sorted(self.on_node[node]):
            self.halt(job, at, "NodeFailure")

    def node_up(self, node: int, at: int) -> None:  # noqa: ARG002  the scheduler's signature
        self.nodes.come_up(node)
        self.has_changed = True
