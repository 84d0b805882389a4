"""FIFO with backfill: the first waiting jobs hold nodes from a known instant, others may start before.

A pass considers the waiting jobs in the order of submission. A job starts if it fits now and delays no job
that holds nodes. The first ``depth`` of the other jobs hold the nodes that are free for them first, by the
assumed ends of running jobs and of holds. A depth of 1 is EASY backfill, a larger depth is conservative
backfill; both plan again at each event. Jobs of the same size and assumed duration form a class: if the
oldest of a class cannot start in a pass, the others cannot either.
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
        self._stale: set[int] = set()  # nodes on which a job ended, or that failed or returned
        self._plan: BackfillPlan | None = None
        self._new_jobs: list[int] = []

    def enqueue(self, job: int) -> None:
        insort(self.kinds.setdefault((self.trace.gpus[job], self.assumed[job]), []), job)
        self._new_jobs.append(job)

    def schedule(self, at: int) -> None:
        if self._stale or self._plan is None:
            self._plan = BackfillPlan(self.nodes, self._refreshed())
            self._new_jobs.clear()
            self._pass(at, self._plan, self.kinds)
        else:  # no GPUs were released: the plan is still valid, and only new jobs can start
            new_jobs, self._new_jobs = self._new_jobs, []
            for job in sorted(new_jobs):
                self._pass(at, self._plan, {(self.trace.gpus[job], self.assumed[job]): [job]})

    def _pass(self, at: int, plan: BackfillPlan, kinds: dict[JobClass, list[int]]) -> None:
        plan.at = at
        heads = [(jobs[0], kind, 0) for kind, jobs in kinds.items()]
        heapify(heads)
        started: dict[JobClass, set[int]] = {}
        while heads and (self.nodes.total_free or plan.held < self.depth):
            job, kind, position = heads[0]
            placement = plan.fit(*kind)
            if placement is not None:
                self.begin(job, placement, at)
                plan.record_start(placement)
                started.setdefault(kind, set()).add(job)
            elif plan.held < self.depth:
                plan.hold(*kind)
            waiting = kinds[kind]
            if position + 1 < len(waiting) and (placement is not None or plan.held < self.depth):
                heapreplace(heads, (waiting[position + 1], kind, position + 1))
            else:
                heappop(heads)
        for kind, jobs in started.items():
            self._remove(kind, jobs)

    def _remove(self, kind: JobClass, started: set[int]) -> None:
        self.kinds[kind] = [job for job in self.kinds[kind] if job not in started]
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
