"""Renders the gauges of the world at every scrape, so that objects which are gone have no series.

The world is not read while a plan is made: a page waits for the plan, outside the event loop, and then copies
figures that the core keeps anyway. This costs time per envelope, domain, pending Reservation and changed
node, and for each lease that an owner could take back from its family. The text is rendered after the world
is released. If a plan takes longer than ``WAIT_SECONDS``, the page shows the figures from before it.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from threading import Lock

from jobtree.api.schema.quantities import HOUR, MILLI, SECOND
from jobtree.core import (
    Domain,
    EnvelopeState,
    Headroom,
    Promise,
    RunKey,
    World,
    headroom_of,
    promised_together,
)
from jobtree.manager.metrics import (
    BACKLOG,
    CONCURRENCY,
    ETA,
    FAMILY_HEADROOM,
    FLEET,
    GPU_HOURS,
    HEADROOM,
    HELD_NODES,
    PENDING,
    UNDATED,
    Metric,
    SeriesKey,
)

WAIT_SECONDS = 5.0
INFINITE = float("inf")

GaugeRow = tuple[tuple[str, ...], float]  # labels and value
Rows = dict[Metric, list[GaugeRow]]


class WorldGauges:
    def __init__(
        self,
        world: Callable[[], World],
        clock: Callable[[], int],
        forget: Callable[[set[SeriesKey]], None] = lambda _: None,
    ) -> None:
        self._world = world  # the model builds another one when it is loaded again
        self._clock = clock
        self._forget = forget  # gets the existing domains, and removes the series of others
        self._lock = Lock()
        self._text = ""

    @contextmanager
    def planning(self) -> Iterator[None]:
        """Keeps readers away from the world while it changes."""
        with self._lock:
            yield

    def page(self) -> str:
        if self._lock.acquire(timeout=WAIT_SECONDS):
            try:
                rows, etas = read_gauges(self._world(), self._clock())
            finally:
                self._lock.release()
            self._forget({(labels[0], labels[1]) for labels, _ in rows[FLEET]})
            self._text = render_page(rows, etas)
        return self._text


def read_gauges(world: World, now: int) -> tuple[Rows, list[float]]:
    """The rows of every gauge, and the time until each promised start (infinite without one)."""
    rows: Rows = {}
    read_budgets(world, now, rows)
    read_fleet(world, rows)
    return rows, read_reservations(world, now, rows)


def read_budgets(world: World, now: int, rows: Rows) -> None:
    """Reads every envelope that is in a Budget now."""
    used, headroom, family, hours = list[GaugeRow](), list[GaugeRow](), list[GaugeRow](), list[GaugeRow]()
    rows |= {CONCURRENCY: used, HEADROOM: headroom, FAMILY_HEADROOM: family, GPU_HOURS: hours}
    budgets = world.budgets
    for name, budget in sorted(budgets.budgets.items()):
        for spec in budget.spec.envelopes:
            envelope = budgets.envelopes[name, spec.name]
            labels = (envelope.owner, name, spec.name, spec.flavor)
            room = headroom_of(world, envelope)
            headroom.append((labels, float(room.gpus)))
            if envelope.spec.sharing == "family":
                family.append((labels, float(room.family_gpus)))
            used += (((*labels, kind), usage.amount / MILLI) for kind, usage in envelope.by_class.items())
            hours += (((*labels, kind), use / MILLI / HOUR) for kind, use in uses(world, envelope, room, now))


def uses(world: World, envelope: EnvelopeState, room: Headroom, now: int) -> Iterator[tuple[str, int]]:
    """The usage now; what the world has of its own instant changes with the use of open leases since."""
    account, elapsed = envelope.account, now - world.now
    yield "used", account.used(now)
    yield "committed", max(0, room.committed - account.declared * elapsed)
    if room.hours_left is not None:
        yield "left", max(0, room.hours_left - account.open_ended * elapsed)


def read_fleet(world: World, rows: Rows) -> None:
    fleet, held_nodes = list[GaugeRow](), list[GaugeRow]()
    rows |= {FLEET: fleet, HELD_NODES: held_nodes}
    held = Counter(world.fleet.domain_by_node[node] for node in world.node_lifecycle.held_nodes())
    for flavor in sorted(world.fleet.flavors.values(), key=lambda flavor: flavor.name):
        for domain in sorted(flavor.domains.values(), key=lambda domain: domain.name):
            fleet += (((flavor.name, domain.name, state), gpus) for state, gpus in states(domain))
            held_nodes.append(((flavor.name, domain.name), held[domain]))


def states(domain: Domain) -> Iterator[tuple[str, int]]:
    """Every GPU of a domain, once. Opportunistic work on a spare's slots counts as that."""
    census = domain.gpu_counts()
    spare = census.spare - census.lent
    yield "active", census.leased - domain.opportunistic_slots
    yield "spare", spare
    yield "opportunistic", domain.opportunistic_slots
    yield "foreign", census.foreign
    yield "free", domain.free
    yield "unavailable", census.total - census.leased - spare - census.foreign - domain.free


