"""The measurements, section by section."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from benchmarks import bars, kept_promises, replay_speed
from benchmarks.arrivals import (
    Fleet,
    Kind,
    Samples,
    measure_arrivals,
    measure_burst,
    measure_refusals,
)
from benchmarks.day import measure_day
from benchmarks.events import measure_cordons, measure_edits, measure_queue
from benchmarks.failures import AT_ONCE, measure_failures
from benchmarks.fixtures import FLAVOR, Document
from benchmarks.footprint import measure_footprint
from benchmarks.grow import (
    Parsed,
    build,
    documents,
    full_world,
    is_closed_lease,
    parse,
    thin_out,
    with_closed,
)
from benchmarks.promises import measure_odds, measure_resolution
from benchmarks.report import Figure, Section
from benchmarks.sampling import NANOSECONDS_PER_MS, percentile_ms, percentile_ns, timed
from benchmarks.scale import Effort, Scale
from benchmarks.trees import measure_trees
from benchmarks.workload import Workload
from jobtree.core.world.world import World
from jobtree.manager.planner.world_gauges import WorldGauges


def full_fleet(effort: Effort) -> Iterator[Section]:
    """Yields each section of a full fleet when it is measured."""
    world = full_world(effort.large)
    yield refusals(Fleet(effort.large, world), effort)
    yield queue(Fleet(effort.large, world), effort)


def fleet_in_use(effort: Effort) -> Iterator[Section]:
    world = full_world(effort.large)
    thin_out(world, effort.large)
    now, contents = world.now, documents(effort.large, world)
    yield memory(contents, now)
    objects, parse_ns = timed(lambda: list(map(parse, contents)))
    world, build_ns = timed(lambda: build(objects, now))
    yield inventory(effort.large, world, objects)
    yield building(parse_ns, build_ns)
    yield scrapes(world, effort)
    few_closed = build(with_closed(objects, effort.few_closed), now)
    fleets = [
        Fleet(effort.large, world),
        Fleet(effort.small, in_use(effort.small)),
        Fleet(effort.large, few_closed),
    ]
    yield from arrivals(fleets, effort)
    yield burst(fleets[0], effort)
    yield others(fleets[0], effort)
    yield trees(fleets[0], effort)


def in_use(scale: Scale) -> World:
    """Returns a fleet of this scale, built from its documents."""
    world = full_world(scale)
    thin_out(world, scale)
    return build(map(parse, documents(scale, world)), world.now)


def inventory(scale: Scale, world: World, objects: Sequence[Parsed]) -> Section:
    free = world.fleet.flavor(FLAVOR).free
    counts = (
        ("nodes", scale.nodes),
        ("GPUs", scale.gpus),
        ("GPUs in use", scale.gpus - free),
        ("domains", len(world.fleet.flavor(FLAVOR).domains)),
        ("budgets", len(world.budgets.budgets)),
        ("Runs", len(world.runs)),
        ("open leases", len(world.posted_leases)),
        ("closed leases", sum(map(is_closed_lease, objects))),
    )
    return Section("the fleet", tuple(Figure(name, count, "") for name, count in counts))


def scrapes(world: World, effort: Effort) -> Section:
    """Measures the cost of /metrics, which is mostly outside the event loop and planning."""
    gauges = WorldGauges(lambda: world, lambda: world.now)
    samples = [timed(gauges.page)[1] for _ in range(effort.events)]
    bar = bars.SCRAPE_MS if effort.judged else None
    figure = Figure("a page of metrics, p50", percentile_ms(samples, 50), "ms", bar)
    return Section("a scrape of all gauges", (figure,))


def refusals(fleet: Fleet, effort: Effort) -> Section:
    figures = []
    for gpus in effort.gpus:
        kind = Kind(gpus, grouped=False)
        samples = measure_refusals(fleet, kind, effort.refusals)
        bar = bars.RESERVATION_MS if effort.judged else None
        figures.append(Figure(f"{kind.label}, p50", percentile_ms(samples, 50), "ms"))
        figures.append(Figure(f"{kind.label}, p99", percentile_ms(samples, 99), "ms", bar))
    return Section("an arrival that gets a Reservation, since the fleet is full", tuple(figures))


def queue(fleet: Fleet, effort: Effort) -> Section:
    measured = measure_queue(fleet, effort.waiting, effort.gpus, effort.events)
    figures = []
    for gpus, samples in measured.refusals.items():
        bar = bars.RESERVATION_MS if effort.judged else None
        figures.append(Figure(f"a Reservation for {gpus:,} GPUs, p50", percentile_ms(samples, 50), "ms"))
        figures.append(Figure(f"a Reservation for {gpus:,} GPUs, p99", percentile_ms(samples, 99), "ms", bar))
    events = {
        "a Run ends": (measured.endings, bars.CROWD_END_MS),
        "a node fails": (measured.failures, bars.CROWD_FAILURE_MS),
        "a node is healed": (measured.heals, bars.CROWD_HEAL_MS),
        "a Budget is edited": (measured.edits, bars.CROWD_EDIT_MS),
    }
    for event, (samples, bound) in events.items():
        bar = bound if effort.judged else None
        figures.append(Figure(f"{event}, p50", percentile_ms(samples, 50), "ms", bar))
        figures.append(Figure(f"{event}, p99", percentile_ms(samples, 99), "ms"))
    first, repeated = (ns / NANOSECONDS_PER_MS for ns in measured.forecasts)
    figures.append(Figure("all Reservations again, with all probabilities", first, "ms"))
    bar = bars.FORECAST_MS if effort.judged else None
    figures.append(Figure("all Reservations again", repeated, "ms", bar))
    figures.append(Figure("all expected starts again", measured.expectations / NANOSECONDS_PER_MS, "ms"))
    return Section(f"the fleet is full and {effort.waiting:,} Runs wait", tuple(figures))


def lotteries(effort: Effort) -> Section:
    rows = (
        ("resolution with 200 tickets, p99", measure_resolution(200, effort.events), bars.RESOLUTION_MS),
        ("exact odds with 6 tickets, p50", measure_odds(6, effort.events), bars.EXACT_ODDS_MS),
        ("simulated odds with 50 tickets, p50", measure_odds(50, 5), bars.SIMULATED_ODDS_MS),
    )
    return Section(
        "a lottery",
        tuple(
            Figure(name, percentile_ms(samples, int(name[-2:])), "ms", bar if effort.judged else None)
            for name, samples, bar in rows
        ),
    )


def failures(effort: Effort) -> Section:
    measured = measure_failures(effort.large, effort.eager, effort.events)
    ends, fails = percentile_ms(measured.endings, 50), percentile_ms(measured.failures, 50)
    judged = effort.judged
    figures = (
        Figure("a Run ends, p50", ends, "ms", bars.GROWTH_MS if judged else None),
        Figure("a node fails, p50", fails, "ms", bars.REPAIR_MS if judged else None),
        Figure(
            f"{AT_ONCE} nodes fail at once",
            measured.outage / NANOSECONDS_PER_MS,
            "ms",
            bars.OUTAGE_MS if judged else None,
        ),
    )
    return Section(f"the fleet is full and {effort.eager:,} Runs want to grow", figures)


def day(effort: Effort) -> Section:
    measured = measure_day(effort.large, effort.day)
    figures = (
        Figure(
            "the day", measured.ns / NANOSECONDS_PER_MS / 1000, "s", bars.DAY_S if effort.judged else None
        ),
        Figure("Runs that started", measured.started, ""),
        Figure("Runs that wait in the end", measured.waiting, ""),
    )
    return Section(f"a simulated day with {effort.day:,} arrivals", figures)


def memory(contents: Sequence[Document], now: int) -> Section:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fleet.jsonl"
        with path.open("wb") as lines:
            lines.writelines(msgspec.json.encode(document) + b"\n" for document in contents)
        measured = measure_footprint(path, now)
    figures = (
        Figure("resident, fleet in memory", measured.after_mib, "MiB"),
        Figure("resident, before", measured.before_mib, "MiB"),
    )
    return Section("memory of a process that holds it", figures)


def building(parse_ns: int, build_ns: int) -> Section:
    figures = (
        Figure("from parsed objects", build_ns / NANOSECONDS_PER_MS, "ms"),
        Figure("from raw documents", (parse_ns + build_ns) / NANOSECONDS_PER_MS, "ms"),
    )
    return Section("building the world", figures)


def arrivals(fleets: Sequence[Fleet], effort: Effort) -> Iterator[Section]:
    """Yields every kind of arrival on the first fleet, then the ratios to the other fleets."""
    by_fleet: list[Figure] = []
    by_closed: list[Figure] = []
    for gpus in effort.gpus:
        figures: list[Figure] = []
        for kind in (Kind(gpus, grouped=False), Kind(gpus, grouped=True)):
            large, small, few_closed = measure_arrivals(fleets, kind, effort.arrivals)
            figures += latencies(kind, large, effort)
            by_fleet.append(ratio(kind, large, small, bars.FLEET_RATIO if effort.judged else None))
            by_closed.append(ratio(kind, large, few_closed, bars.CLOSED_RATIO if effort.judged else None))
        yield Section(f"an arrival of {gpus:,} GPUs", tuple(figures))
    large_gpus, small_gpus = (fleet.scale.gpus for fleet in fleets[:2])
    yield Section(f"the same on {large_gpus:,} GPUs as on {small_gpus:,}, p50", tuple(by_fleet))
    closed = f"{effort.large.closed_leases:,} closed leases as with {effort.few_closed:,}"
    yield Section(f"the same with {closed}, p50", tuple(by_closed))


def latencies(kind: Kind, samples: Samples, effort: Effort) -> Iterator[Figure]:
    typical, tail = bars.DECIDE_MS[kind.gpus] if effort.judged else (None, None)
    label = kind.label
    yield Figure(f"{label}: decide, p50", percentile_ms(samples.decide, 50), "ms", typical)
    yield Figure(f"{label}: decide, p99", percentile_ms(samples.decide, 99), "ms", tail)
    yield Figure(f"{label}: commit, p50", percentile_ms(samples.commit, 50), "ms")
    yield Figure(f"{label}: cancel, p50", percentile_ms(samples.leave, 50), "ms")


def ratio(kind: Kind, samples: Samples, others: Samples, bar: bars.Bar | None) -> Figure:
    value = percentile_ns(samples.decide, 50) / percentile_ns(others.decide, 50)
    return Figure(kind.label, value, "×", bar)


def burst(fleet: Fleet, effort: Effort) -> Section:
    workload = Workload(fleet.scale, "burst")
    runs = [workload.draw(fleet.world.now) for _ in range(effort.burst)]
    measured = measure_burst(fleet, runs)
    figures = (
        Figure("decide", measured.decide_ns / NANOSECONDS_PER_MS, "ms"),
        Figure("decide, per arrival", measured.decide_ns / NANOSECONDS_PER_MS / measured.arrivals, "ms"),
        Figure("commit", measured.commit_ns / NANOSECONDS_PER_MS, "ms"),
        Figure("started", measured.started, ""),
    )
    return Section(f"{measured.arrivals:,} arrivals at once, of mixed sizes", figures)


def trees(fleet: Fleet, effort: Effort) -> Section:
    measured = measure_trees(fleet, effort.events)
    bar = bars.TREE_MS if effort.judged else None
    figures = (
        Figure("a tree of three stages arrives, p50", percentile_ms(measured.arrivals, 50), "ms", bar),
        Figure("a tree of three stages arrives, p99", percentile_ms(measured.arrivals, 99), "ms"),
        Figure("two stages start together, p50", percentile_ms(measured.starts, 50), "ms", bar),
        Figure("the tree is cancelled, p50", percentile_ms(measured.leaves, 50), "ms"),
    )
    return Section("a job tree: preparation, then 128 and 8 GPUs together", figures)


def others(fleet: Fleet, effort: Effort) -> Section:
    cordons, edits = measure_cordons(fleet, effort.events), measure_edits(fleet, effort.events)
    figures = (
        Figure("a node is cordoned, p50", percentile_ms(cordons, 50), "ms"),
        Figure("a budget is edited, p50", percentile_ms(edits, 50), "ms"),
    )
    return Section("other events", figures)


GROUPS: dict[str, Callable[[Effort], Iterator[Section]]] = {
    "full": full_fleet,
    "lottery": lambda effort: iter([lotteries(effort)]),
    "use": fleet_in_use,
    "failures": lambda effort: iter([failures(effort)]),
    "day": lambda effort: iter([day(effort)]),
    "replay": replay_speed.sections,
    "promises": kept_promises.sections,
}
"""The groups that can be measured separately; each has its own fleets."""
