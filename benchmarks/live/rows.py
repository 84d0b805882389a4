"""The rows of the benchmark: what is measured on which cluster, and what is asked of it.

Every share is of a limit that was measured right after, for as long and on the same cluster, several times in
turn: a machine that others use as well slows both. A row says how large it is in its name; ``Effort`` makes
one smaller.

How many times faster than kube-scheduler anybody can be is bounded, too: nobody starts gangs faster than the
server takes their pods or, of gangs of one pod, all their writes. The raw limit beside "times kube-scheduler"
is how many times faster than it a client would be that decides nothing and only writes. Where that is less
than what is asked, the bar cannot be reached on this machine, and is missed all the same. What is asked is
asked of kube-scheduler as it comes; without its limit on requests it is shown as well.
"""

from collections.abc import Callable, Coroutine, Sequence

import msgspec

from benchmarks.live import published
from benchmarks.live.bursts import measure_bursts
from benchmarks.live.cluster import GPUS, Cluster, cluster
from benchmarks.live.gangs import GangFigures, joined, measure_gangs
from benchmarks.live.idle import measure_idle
from benchmarks.live.native import measure_native
from benchmarks.live.raw import WRITES_PER_GANG, Limit, Raw, take_sample
from benchmarks.live.results import Bar, Figure
from benchmarks.live.size import measure_size

POD_SHARES = {128: Bar(50), 1024: Bar(70)}  # percent of raw pod creations per second
WRITE_SHARE = Bar(70)
TIMES_NATIVE = Bar(5)
IDLE_MS = Bar(150, at_most=True)
MEMORY_MIB = Bar(1024, at_most=True)
TAKEOVER_S = Bar(15, at_most=True)
PODLESS_S = Bar(250, at_most=True)
WITH_PODS_S = Bar(600, at_most=True)

BURST_MS = Bar(2000, at_most=True)
BURST_NODES = 300
BURST_RUNS = 2_000

FULL_NODES = 12_500
FULL_PODS = 20_000
IDLE_TIMES = 100
REST_SECONDS = 20.0
LEAST_ROUNDS = 2
WINDOW_SECONDS = 10.0  # of all rounds together
MOST_GANGS = {8: 800, 128: 240, 1024: 30}  # where so many fit


class Effort(msgspec.Struct, frozen=True):
    """The size of a measurement: ``nodes`` replaces that of a row, ``share`` is the part of its gangs."""

    nodes: int | None = None
    share: float = 1.0

    @property
    def is_full(self) -> bool:
        return self.nodes is None and self.share == 1.0

    def of(self, count: int, least: int = 1) -> int:
        return max(least, round(count * self.share))


Tell = Callable[[str, Sequence[Figure]], None]


