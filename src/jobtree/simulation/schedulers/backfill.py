"""FIFO with backfill: the first jobs that wait hold nodes from a known instant, others flow around them.

In every pass the waiting jobs are gone through by submission. One that fits now and delays nobody who holds
something starts. Of those that cannot, the first ``depth`` hold the nodes that are free for them
soonest, by the ends that are assumed of what runs and of what is held, gaps included. With a depth of one
this is EASY, with many it is conservative backfill, planned anew at each event. Jobs of one size and one
assumed duration are alike: where the oldest of a kind could not start in a pass, nor can the others.
"""

from bisect import insort
from heapq import heapify, heappop, heapreplace

from jobtree.simulation.inputs.replay_setup import ReplaySetup
from jobtree.simulation.replay.engine import FOREVER
from jobtree.simulation.schedulers.backfill_plan import BackfillPlan, JobClass, Ready
from jobtree.simulation.schedulers.job_scheduler import Scheduler
from jobtree.simulation.schedulers.node_pool import Placement


class Backfill(Scheduler):
    depth: int

    def __init__(self, setup: ReplaySetup) -> None:
        super().__init__(setup)
        self.kinds: dict[JobClass, list[int]] = {}  # waiting jobs, oldest first
        self._ready: list[Ready] = [[0] * self.nodes.size for _ in range(self.nodes.count)]
        self._stale: set[int] = set()  # nodes on which something ended, or that came or went
        self._board: BackfillPlan | None = None
        self._came: list[int] = []

    def enqueue(self, job: int) -> None:
        insort(self.kinds.setdefault((self.trace.gpus[job], self.assumed[job]), []), job)
        self._came.append(job)

    def schedule(self, at: int) -> None:
        if self._stale or self._board is None:
            self._board = BackfillPlan(self.nodes, self._refreshed())
            self._came.clear()
            self._pass(at, self._board, self.kinds)
        else:  # nothing was freed: what was planned stands, and only those who came can start
            came, self._came = self._came, []
            for job in sorted(came):
                self._pass(at, self._board, {(self.trace.gpus[job], self.assumed[job]): [job]})

    def _pass(self, at: int, board: BackfillPlan, kinds: dict[JobClass, list[int]]) -> None:
        board.at = at
        heads = [(jobs[0], kind, 0) for kind, jobs in kinds.items()]
        heapify(heads)
        started: dict[JobClass, set[int]] = {}
        while heads and (self.nodes.total_free or board.held < self.depth):
            job, kind, position = heads[0]
            placement = board.fit(*kind)
            if placement is not None:
                self.begin(job, placement, at)
                board.occupied(placement)
                started.setdefault(kind, set()).add(job)
            elif board.held < self.depth:
                board.hold(*kind)
            waits = kinds[kind]
            if position + 1 < len(waits) and (placement is not None or board.held < self.depth):
                heapreplace(heads, (waits[position + 1], kind, position + 1))
            else:
                heappop(heads)
        for kind, gone in started.items():
            self._forget(kind, gone)

    def _forget(self, kind: JobClass, gone: set[int]) -> None:
        self.kinds[kind] = [job for job in self.kinds[kind] if job not in gone]
        if not self.kinds[kind]:
            del self.kinds[kind]

    # When GPUs are ready

    def ready_from_running(self, node: int) -> Ready:
        ends: Ready = []
        for job in self.on_node[node]:
            running = self.running[job]
            ends += [running.until] * next(gpus for at, gpus in running.placement if at == node)
        return [0] * (self.nodes.size - len(ends)) + sorted(ends)

    def _refreshed(self) -> list[Ready]:
        for node in self._stale:
            up = self.nodes.up[node]
            self._ready[node] = self.ready_from_running(node) if up else [FOREVER] * self.nodes.size
        self._stale.clear()
        return self._ready

    def begin(self, job: int, placement: Placement, at: int) -> None:
        super().begin(job, placement, at)
        for node, _ in placement:
            if node not in self._stale:
                self._ready[node] = self.ready_from_running(node)

    def release(self, job: int, at: int) -> None:
        self._stale.update(node for node, _ in self.running[job].placement)
        super().release(job, at)

    def node_down(self, node: int, at: int) -> None:
        super().node_down(node, at)
        self._stale.add(node)

    def node_up(self, node: int, at: int) -> None:
        super().node_up(node, at)
        self._stale.add(node)


class Easy(Backfill):
    depth = 1


class Conservative(Backfill):
    depth = 30
