"""Makes traces on which promises meet, the same every time: small mixed ones, crowds, and a flood.

- ``small``: a few nodes, mixed sizes, one team or many, equal or proportional budgets, 90 or 110 % load.
- ``helios``: many teams, 90 % of the work in pods of 8 GPUs, 110 % load, as on the clusters of Helios.
- ``blue-waters``: bursts of hundreds of wide, short gangs over a steady load, as on Blue Waters.
- ``flood``: a large team submits everything at once, and a small team stays within its own budget.
"""

from array import array
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import msgspec

from jobtree.api.schema.quantities import HOUR, MINUTE
from jobtree.simulation.inputs.job_trace import Trace
from jobtree.simulation.inputs.outages import OutageRates, draw_replay_outages
from jobtree.simulation.inputs.replay_cluster import in_proportion, made_up, made_up_budgets
from jobtree.simulation.inputs.replay_setup import ReplaySetup
from jobtree.simulation.inputs.user_behavior import Declares, UserBehavior

GPUS_PER_NODE = 8
SMALL_SIZES = (1, 2, 4, 8, 12, 16, 20, 24, 30, 100)
SMALL_NODES = (5, 5, 8, 13, 20)
SMALL_TEAMS = (1, 2, 3, 4, 6, 10, 20, 30)
SMALL_TEAM = "small"


class Job(NamedTuple):
    submit: int
    team: str
    gpus: int
    duration: int


class Crowd(msgspec.Struct, frozen=True):
    """One trace with its fleet. Times are in milliseconds."""

    name: str
    jobs: tuple[Job, ...]  # by submission
    nodes: int
    domains: int
    load_percent: int
    declares: Declares = "typical"
    budgets: dict[str, str] = {}  # by team; the others share the rest in proportion to demand

    def setup(self, *, restart_cost: int = 0, outages: bool = False) -> ReplaySetup:
        cluster, trace = made_up(self.nodes, GPUS_PER_NODE, self.domains), trace_of(self.name, self.jobs)
        budgets, owners = made_up_budgets(trace, cluster.nodes, self.budgets)
        period = trace.submit[0], trace.submit[-1]
        drawn = draw_replay_outages(OutageRates(), self.nodes, *period, seed=1) if outages else ()
        return ReplaySetup(
            trace=trace,
            nodes=cluster.nodes,
            budgets=budgets,
            owners=owners,
            epoch=cluster.epoch,
            behavior=UserBehavior(declares=self.declares, notice=True, restart_cost=restart_cost),
            outages=tuple(drawn),
        )


def trace_of(name: str, jobs: Sequence[Job]) -> Trace:
    """Returns the trace of these jobs, which are in the order of submission."""
    teams = tuple(dict.fromkeys(job.team for job in jobs))
    return Trace(
        submit=array("q", (job.submit for job in jobs)),
        duration=array("q", (job.duration for job in jobs)),
        gpus=array("q", (job.gpus for job in jobs)),
        team=array("q", (teams.index(job.team) for job in jobs)),
        row=array("q", range(2, len(jobs) + 2)),
        teams=teams,
        skipped={},
        shown=(),
        digest=name,
    )


def small(number: int) -> Crowd:
    """Returns one of the small random traces."""
    random = Random(f"small/{number}")
    nodes = random.choice(SMALL_NODES)
    sizes = [size for size in SMALL_SIZES if size <= nodes * GPUS_PER_NODE]
    teams = [f"t{team:02d}" for team in range(random.choice(SMALL_TEAMS))]
    weights = [random.expovariate(1) for _ in sizes], [random.expovariate(1) for _ in teams]
    count = random.randrange(40, 200)
    asked = [
        (
            random.choices(teams, weights[1])[0],
            random.choices(sizes, weights[0])[0],
            duration(random, 90 * MINUTE, 1.3),
        )
        for _ in range(count)
    ]
    load = random.choice((90, 110))
    present = sorted({team for team, _, _ in asked})
    equal = in_proportion(dict.fromkeys(present, 1), nodes * GPUS_PER_NODE, GPUS_PER_NODE)
    granted = {team: str(gpus) for team, gpus in equal.items() if gpus}
    return Crowd(
        name=f"small-{number:03d}",
        jobs=spread_evenly(random, asked, span(asked, nodes, load)),
        nodes=nodes,
        domains=random.randint(1, min(3, nodes)),
        load_percent=load,
        declares=random.choice(("typical", "none")),
        budgets=random.choice(({}, granted)),
    )


