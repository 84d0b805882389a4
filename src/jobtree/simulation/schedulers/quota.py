"""Quota with borrowing and preemption, like Kueue with all teams in one cohort.

The queue of each team has the budget of the team as its nominal quota, and may borrow all idle quota of the
others. The order is best effort, the default of Kueue: by priority, then by submission, and a job that cannot
be admitted does not delay others. In a cycle each queue proposes its first job that may be admitted; jobs
within their nominal quota come before jobs that borrow. A job within its nominal quota may preempt jobs of
teams that borrow, if it finds no place: the lowest priority first, then the latest started, as few as needed.
A job is admitted only if its pods can be placed too, as in topology-aware scheduling.

All jobs have the same priority, or the priority depends on the size: then jobs of a node or more come first,
and may preempt smaller jobs of their own team.
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

    def priority(self, job: int) -> int:  # noqa: ARG002  a subclass uses it
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
        """Admits the best candidate of all teams, until no further job can be admitted."""
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
        """Returns the next candidate: within nominal quota first, then by priority, then by submission."""
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
        """Preempts as few jobs as needed, if the job is within the nominal quota of its team."""
        team, gpus = self.trace.team[job], self.trace.gpus[job]
        if self.used[team] + gpus > self.quota[team]:
            return None
        taken: list[int] = []
        used = list(self.used)
        for victim in self._victims(job):
            victim_team = self.trace.team[victim]
            if victim_team != team and used[victim_team] <= self.quota[victim_team]:
                continue  # its team no longer borrows
            used[victim_team] -= self.trace.gpus[victim]
            taken.append(victim)
            self.nodes.give_back(self.running[victim].placement)
            if self.nodes.place(gpus) is not None:
                break
        return self._preempt(self._needed(taken, gpus), gpus, at)

    def _needed(self, taken: list[int], gpus: int) -> list[int]:
        """Returns those of the victims that must be preempted; the placements of all are restored."""
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
        """Returns the jobs that may be preempted: first those of borrowing teams, then own lower ones."""
        team, priority = self.trace.team[job], self.priority(job)
        victims = [
            (victim_team == team, -self.priority(victim), -running.since, -victim)
            for victim, running in self.running.items()
            if (
                self.priority(victim) > priority
                if (victim_team := self.trace.team[victim]) == team
                else self.used[victim_team] > self.quota[victim_team]
            )
        ]
        return [-victim for *_, victim in sorted(victims)]


class QuotaBySize(QuotaScheduler):
    """A quota scheduler in which jobs of a node or more come before smaller ones."""

    def priority(self, job: int) -> int:
        return 0 if self.trace.gpus[job] >= self.nodes.size else 1
