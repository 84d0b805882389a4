"""Measures replays of many jobs under Jobtree: the group ``replay`` of ``make bench``.

Two made-up traces of 100,000 jobs on 3,000 GPUs, at 70 and at 110 % load, and the ten clusters of the ITP
trace (``JOBTREE_TRACES``) side by side, each a team of its own, on one fleet of 12,500 nodes. Figures are CPU
seconds, so that others on the machine count less, and the memory of Runs that wait.
``python -m benchmarks.replay_speed --row 1 --jobs 3000`` replays a shorter trace, to look for what is slow.
"""

import argparse
import gc
import sys
import tracemalloc
from array import array
from collections.abc import Iterator
from random import Random

import msgspec

from benchmarks import bars
from benchmarks.bars import Bar
from benchmarks.replay import TRACES, Clock, part_of
from benchmarks.report import Figure, Section, table
from benchmarks.scale import FULL, Effort
from jobtree.simulation.inputs.job_trace import Cut, Trace, read_trace
from jobtree.simulation.inputs.replay_cluster import made_up, made_up_budgets
from jobtree.simulation.inputs.replay_setup import ReplaySetup
from jobtree.simulation.inputs.user_behavior import UserBehavior
from jobtree.simulation.replay.saved_replay import run
from jobtree.simulation.schedulers.jobtree_scheduler import JobtreeScheduler

GPUS = 3_000
NODES_OF_ALL = 12_500
ITP = TRACES / "ms_itp2021" / "jobs.csv.gz"
PATIENCE = 3  # times the bound, before a replay is stopped
KIB = 1024
SEED = 2026
SIZES = {1: 46, 2: 10, 4: 12, 8: 20, 16: 8, 32: 4}
TEAMS = {"vision": 5, "speech": 3, "robots": 2, "audio": 2}
SHORTEST_S, LONGEST_S = 60, 3 * 86_400


class Row(msgspec.Struct, frozen=True):
    name: str
    load_percent: int | None  # None: the ten clusters

    @property
    def bar(self) -> Bar:
        return bars.REPLAY_S[self.load_percent]


ROWS = (
    Row("jobs on 3,000 GPUs at 70 % load", 70),
    Row("jobs on 3,000 GPUs at 110 % load", 110),
    Row("jobs of the ten ITP clusters on 12,500 nodes", None),
)


def made_up_trace(jobs: int, gpus: int, load_percent: int) -> Trace:
    """Returns a trace in which most jobs are small and short, and which arrive evenly."""
    random = Random(SEED)
    sizes = random.choices(list(SIZES), list(SIZES.values()), k=jobs)
    teams = random.choices(range(len(TEAMS)), list(TEAMS.values()), k=jobs)
    lengths = [
        round(min(LONGEST_S, max(SHORTEST_S, random.lognormvariate(8.9, 1.5)))) * 1000 for _ in range(jobs)
    ]
    work = sum(size * length for size, length in zip(sizes, lengths, strict=True))
    span = work * 100 // (gpus * load_percent)
    return Trace(
        submit=array("q", sorted(random.randrange(span) for _ in range(jobs))),
        duration=array("q", lengths),
        gpus=array("q", sizes),
        team=array("q", teams),
        row=array("q", range(2, jobs + 2)),
        teams=tuple(TEAMS),
        skipped={},
        shown=(),
        digest=f"{jobs} {gpus} {load_percent}",
    )


def side_by_side() -> Trace:
    """Returns the jobs of all ten clusters by submission, with the clusters as teams."""
    names = tuple(f"cluster{number:02d}" for number in range(1, 11))
    traces = [read_trace(str(ITP), cut=Cut((("cluster", name),))) for name in names]
    jobs = sorted(
        (trace.submit[job], trace.row[job], trace.duration[job], trace.gpus[job], team)
        for team, trace in enumerate(traces)
        for job in range(len(trace))
    )
    submit, row, duration, gpus, team = (array("q", column) for column in zip(*jobs, strict=True))
    columns = {"submit": submit, "duration": duration, "gpus": gpus, "team": team, "row": row}
    return msgspec.structs.replace(traces[0], **columns, teams=names, digest="side by side")


