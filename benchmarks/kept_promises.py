"""Measures how promises are kept where many meet: the group ``promises`` of ``make bench``.

Replays made-up traces (``benchmarks.crowds``) under Jobtree and the other schedulers, with restarts of 10
minutes and without, and pools the figures of each kind of trace. Node outages are as frequent as in the
comparison; figures with outages are named so, all others are without. ``python -m benchmarks.kept_promises
--traces 40 --crowds 1`` replays fewer of them.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from time import process_time

import msgspec

from benchmarks import bars
from benchmarks.crowds import SMALL_TEAM, Crowd, blue_waters, flood, helios, small
from benchmarks.report import Figure, Section, table
from benchmarks.scale import FULL, Effort
from jobtree.api.schema.quantities import HOUR, MINUTE
from jobtree.core import Action, RunKey, kept_for_ms
from jobtree.simulation.inputs.replay_setup import ReplaySetup
from jobtree.simulation.replay.engine import Simulation
from jobtree.simulation.replay.meter import Meter
from jobtree.simulation.replay.promise_log import Miss, PromiseLog
from jobtree.simulation.replay.saved_replay import run
from jobtree.simulation.reports.statistics import not_running, work_done
from jobtree.simulation.schedulers.jobtree_scheduler import JobtreeScheduler
from jobtree.simulation.schedulers.scheduler_names import POLICIES

RESTART_COST = 10 * MINUTE
FULL_LOAD = 110
OWNER_NEEDS = "OwnerNeeds"
PERCENT = 100
SAID_EVERY_S = 20


class PromiseDetails(PromiseLog):
    """Also knows every date that a Run was told: when it was told first, and whether it was conditional."""

    def __init__(self, guard: int) -> None:
        super().__init__(guard)
        self.told: dict[tuple[RunKey, int], tuple[int, bool]] = {}

    def note(self, action: Action, paid_width: int, *, conditional: bool) -> None:
        promise = action.promise
        if promise is not None and promise.at is not None and action.kind in ("Reserve", "Move"):
            self.told.setdefault((action.run_key, promise.at), (action.at, conditional))
        super().note(action, paid_width, conditional=conditional)


class DetailedReplay(JobtreeScheduler):
    """A replay under Jobtree with the details of its promises."""

    def __init__(self, setup: ReplaySetup) -> None:
        super().__init__(setup)
        self.promises: PromiseDetails = PromiseDetails(kept_for_ms(setup.policy, setup.behavior.checkpoint))


class Pool:
    """The figures of one policy over several replays. Times are in milliseconds."""

    def __init__(self) -> None:
        self.jobs = self.not_running = self.work = self.lost = self.most_stops = self.stops = 0
        self.used = self.capacity = 0  # GPU-milliseconds at full load

    def add(self, meter: Meter, load_percent: int) -> None:
        jobs = range(len(meter.trace))
        self.jobs += len(jobs)
        self.not_running += sum(not_running(meter, job) for job in jobs)
        self.work += work_done(meter, jobs)
        self.lost += sum(stops.lost for stops in meter.stops.values()) + meter.restart_lost
        self.stops += sum(meter.stopped)
        self.most_stops = max(self.most_stops, *meter.stopped)
        if load_percent == FULL_LOAD:
            self.used += meter.used.in_window
            self.capacity += meter.capacity.in_window

    @property
    def mean_not_running_h(self) -> float:
        return self.not_running / self.jobs / HOUR

    @property
    def use_percent(self) -> float:
        return PERCENT * self.used / self.capacity if self.capacity else 0.0


class Promises:
    """Promises of several replays under Jobtree. Times are in milliseconds."""

    def __init__(self) -> None:
        self.firm = self.conditional = 0  # whose date has passed
        self.misses: list[tuple[str, Miss]] = []  # with the name of the trace
        self.promised_wait = 0
        self.worst_conditional = 0

    def add(self, name: str, replay: DetailedReplay) -> None:
        log = replay.promises
        self.firm += log.firm.kept + log.firm.broken
        self.conditional += log.conditional.kept + log.conditional.broken
        self.misses += [(name, miss) for miss in log.misses]
        self.promised_wait += sum(log.promised_waits)
        told = {name for ((_, name), _), (_, conditional) in log.told.items() if conditional}
        times = (not_running(replay.meter, int(name)) for name in told)
        self.worst_conditional = max(self.worst_conditional, *times, 0)

    @property
    def dated(self) -> int:
        return self.firm + self.conditional

    def missed(self, *, conditional: bool) -> "Counter[str]":
        """The reasons of the promises of one confidence that were not kept."""
        return Counter(miss.reason for _, miss in self.misses if miss.conditional == conditional)

    def missed_percent(self, *, conditional: bool) -> float:
        made = self.conditional if conditional else self.firm
        return PERCENT * self.missed(conditional=conditional).total() / made if made else 0.0


class Progress:
    """Prints now and then which trace is replayed."""

    def __init__(self) -> None:
        self._said = process_time()

    def say(self, name: str, policy: str) -> None:
        if process_time() - self._said > SAID_EVERY_S:
            self._said = process_time()
            print(f"  {name} {policy}", file=sys.stderr, flush=True)


class Kind(msgspec.Struct, frozen=True):
    """One kind of trace, as many of it as the effort says."""

    title: str
    crowds: Callable[[Effort], Iterable[Crowd]]


KINDS = (
    Kind("small traces of mixed sizes", lambda effort: map(small, range(effort.traces))),
    Kind(
        "crowds like those of Helios",
        lambda effort: (helios(number, effort.crowd_jobs) for number in range(effort.crowds)),
    ),
    Kind(
        "bursts like those of Blue Waters",
        lambda effort: (blue_waters(number, effort.crowd_jobs) for number in range(effort.crowds)),
    ),
)


def sections(effort: Effort) -> Iterator[Section]:
    for cost in (0, RESTART_COST):
        for kind in KINDS:
            yield pooled(kind, effort, cost)
        yield small_team(effort, cost)


def pooled(kind: Kind, effort: Effort, restart_cost: int) -> Section:
    """Replays all traces of a kind, and pools their figures."""
    pools = {policy: Pool() for policy in POLICIES}
    calm, faulty, progress, count = Promises(), Promises(), Progress(), 0
    for crowd in kind.crowds(effort):
        count += 1
        for policy, pool in pools.items():
            progress.say(crowd.name, policy)
            replay = replayed(crowd.setup(restart_cost=restart_cost), policy)
            pool.add(replay.meter, crowd.load_percent)
            if isinstance(replay, DetailedReplay):
                calm.add(crowd.name, replay)
        progress.say(crowd.name, "with outages")
        with_outages = replayed(crowd.setup(restart_cost=restart_cost, outages=True), "jobtree")
        assert isinstance(with_outages, DetailedReplay)
        faulty.add(crowd.name, with_outages)
    figures = [*kept_figures(calm, faulty), *cost_figures(pools, calm)]
    return section(f"{count} {kind.title}", restart_cost, figures, judged=effort.judged)


def replayed(crowd: ReplaySetup, policy: str) -> Simulation:
    replay = DetailedReplay(crowd) if policy == "jobtree" else POLICIES[policy](crowd)
    run(replay)
    return replay


def section(title: str, restart_cost: int, figures: Iterable[Figure], *, judged: bool) -> Section:
    suffix = f", restarts of {restart_cost // MINUTE} minutes" if restart_cost else ""
    kept = (figure if judged else msgspec.structs.replace(figure, bar=None) for figure in figures)
    return Section(f"promises of {title}{suffix}", tuple(kept))


def kept_figures(calm: Promises, faulty: Promises) -> Iterator[Figure]:
    yield Figure("firm promises", calm.firm, "")
    yield Figure("not kept", calm.missed_percent(conditional=False), "%", bars.FIRM_MISSED_PERCENT)
    yield from reasons(calm, conditional=False)
    yield Figure(
        "not kept, with outages", faulty.missed_percent(conditional=False), "%", bars.FIRM_OUTAGES_PERCENT
    )
    yield Figure("conditional promises", calm.conditional, "")
    yield Figure("conditional not kept", calm.missed_percent(conditional=True), "%")
    yield from reasons(calm, conditional=True)
    broken = calm.missed(conditional=True)
    wrong = broken.total() - broken[OWNER_NEEDS]
    yield Figure("conditional not kept, another reason", wrong, "", bars.NO_OTHER_REASON)


def reasons(promises: Promises, *, conditional: bool) -> Iterator[Figure]:
    for reason, count in sorted(promises.missed(conditional=conditional).items()):
        yield Figure(f"  {reason}{' (conditional)' if conditional else ''}", count, "")


def cost_figures(pools: dict[str, Pool], promises: Promises) -> Iterator[Figure]:
    mine, easy = pools["jobtree"], pools["easy"]
    best = max(pool.use_percent for pool in pools.values())
    if promises.dated:
        yield Figure("mean of date less submission", promises.promised_wait / promises.dated / HOUR, "h")
    if mine.capacity:
        yield Figure(f"in use at {FULL_LOAD} % load", mine.use_percent, "%")
        yield Figure("behind the best policy", best - mine.use_percent, "pts", bars.USE_POINTS)
    yield Figure("not running, mean", mine.mean_not_running_h, "h")
    ratio = mine.mean_not_running_h / max(easy.mean_not_running_h, 1 / HOUR)
    yield Figure("not running, mean, as with EASY", ratio, "×", bars.NOT_RUNNING_RATIO)
    yield Figure("not running, worst conditional Run", promises.worst_conditional / HOUR, "h")
    yield Figure("work lost to stops and restarts", PERCENT * mine.lost / mine.work, "%", bars.LOST_PERCENT)
    yield Figure("stops for each 100 jobs", PERCENT * mine.stops / mine.jobs, "")
    yield Figure("most stops of one job", mine.most_stops, "", bars.MOST_STOPS)


def small_team(effort: Effort, restart_cost: int) -> Section:
    """Measures how long a small team waits within its own budget while a large team floods the fleet."""
    waits: list[int] = []
    for number in range(effort.crowds):
        crowd = flood(number, effort.crowd_jobs // 2)
        waits += waits_within_budget(replayed(crowd.setup(restart_cost=restart_cost), "jobtree").meter)
    figures = (
        Figure("jobs of the small team", len(waits), ""),
        Figure("of these started at once", sum(wait == 0 for wait in waits), ""),
        Figure("longest wait within its own budget", max(waits) / MINUTE, "min", bars.OWN_BUDGET_MIN),
    )
    return section("a small team in a flood", restart_cost, figures, judged=effort.judged)


def waits_within_budget(meter: Meter) -> Iterator[int]:
    """Yields the waits of the small team's jobs that came when its former ones had ended."""
    trace, free_at = meter.trace, 0
    for job, team in enumerate(trace.team):
        if trace.teams[team] == SMALL_TEAM:
            if free_at <= trace.submit[job]:
                yield meter.first_start[job] - trace.submit[job]
            free_at = max(free_at, meter.finish[job])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kept_promises", description=__doc__)
    parser.add_argument("--traces", type=int, default=FULL.traces, help=f"small traces ({FULL.traces})")
    parser.add_argument("--crowds", type=int, default=FULL.crowds, help=f"of each kind ({FULL.crowds})")
    parser.add_argument("--jobs", type=int, default=FULL.crowd_jobs, help=f"of a crowd ({FULL.crowd_jobs})")
    options = parser.parse_args(arguments)
    effort = msgspec.structs.replace(
        FULL, traces=options.traces, crowds=options.crowds, crowd_jobs=options.jobs
    )
    for measured in sections(effort):
        print(table(measured, {}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