def read_reservations(world: World, now: int, rows: Rows) -> list[float]:
    pending: dict[str, int] = {}
    undated: dict[str, int] = {}
    backlog: dict[str, float] = {}
    etas: list[float] = []
    for promise in pending_promises(world):
        flavor = promise.flavor
        pending[flavor] = pending.get(flavor, 0) + 1
        undated[flavor] = undated.get(flavor, 0) + (promise.at is None)
        ahead = INFINITE if promise.at is None else max(0, promise.at - now) / SECOND
        backlog[flavor] = max(backlog.get(flavor, 0), 0 if promise.at is None else ahead)
        etas.append(ahead)
    for name in world.fleet.flavors:  # a flavor without promises has the value 0
        pending.setdefault(name, 0)
    for metric, values in ((PENDING, pending), (UNDATED, undated), (BACKLOG, backlog)):
        rows[metric] = [((name,), values.get(name, 0)) for name in sorted(pending)]
    return etas


def pending_promises(world: World) -> Iterator[Promise]:
    """One promise for each pending Reservation: the first of stages that start together."""
    seen: set[RunKey] = set()
    for _, _, (_, namespace, name) in world.promise_order:
        run = world.runs[namespace, name]
        promise = run.promise
        assert promise is not None, "the order lists Runs with a promise"
        if run.gang:
            promise = promised_together(world, run, promise)[0][1]
            if (namespace, promise.name) in seen:
                continue
            seen.add((namespace, promise.name))
        yield promise


# As text


def render_page(rows: Rows, etas: list[float]) -> str:
    lines: list[str] = []
    for metric, metric_rows in rows.items():
        lines += titled(metric)
        for labels, value in metric_rows:
            lines.append(f"{metric.name}{{{labelled(metric.labels, labels)}}} {value}")
    lines += titled(ETA)
    for limit in (*ETA.buckets, INFINITE):
        bound = "+Inf" if limit == INFINITE else str(float(limit))
        lines.append(f'{ETA.name}_bucket{{le="{bound}"}} {sum(eta <= limit for eta in etas)}')
    dated = sum(eta for eta in etas if eta != INFINITE)
    return "\n".join((*lines, f"{ETA.name}_count {len(etas)}", f"{ETA.name}_sum {dated}", ""))


def titled(metric: Metric) -> list[str]:
    return [f"# HELP {metric.name} {metric.text}", f"# TYPE {metric.name} {metric.kind}"]


@lru_cache(maxsize=65_536)
def labelled(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    """Returns labels as they are written; they are the same at every scrape, so the text is cached."""
    return ",".join(f'{name}="{escape_label(value)}"' for name, value in zip(names, values, strict=True))


def escape_label(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
