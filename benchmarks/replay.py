"""``python -m benchmarks.replay``: replays real jobs under Jobtree and other schedulers, and writes the page.

Each case uses a part of its trace (``--jobs`` sets another part, 0 means all jobs). The report of each replay
is kept in build/replay, and made again only if its setup or code has changed. So the cases can be run in
parts, with ``--case philly-90 --policy easy``. ``--as-is`` uses existing reports in any case. ``--write``
writes docs/comparison/schedulers.md and its plots from the existing reports.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import msgspec

from benchmarks.comparison import write_page
from jobtree.simulation.inputs.job_trace import Cut, Trace, read_trace
from jobtree.simulation.inputs.outages import replay_outages
from jobtree.simulation.inputs.replay_cluster import made_up, made_up_budgets
from jobtree.simulation.inputs.replay_setup import ReplaySetup
from jobtree.simulation.inputs.user_behavior import Declares, UserBehavior
from jobtree.simulation.replay.engine import Simulation
from jobtree.simulation.replay.saved_replay import run
from jobtree.simulation.reports.comparison import read_report
from jobtree.simulation.reports.report import Report, encode_report
from jobtree.simulation.reports.statistics import report_of
from jobtree.simulation.schedulers.scheduler_names import POLICIES

TRACES = Path(os.environ.get("JOBTREE_TRACES", "../shared/traces"))
RESULTS = Path("build/replay")
SOURCES = Path("src/jobtree")
DAY_S = 86_400
GPUS_PER_NODE = 8
NODES_PER_DOMAIN = 16


class Case(msgspec.Struct, frozen=True):
    name: str
    title: str
    folder: str
    cut: Cut
    load_percent: int
    outages: bool = False
    declares: Declares = "typical"
    jobs: int = 300
    thinned: bool = False  # every nth job, else the first
    budgets_percent: int = 100  # of the fleet, all teams together
    notice: bool = True  # jobs save their state when they are warned


PHILLY = Cut((), 55 * DAY_S, 116 * DAY_S)
BASES = (
    *(
        Case(
            f"philly-{load}",
            f"Philly, four teams, {load} % load",
            "philly_vc4",
            PHILLY,
            load,
            jobs=1200,
            thinned=True,
        )
        for load in (70, 90, 110)
    ),
    *(
        Case(f"itp-{name}", f"ITP {name}, 90 % load", "ms_itp2021", Cut((("cluster", name),)), 90)
        for name in ("cluster04", "cluster03")
    ),
)
OTHER_BUDGETS = (
    (150, True, "oversubscribed", "oversubscribed 1.5 times"),
    (150, False, "oversubscribed-unsaved", "oversubscribed 1.5 times, warnings ignored"),
    (3000, True, "unbound", "budgets that never bind"),
)


def cases() -> Iterator[Case]:
    """Yields every base with and without declared durations and outages, and one base with other budgets."""
    for base in BASES:
        for outages in (False, True):
            for declares in ("typical", "none"):
                name = (
                    f"{base.name}{'-outages' if outages else ''}{'-undeclared' if declares == 'none' else ''}"
                )
                title = f"{base.title}{', outages' if outages else ''}"
                title += ", no maxDuration" if declares == "none" else ""
                yield msgspec.structs.replace(
                    base, name=name, title=title, outages=outages, declares=declares
                )
    for base in BASES:
        if base.name == "philly-90":
            for percent, notice, name, words in OTHER_BUDGETS:
                yield msgspec.structs.replace(
                    base,
                    name=f"{base.name}-{name}",
                    title=f"{base.title}, {words}",
                    budgets_percent=percent,
                    notice=notice,
                )


def replay_setup(case: Case) -> ReplaySetup:
    """Returns the jobs of a case on a fleet with the given load, and budgets in proportion to demand."""
    whole = read_trace(str(TRACES / case.folder / "jobs.csv.gz"), cut=case.cut)
    trace = part_of(whole, case.jobs, thinned=case.thinned)
    demand = sum(gpus * duration for gpus, duration in zip(trace.gpus, trace.duration, strict=True))
    gpus = demand * 100 / case.load_percent / (trace.submit[-1] - trace.submit[0])
    nodes = max(-(-max(trace.gpus) // GPUS_PER_NODE), round(gpus / GPUS_PER_NODE))  # every gang must fit
    cluster = made_up(nodes, GPUS_PER_NODE, -(-nodes // NODES_PER_DOMAIN))
    budgets, owners = made_up_budgets(trace, cluster.nodes, {}, case.budgets_percent / 100)
    faults = TRACES / "stepfun_faults2024" / "faults.csv.gz"
    return ReplaySetup(
        trace=trace,
        nodes=cluster.nodes,
        budgets=budgets,
        owners=owners,
        epoch=cluster.epoch,
        behavior=UserBehavior(declares=case.declares, notice=case.notice),
        outages=tuple(replay_outages(str(faults), nodes)) if case.outages else (),
    )


def part_of(trace: Trace, jobs: int, *, thinned: bool) -> Trace:
    """Returns at most ``jobs`` jobs: every nth or the first ones; all jobs for 0.

    Every nth job keeps the days of the trace on a smaller fleet, which is right if jobs last for weeks. The
    first jobs keep the size of the fleet, which is right if jobs are short and gangs are large.
    """
    if not 0 < jobs < len(trace):
        return trace
    part = slice(None, None, -(-len(trace) // jobs)) if thinned else slice(jobs)
    columns = {name: getattr(trace, name)[part] for name in ("submit", "duration", "gpus", "team", "row")}
    return msgspec.structs.replace(trace, **columns, digest=f"{trace.digest} {part}")


def code_digest(policy: str) -> str:
    """Returns a digest of the code that the report depends on: the simulation, and Jobtree's planner."""
    rooms = ("api", "core", "simulation") if policy == "jobtree" else ("simulation",)
    digest = sha256()
    for room in rooms:
        for path in sorted((SOURCES / room).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


class Clock:
    """Stops a replay that takes too long, and prints its progress.

    Reading the CPU time can cost more than an instant of the replay, so it is read at most once a second.
    """

    def __init__(self, label: str, most_seconds: float) -> None:
        self._label, self._most = label, most_seconds
        self._looked = time.perf_counter()
        self.began = self._said = time.process_time()

    def __call__(self, simulation: Simulation) -> bool:
        if time.perf_counter() - self._looked < 1:
            return False
        now, self._looked = time.process_time(), time.perf_counter()
        if now - self._said > 10:
            self._said = now
            done = f"{simulation.meter.finished:,} of {len(simulation.trace):,} jobs"
            print(f"  {self._label}: {done} after {now - self.began:,.0f} s", file=sys.stderr, flush=True)
        return now - self.began > self._most

    def seconds(self) -> float:
        return time.process_time() - self.began


def measure(case: Case, policy: str, most_seconds: float, *, as_is: bool) -> Report | None:
    """Returns the report of a replay, an existing one if nothing changed; None if it took too long."""
    path = RESULTS / f"{case.name}.{policy}.json"
    if as_is and path.exists():
        return read_report(str(path))
    given = replay_setup(case)
    stamp = f"{given.digest(policy)} {code_digest(policy)}"
    stamp_path = path.with_suffix(".stamp")
    if path.exists() and stamp_path.exists() and stamp_path.read_text() == stamp:
        return read_report(str(path))
    simulation = POLICIES[policy](given)
    clock = Clock(f"{case.name} {policy}", most_seconds)
    if not run(simulation, watch=clock):
        print(f"{case.name:32} {policy:14} not done after {most_seconds:,.0f} s", flush=True)
        return None
    report = report_of(simulation, policy, case.folder)
    print(f"{case.name:32} {policy:14} {summary(report)}  {clock.seconds():,.1f} s", flush=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode_report(report))
    stamp_path.write_text(stamp)
    return report


def summary(report: Report) -> str:
    result = report.status
    wait = result.all_jobs.wait_seconds
    kept = f" kept {100 * result.promises.kept_share:.2f} %" if result.promises else ""
    return (
        f"in use {100 * result.fleet.allocated:.1f} % useful {100 * result.fleet.useful:.1f} % "
        f"wait mean {wait.mean:,.0f} p90 {wait.p90:,.0f} lost {100 * result.lost_share:.2f} %{kept}"
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replay", description=__doc__)
    cases_by_name = {case.name: case for case in cases()}
    parser.add_argument("--case", action="append", choices=cases_by_name, help="only these (default: all)")
    parser.add_argument("--policy", action="append", choices=POLICIES, help="only these (default: all)")
    parser.add_argument("--jobs", type=int, help="of each trace, 0 for all (default: as the page has it)")
    parser.add_argument("--limit", type=float, default=3600.0, help="CPU seconds that one replay may take")
    parser.add_argument("--as-is", action="store_true", help="take reports that are there, whatever changed")
    parser.add_argument("--write", action="store_true", help="write docs/comparison/schedulers.md")
    options = parser.parse_args(arguments)
    if not TRACES.exists():
        print(f"{TRACES} is not there: JOBTREE_TRACES must name the folder of traces", file=sys.stderr)
        return 2
    by_case: dict[str, list[Report]] = {}
    for name in options.case or cases_by_name:
        case = cases_by_name[name]
        if options.jobs is not None:
            case = msgspec.structs.replace(case, jobs=options.jobs)
        policies = options.policy or POLICIES
        reports = [measure(case, policy, options.limit, as_is=options.as_is) for policy in policies]
        by_case[case.title] = [report for report in reports if report is not None]
    if options.write:
        write_page(Path("docs/comparison"), by_case)
    return 0


if __name__ == "__main__":
    sys.exit(main())
