"""``python -m benchmarks.replay_speed``: how long Jobtree's own policy takes to replay many jobs.

Two made-up traces of 100,000 jobs on 3,000 GPUs, at 70 and at 110 % load, and the ten clusters of the ITP
trace (``JOBTREE_TRACES``) side by side, each a team of its own, on one fleet of 12,500 nodes. Figures are CPU
seconds, so that others on the machine count less, and bytes that each Run alive at the end of arrivals adds.
``--jobs`` makes every trace shorter, to look for what is slow.
"""

import argparse
import sys
import tracemalloc
from array import array
from collections.abc import Iterator
from random import Random

import msgspec

from benchmarks.replay import TRACES, Clock, part_of
from jobtree.replay.ground import made_up, made_up_budgets
from jobtree.replay.jobtree_policy import Jobtree
from jobtree.replay.saved import run
from jobtree.replay.scene import Scene
from jobtree.replay.simulation import Simulation
from jobtree.replay.trace import Cut, Trace, read_trace
from jobtree.replay.workload import Habits

JOBS, GPUS = 100_000, 3_000
NODES_OF_ALL = 12_500
SEED = 2026
SIZES = {1: 46, 2: 10, 4: 12, 8: 20, 16: 8, 32: 4}
TEAMS = {"vision": 5, "speech": 3, "robots": 2, "audio": 2}
SHORTEST_S, LONGEST_S = 60, 3 * 86_400


class Row(msgspec.Struct, frozen=True):
    name: str
    load_percent: int | None  # None: the ten clusters
    most_seconds: int


ROWS = (
    Row("jobs on 3,000 GPUs at 70 % load", 70, 60),
    Row("jobs on 3,000 GPUs at 110 % load", 110, 180),
    Row("jobs of the ten ITP clusters on 12,500 nodes", None, 120),
)


def made_up_trace(jobs: int, gpus: int, load_percent: int) -> Trace:
    """Most jobs are small and short, a few large and long; they come evenly."""
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
        told=(),
        digest=f"{jobs} {gpus} {load_percent}",
    )


def side_by_side() -> Trace:
    """The jobs of all ten clusters by submission, the clusters being the teams."""
    names = tuple(f"cluster{number:02d}" for number in range(1, 11))
    path = str(TRACES / "ms_itp2021" / "jobs.csv.gz")
    traces = [read_trace(path, cut=Cut((("cluster", name),))) for name in names]
    jobs = sorted(
        (trace.submit[job], trace.row[job], trace.duration[job], trace.gpus[job], team)
        for team, trace in enumerate(traces)
        for job in range(len(trace))
    )
    submit, row, duration, gpus, team = (array("q", column) for column in zip(*jobs, strict=True))
    columns = {"submit": submit, "duration": duration, "gpus": gpus, "team": team, "row": row}
    return msgspec.structs.replace(traces[0], **columns, teams=names, digest="side by side")


def scene(row: Row, jobs: int) -> Scene:
    if row.load_percent is None:
        trace, nodes = part_of(side_by_side(), jobs, thinned=False), NODES_OF_ALL
    else:
        trace, nodes = made_up_trace(jobs, GPUS, row.load_percent), GPUS // 8
    ground = made_up(nodes, 8, -(-nodes // 16))
    budgets, owners = made_up_budgets(trace, ground.gpus, {})
    return Scene(trace, ground.nodes, budgets, owners, ground.epoch, Habits(notice=True))


def measured(row: Row, jobs: int, most_seconds: float) -> str:
    simulation = Jobtree(scene(row, jobs))
    clock = Clock(row.name, most_seconds)
    done = run(simulation, watch=clock)
    seconds = clock.seconds()
    state = "" if done else f", {simulation.meter.finished:,} of them done"
    bar = f"at most {row.most_seconds} s for all of them"
    return f"{len(simulation.trace):7,} {row.name:46} {seconds:7.1f} s{state}  ({bar})"


def bytes_per_live_run(jobs: int) -> Iterator[tuple[int, float]]:
    """Live Runs and the bytes that each has added, as a queue grows on a small fleet."""
    trace = made_up_trace(jobs, 64, 400)
    ground = made_up(8, 8, 1)
    budgets, owners = made_up_budgets(trace, ground.gpus, {})
    simulation: Simulation = Jobtree(Scene(trace, ground.nodes, budgets, owners, ground.epoch))
    assert isinstance(simulation, Jobtree)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    marks = [jobs // 4, jobs // 2]
    while marks and simulation.step():
        live = len(simulation.world.runs)
        if live >= marks[0]:
            marks.pop(0)
            yield live, (tracemalloc.get_traced_memory()[0] - before) / live
    tracemalloc.stop()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replay_speed", description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS, help=f"of each trace ({JOBS})")
    parser.add_argument("--limit", type=float, default=600.0, help="CPU seconds that one row may take")
    parser.add_argument("--row", type=int, action="append", choices=range(len(ROWS)), help="only these")
    options = parser.parse_args(arguments)
    for number in options.row if options.row is not None else range(len(ROWS)):
        print(measured(ROWS[number], options.jobs, options.limit), flush=True)
    if options.row is None:
        for live, size in bytes_per_live_run(200):
            print(f"{live} Runs alive: {size / 1024:.1f} KiB each")
    return 0


if __name__ == "__main__":
    sys.exit(main())
