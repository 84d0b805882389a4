"""Replays of a few jobs, with their starts and ends in seconds."""

from array import array
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from jobtree.api.schema.quantities import SECOND
from jobtree.simulation.inputs.job_trace import Trace
from jobtree.simulation.inputs.outages import Outage
from jobtree.simulation.inputs.replay_cluster import made_up, made_up_budgets
from jobtree.simulation.inputs.replay_setup import ReplaySetup
from jobtree.simulation.inputs.user_behavior import UserBehavior
from jobtree.simulation.replay.engine import Simulation
from jobtree.simulation.replay.saved_replay import run
from jobtree.simulation.schedulers.scheduler_names import POLICIES

EXACT = UserBehavior(declares="exact", checkpoint=None)
TYPICAL = UserBehavior(declares="typical", checkpoint=600 * SECOND)


class Job(NamedTuple):
    submit: int
    duration: int
    gpus: int
    team: str = "lab"


def trace(jobs: Sequence[Job]) -> Trace:
    teams = list(dict.fromkeys(job.team for job in jobs))
    columns = [
        array("q", values)
        for values in (
            [job.submit * SECOND for job in jobs],
            [job.duration * SECOND for job in jobs],
            [job.gpus for job in jobs],
            [teams.index(job.team) for job in jobs],
            range(2, len(jobs) + 2),
        )
    ]
    submit, duration, gpus, team, row = columns
    return Trace(
        submit=submit,
        duration=duration,
        gpus=gpus,
        team=team,
        row=row,
        teams=tuple(teams),
        skipped={},
        shown=(),
        digest="small",
    )


def replay_setup(
    *jobs: Job,
    nodes: int = 1,
    gpus_per_node: int = 8,
    behavior: UserBehavior = EXACT,
    budgets: dict[str, str] | None = None,
    outages: Sequence[tuple[int, int, int]] = (),
) -> ReplaySetup:
    """Returns a setup of these jobs, in the order of submission; an outage is node, start and end."""
    cluster, jobs_trace = made_up(nodes, gpus_per_node, 1), trace(jobs)
    granted, owners = made_up_budgets(jobs_trace, cluster.nodes, budgets or {})
    return ReplaySetup(
        trace=jobs_trace,
        nodes=cluster.nodes,
        budgets=granted,
        owners=owners,
        epoch=cluster.epoch,
        behavior=behavior,
        outages=tuple(Outage(node, start * SECOND, end * SECOND) for node, start, end in outages),
    )


def busy_day(seed: int, jobs: int = 60) -> ReplaySetup:
    """Returns eleven hours of two teams on five nodes, of which one fails; fewer jobs take less time."""
    random, seconds = Random(seed), 40_000 * jobs // 60
    drawn_jobs = sorted(
        Job(
            random.randrange(seconds),
            random.randrange(600, 20_000),
            random.choice([1, 2, 4, 8, 8, 16]),
            random.choice("ab"),
        )
        for _ in range(jobs)
    )
    outage = (1, 9_000 * jobs // 60, 15_000)
    return replay_setup(
        *drawn_jobs, nodes=5, behavior=TYPICAL, budgets={"a": "24", "b": "16"}, outages=[outage]
    )


def replay(policy: str, setup: ReplaySetup) -> Simulation:
    simulation = POLICIES[policy](setup)
    assert run(simulation)
    return simulation


def starts(policy: str, setup: ReplaySetup) -> list[int]:
    """Returns the first start of each job."""
    return [at // SECOND for at in replay(policy, setup).meter.first_start]


def ends(policy: str, setup: ReplaySetup) -> list[int]:
    """Returns the end of each job."""
    return [at // SECOND for at in replay(policy, setup).meter.finish]