async def gangs(nodes: int, effort: Effort, tell: Tell) -> None:
    """Measures gangs of 8, 128 and 1,024 GPUs, the raw limits, and kube-scheduler."""
    async with cluster(effort.nodes or nodes) as made:
        owner = await made.add_team(len(made.nodes) * GPUS)
        sample = await take_sample(made, owner)
        for gpus, most in MOST_GANGS.items():
            fitting = len(made.nodes) * GPUS // gpus
            number = min(effort.of(most), fitting)
            if number:
                name = f"{number:,} gangs of {gpus:,} GPUs, {len(made.nodes):,} nodes"
                seen, limits = await _rounds(made, owner, Raw(made, sample), (gpus, number), effort)
                native = await measure_native(made, sample, gpus, number, limited=True)
                lifted = await measure_native(made, sample, gpus, max(1, number // 4), limited=False)
                tell(name, figures_of(gpus, seen, limits, native, lifted))


class Limits(msgspec.Struct, frozen=True):
    """The limits of the server per second; ``writes`` are those of gangs of one pod."""

    pods: float
    writes: float = 0.0


async def _rounds(
    made: Cluster, owner: str, raw: Raw, gangs: tuple[int, int], effort: Effort
) -> tuple[GangFigures, Limits]:
    """Measures rounds of gangs, each followed by the raw limits for an equal time."""
    gpus, number = gangs
    rounds, pods, writes = list[GangFigures](), list[Limit](), list[Limit]()
    while (
        len(rounds) < LEAST_ROUNDS
        or sum(figures.seconds for figures in rounds) < WINDOW_SECONDS * effort.share
    ):
        rounds.append(await measure_gangs(made, owner, gpus, number))
        pods.append(await raw.pods(rounds[-1]))
        if gpus == GPUS:
            writes.append(await raw.gangs(rounds[-1]))
    return joined(rounds), Limits(per_second(pods), per_second(writes) * WRITES_PER_GANG)


def figures_of(
    gpus: int, seen: GangFigures, limits: Limits, native: GangFigures, lifted: GangFigures
) -> list[Figure]:
    raw_gangs = limits.writes / WRITES_PER_GANG if gpus == GPUS else limits.pods * GPUS / gpus
    return [
        Figure("gangs per second", seen.gangs_per_second, "/s"),
        Figure("pods per second", seen.pods_per_second, "/s", raw=limits.pods),
        *shares(gpus, seen, limits),
        Figure("writes per gang", seen.writes_per_gang),
        Figure("gangs per second by kube-scheduler", native.gangs_per_second, "/s"),
        times_native("times kube-scheduler", seen, native, raw_gangs, TIMES_NATIVE),
        Figure("the same without its limit on requests", lifted.gangs_per_second, "/s"),
        times_native("times that", seen, lifted, raw_gangs),
        Figure("CPU of the manager per gang", 1000 * seen.decider_cpu_seconds / seen.gangs, "ms"),
        Figure("CPU of kube-scheduler per gang", 1000 * lifted.decider_cpu_seconds / lifted.gangs, "ms"),
        Figure("CPU per gang, with API server and etcd", seen.cpu_ms_per_gang, "ms"),
        Figure("the same for kube-scheduler", lifted.cpu_ms_per_gang, "ms"),
    ]


def per_second(limits: Sequence[Limit]) -> float:
    return sum(limit.done for limit in limits) / sum(limit.seconds for limit in limits) if limits else 0.0


def times_native(
    name: str, seen: GangFigures, native: GangFigures, raw_gangs: float, bar: Bar | None = None
) -> Figure:
    """Returns the ratio to kube-scheduler, with the largest ratio that the API server allows."""
    most = raw_gangs / native.gangs_per_second
    return Figure(name, seen.gangs_per_second / native.gangs_per_second, "×", bar, raw=most)


def shares(gpus: int, seen: GangFigures, limits: Limits) -> list[Figure]:
    share = 100 * seen.pods_per_second / limits.pods
    if gpus != GPUS:
        return [Figure("share of raw pods", share, "%", POD_SHARES[gpus], raw=100)]
    needed = seen.gangs_per_second * WRITES_PER_GANG
    return [
        Figure("share of raw pods", share, "%", raw=100),
        Figure("needed writes per second", needed, "/s", raw=limits.writes),
        Figure("share of raw writes", 100 * needed / limits.writes, "%", WRITE_SHARE, raw=100),
    ]


async def gangs_1000(effort: Effort, tell: Tell) -> None:
    await gangs(1_000, effort, tell)


async def gangs_5000(effort: Effort, tell: Tell) -> None:
    await gangs(5_000, effort, tell)


async def idle(effort: Effort, tell: Tell) -> None:
    """Measures the time from submit to bound on an idle cluster."""
    async with cluster(effort.nodes or 1_000) as made:
        owner = await made.add_team(len(made.nodes) * GPUS)
        async with made.managed():
            times = await measure_idle(made, owner, GPUS, effort.of(IDLE_TIMES))
    figures = [
        Figure("submit to bound, p50", percentile(times, 50), "ms", IDLE_MS),
        Figure("submit to bound, p99", percentile(times, 99), "ms"),
    ]
    tell(f"8 GPUs on an idle cluster, {len(made.nodes):,} nodes", figures)


async def size(effort: Effort, tell: Tell) -> None:
    """Measures the manager with a whole fleet in memory."""
    async with cluster(effort.nodes or FULL_NODES) as made:
        owner = await made.add_team(len(made.nodes) * GPUS)
        pods = min(effort.of(FULL_PODS), len(made.nodes) * 2 - 4)
        measured = await measure_size(made, owner, pods, REST_SECONDS * effort.share)
    figures = [
        Figure("resident", measured.resident_mib, "MiB", MEMORY_MIB),
        Figure("resident, peak while filling", measured.peak_mib, "MiB", MEMORY_MIB),
        Figure("resident, peak after a start", measured.start_peak_mib, "MiB", MEMORY_MIB),
        Figure("filling", measured.fill_seconds, "s"),
        Figure("CPU while filling, per pod", 1000 * measured.fill_cpu_seconds / measured.pods, "ms"),
        Figure("CPU at rest", measured.rest_cpu_percent, "%"),
        Figure("start until the cluster is read", measured.read_seconds, "s"),
        Figure("start until the first plan is carried out", measured.first_plan_seconds, "s"),
        Figure("takeover after SIGKILL", measured.takeover_seconds, "s", TAKEOVER_S),
    ]
    tell(f"{len(made.nodes) * GPUS:,} GPUs, {measured.pods:,} pods", figures)


async def podless(effort: Effort, tell: Tell) -> None:
    """Measures the published test without pods."""
    await _published(effort, tell, pods=False)


async def with_pods(effort: Effort, tell: Tell) -> None:
    """Measures the published test with pods."""
    await _published(effort, tell, pods=True)


async def _published(effort: Effort, tell: Tell, *, pods: bool) -> None:
    async with cluster(effort.nodes or published.NODES, published.RACK_NODES) as made:
        number = effort.of(published.GANGS)
        seen = await published.measure_published(made, number, pods=pods)
    bar = (WITH_PODS_S if pods else PODLESS_S) if number == published.GANGS else None
    figures = [
        Figure("all admitted", seen.admitted_seconds, "s", bar),
        Figure("all completed", seen.completed_seconds, "s"),
        Figure("admissions per second", seen.gangs / seen.admitted_seconds, "/s"),
        Figure("CPU of the manager per gang", 1000 * seen.manager_cpu_seconds / seen.gangs, "ms"),
        Figure("CPU of API server and etcd per gang", 1000 * seen.server_cpu_seconds / seen.gangs, "ms"),
        Figure("manager, peak", seen.peak_mib, "MiB", MEMORY_MIB),
    ]
    tell(f"{number:,} two-pod gangs of 30 teams, {'with' if pods else 'without'} pods", figures)


async def bursts(effort: Effort, tell: Tell) -> None:
    """Measures the time to bound in one namespace while another one creates thousands of Runs."""
    async with cluster(effort.nodes or BURST_NODES) as made:
        number = effort.of(BURST_RUNS)
        seen = await measure_bursts(made, number)
    figures = [
        Figure(f"submit to bound {when}, {part}", 1000 * percentile(seconds, percent), "ms", bar)
        for when, seconds in (("during the burst", seen.burst), ("after a start", seen.start))
        for part, percent, bar in (("p50", 50, None), ("p99", 99, BURST_MS))
    ]
    tell(f"8 GPUs beside {number:,} new Runs of another namespace", figures)


def percentile(ordered: list[float], percent: int) -> float:
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


ROWS: dict[str, Callable[[Effort, Tell], Coroutine[None, None, None]]] = {
    "gangs": gangs_1000,
    "idle": idle,
    "podless": podless,
    "pods": with_pods,
    "gangs-5000": gangs_5000,
    "size": size,
    "bursts": bursts,
}
