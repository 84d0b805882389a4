"""Quota with borrowing and preemption: what a Kueue user has, all teams being one cohort.

Each team's queue has its budget as nominal quota and may borrow all that the others leave idle. The order
is best effort (Kueue's default): by priority, then submission, and who cannot be admitted keeps nobody else
waiting. In a cycle each queue puts forward its first job that may be admitted; those within their nominal
quota come before those that borrow. A job within its team's nominal quota that finds the fleet full takes
it back: jobs of teams that borrow are preempted, lowest priority first, then the latest started, as few as
needed. A job is admitted only where its pods also find a place, as with topology-aware scheduling.

Priorities follow a rule that is stated: none (all alike), or by size, where jobs of a node or more come
first, and may preempt smaller ones of their own team.
"""

from bisect import insort

from jobtree.simulation.inputs.replay_setup import ReplaySetup
from jobtree.simulation.schedulers.job_scheduler import Scheduler
from jobtree.simulation.schedulers.node_pool import Placement

JobClass = tuple[int, int]  # priority (lower comes first), GPUs


class QuotaScheduler(Scheduler):
    def __init__(self, setup: ReplaySetup) -> None:
        super().__init__(setup)
        self.quota = setup.granted()
        self.used = [0] * len(setup.owners)
        self.queues: list[dict[JobClass, list[int]]] = [{} for _ in setup.owners]

    def priority(self, job: int) -> int:  # noqa: ARG002  those who rank by it do
        return 0

    def enqueue(self, job: int) -> None:
        kinds = self.queues[self.trace.team[job]]
        insort(kinds.setdefault((self.priority(job), self.trace.gpus[job]), []), job)

    def begin(self, job: int, placement: Placement, at: int) -> None:
        self.used[self.trace.team[job]] += self.trace.gpus[job]
        super().begin(job, placement, at)

    def release(self, job: int, at: int) -> None:
        self.used[self.trace.team[job]] -= self.trace.gpus[job]
        super().release(job, at)

    def schedule(self, at: int) -> None:
        """Admit the best candidate of all teams, again and again, until no kind of job can be."""
        refused: set[tuple[int, JobClass]] = set()
        while (candidate := self._next(refused)) is not None:
            team, kind = candidate
            job = self.queues[team][kind][0]
            placement = self.nodes.place(kind[1])
            if placement is None:
                placement = self._make_room(job, at)
            if placement is None:
                refused.add((team, kind))
                continue
            del self.queues[team][kind][0]
            if not self.queues[team][kind]:
                del self.queues[team][kind]
            self.begin(job, placement, at)

    def _next(self, refused: set[tuple[int, JobClass]]) -> tuple[int, JobClass] | None:
        """Within nominal quota first, then by priority, then by submission."""
        ranked = [
            (self.used[team] + kind[1] > self.quota[team], kind[0], jobs[0], team, kind)
            for team, kinds in enumerate(self.queues)
            for kind, jobs in kinds.items()
            if (team, kind) not in refused
        ]
        if not ranked:
            return None
        *_, team, kind = min(ranked)
        return team, kind

    def _make_room(self, job: int, at: int) -> Placement | None:
        """Preempt as few as needed, if the job is within its team's nominal quota."""
        team, gpus = self.trace.team[job], self.trace.gpus[job]
        if self.used[team] + gpus > self.quota[team]:
            return None
        taken: list[int] = []
        used = list(self.used)
        for victim in self._victims(job):
            whose = self.trace.team[victim]
            if whose != team and used[whose] <= self.quota[whose]:
                continue  # its team borrows no longer
            used[whose] -= self.trace.gpus[victim]
            taken.append(victim)
            self.nodes.give_back(self.running[victim].placement)
            if self.nodes.place(gpus) is not None:
                break
        return self._preempt(self._needed(taken, gpus), gpus, at)

    def _needed(self, taken: list[int], gpus: int) -> list[int]:
        """Of those taken on trial, who must really go; all are put back."""
        fits = self.nodes.place(gpus) is not None
        needed = []
        for victim in reversed(taken):
            placement = self.running[victim].placement
            self.nodes.take(placement)
            if fits and self.nodes.place(gpus) is None:
                self.nodes.give_back(placement)
                needed.append(victim)
        for victim in needed:
            self.nodes.take(self.running[victim].placement)
        return needed

    def _preempt(self, victims: list[int], gpus: int, at: int) -> Placement | None:
        for victim in sorted(victims):
            self.halt(victim, at, "Preempted")
        return self.nodes.place(gpus) if victims else None

    def _victims(self, job: int) -> list[int]:
        """Who may be preempted, in order: other teams' borrowers, then smaller priorities of the own team."""
        team, priority = self.trace.team[job], self.priority(job)
        victims = [
            (whose == team, -self.priority(victim), -running.since, -victim)
            for victim, running in self.running.items()
            if (
                self.priority(victim) > priority
                if (whose := self.trace.team[victim]) == team
                else self.used[whose] > self.quota[whose]
            )
        ]
        return [-victim for *_, victim in sorted(victims)]


class QuotaBySize(QuotaScheduler):
    """Jobs of a node or more come before smaller ones."""

    def priority(self, job: int) -> int:
        return 0 if self.trace.gpus[job] >= self.nodes.size else 1
