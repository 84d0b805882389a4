"""Schedulers with a strict order: no job starts before the first job of the queue."""

from heapq import heappop, heappush

from jobtree.simulation.inputs.replay_setup import ReplaySetup
from jobtree.simulation.schedulers.job_scheduler import Scheduler


class StrictScheduler(Scheduler):
    def __init__(self, setup: ReplaySetup) -> None:
        super().__init__(setup)
        self.queue: list[tuple[int, int]] = []

    def key(self, job: int) -> int:
        raise NotImplementedError

    def enqueue(self, job: int) -> None:
        heappush(self.queue, (self.key(job), job))

    def schedule(self, at: int) -> None:
        while self.queue:
            job = self.queue[0][1]
            placement = self.nodes.place(self.trace.gpus[job])
            if placement is None:
                return
            heappop(self.queue)
            self.begin(job, placement, at)


class Fifo(StrictScheduler):
    """Jobs in the order of submission."""

    def key(self, job: int) -> int:
        return job


class ShortestFirst(StrictScheduler):
    """Jobs in the order of their true duration, which no real scheduler knows."""

    def key(self, job: int) -> int:
        return self.trace.duration[job]