def replay_setup(row: Row, jobs: int) -> ReplaySetup:
    if row.load_percent is None:
        trace, nodes = part_of(side_by_side(), jobs, thinned=False), NODES_OF_ALL
    else:
        trace, nodes = made_up_trace(jobs, GPUS, row.load_percent), GPUS // 8
    cluster = made_up(nodes, 8, -(-nodes // 16))
    budgets, owners = made_up_budgets(trace, cluster.nodes, {})
    return ReplaySetup(trace, cluster.nodes, budgets, owners, cluster.epoch, UserBehavior(notice=True))


def crowded(jobs: int, gpus: int, load_percent: int, behavior: UserBehavior | None = None) -> ReplaySetup:
    """Returns a made-up trace on a fleet with eight nodes per domain that is too small for it."""
    trace, cluster = made_up_trace(jobs, gpus, load_percent), made_up(gpus // 8, 8, gpus // 64)
    budgets, owners = made_up_budgets(trace, cluster.nodes, {})
    return ReplaySetup(trace, cluster.nodes, budgets, owners, cluster.epoch, behavior or UserBehavior())


def sections(effort: Effort) -> Iterator[Section]:
    """Yields every row whose trace exists, and the memory of a waiting Run."""
    for row in ROWS:
        if row.load_percent is None and not ITP.exists():
            print(f"{ITP} is not there: the ten clusters are not replayed", file=sys.stderr)
        else:
            yield replayed(row, effort.replayed, PATIENCE * row.bar.limit, judged=effort.judged)
    (few, light), (many, heavy) = bytes_per_waiting_run(effort.queued)
    figures = (
        Figure(f"each of {few:,}", light / KIB, "KiB"),
        Figure(f"each of {many:,}", heavy / KIB, "KiB"),
        Figure("ratio", heavy / light, "×", bars.MEMORY_RATIO if effort.judged else None),
    )
    yield Section("memory of Runs that wait in a replay", figures)


def replayed(row: Row, jobs: int, most_seconds: float, *, judged: bool) -> Section:
    """Replays a row; a replay that takes too long is stopped, and then not all jobs are done."""
    simulation = JobtreeScheduler(replay_setup(row, jobs))
    clock = Clock(row.name, most_seconds)
    run(simulation, watch=clock)
    seconds, done = clock.seconds(), simulation.meter.finished
    figures = (
        Figure("CPU", seconds, "s", row.bar if judged else None),
        Figure("jobs done", done, ""),
        Figure("jobs per second", done / seconds, "/s"),
    )
    return Section(f"a replay of {len(simulation.trace):,} {row.name}", figures)


def bytes_per_waiting_run(most: int) -> list[tuple[int, float]]:
    """Returns the number of waiting Runs and the bytes of each, for half of ``most`` and for ``most``."""
    simulation = JobtreeScheduler(crowded(8 * most, 64, 400))
    sizes = []
    tracemalloc.start()
    for mark in (most // 2, most):
        while (waiting := len(simulation.world.queue)) < mark:
            assert simulation.step()
        gc.collect()
        sizes.append((waiting, tracemalloc.get_traced_memory()[0] / waiting))
    tracemalloc.stop()
    return sizes


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replay_speed", description=__doc__)
    parser.add_argument("--jobs", type=int, default=FULL.replayed, help=f"of each trace ({FULL.replayed})")
    parser.add_argument("--limit", type=float, default=600.0, help="CPU seconds that one row may take")
    parser.add_argument("--row", type=int, action="append", choices=range(len(ROWS)), help="only these")
    options = parser.parse_args(arguments)
    for number in options.row if options.row is not None else range(len(ROWS)):
        full = options.jobs == FULL.replayed
        print(table(replayed(ROWS[number], options.jobs, options.limit, judged=full), {}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