def helios(number: int, count: int) -> Crowd:
    """Returns a crowd of many teams, with 90 % of the work in pods of 8 GPUs."""
    random = Random(f"helios/{number}")
    nodes, teams = max(8, count // 25), [f"t{team:02d}" for team in range(random.randint(24, 48))]
    weights = [1 / (1 + rank) for rank in range(len(teams))]  # Zipf's law
    asked = [
        (random.choices(teams, weights)[0], helios_size(random), duration(random, 2 * HOUR, 1.5))
        for _ in range(count)
    ]
    return Crowd(f"helios-{number}", spread_evenly(random, asked, span(asked, nodes, 110)), nodes, 2, 110)


def helios_size(random: Random) -> int:
    """Returns GPUs of a job: 55 % of the jobs are of whole nodes, and so is 90 % of the work."""
    if random.randrange(100) < 45:
        return random.choices((1, 2, 4), (60, 20, 20))[0]
    return random.choices((8, 16, 32, 64), (70, 18, 9, 3))[0]


def blue_waters(number: int, count: int) -> Crowd:
    """Returns a steady load of mixed jobs with a few bursts of wide and short gangs."""
    random = Random(f"blue-waters/{number}")
    nodes, teams = max(16, count // 15), [f"t{team:02d}" for team in range(12)]
    steady = [
        (random.choice(teams), random.choice((1, 4, 8, 8, 16, 32)), duration(random, 3 * HOUR, 1.3))
        for _ in range(count // 3)
    ]
    wide = [
        (random.choice(teams[:4]), random.choice((16, 32, 64, 64, 128)), duration(random, 20 * MINUTE, 0.7))
        for _ in range(count - len(steady))
    ]
    length = span([*steady, *wide], nodes, 110)
    jobs = list(spread_evenly(random, steady, length))
    bursts = max(1, len(wide) // 200)
    for burst in range(bursts):
        at = random.randrange(length)
        for team, gpus, lasts in wide[burst::bursts]:
            jobs.append(Job(at + random.randrange(10 * MINUTE), team, gpus, lasts))
    return Crowd(f"blue-waters-{number}", tuple(sorted(jobs)), nodes, 4, 110)


def flood(number: int, count: int) -> Crowd:
    """Returns a flood of a large team, and a small team whose jobs never exceed its own budget."""
    random = Random(f"flood/{number}")
    nodes, own = 16, 2 * GPUS_PER_NODE
    big = [
        Job(random.randrange(HOUR), f"big{random.randrange(3)}", random.choice((8, 16, 32)), lasts)
        for lasts in (duration(random, 3 * HOUR, 1.0) for _ in range(count))
    ]
    length = span([job[1:] for job in big], nodes, 100)
    mine, at = [], 2 * HOUR
    while at < length:
        lasts = random.randrange(HOUR, 4 * HOUR)
        mine.append(Job(at, SMALL_TEAM, own, lasts))
        at += lasts + random.randrange(HOUR, 6 * HOUR)
    return Crowd(
        f"flood-{number}", tuple(sorted((*big, *mine))), nodes, 1, 110, budgets={SMALL_TEAM: str(own)}
    )


def duration(random: Random, median: int, spread: float) -> int:
    """Returns whole minutes from a lognormal distribution, between 5 minutes and 50 hours."""
    drawn = median * random.lognormvariate(0.0, spread)
    return round(min(50 * HOUR, max(5 * MINUTE, drawn)) / MINUTE) * MINUTE


def span(asked: Sequence[tuple[str, int, int]], nodes: int, load_percent: int) -> int:
    """Returns the time in which these jobs must arrive so that they are that load."""
    work = sum(gpus * lasts for _, gpus, lasts in asked)
    return work * 100 // (nodes * GPUS_PER_NODE * load_percent)


def spread_evenly(random: Random, asked: Sequence[tuple[str, int, int]], length: int) -> tuple[Job, ...]:
    return tuple(
        sorted(Job(random.randrange(length // 1000) * 1000, team, gpus, lasts) for team, gpus, lasts in asked)
    )
