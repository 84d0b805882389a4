"""Gauges of the world: read off it when somebody asks, so a series of something that is gone goes with it.

The world belongs to the thread that plans, and is never read half-way: a page waits for the plan that is
under way, away from the event loop, and then copies figures that the core keeps anyhow. That costs what there
is of envelopes, domains and pending Reservations, and of nodes where something changed; never Runs or leases.
Text is made when the world is free again. A plan that takes too long shows the figures before it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from threading import Lock

from jobtree.api.schema.quantities import HOUR, MILLI, SECOND
from jobtree.core import Domain, EnvelopeState, Promise, RunKey, World, promised_together
from jobtree.manager.metrics import (
    BACKLOG,
    CONCURRENCY,
    ETA,
    FLEET,
    GPU_HOURS,
    HEADROOM,
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
        self._world = world  # it may be another one after every plan
        self._clock = clock
        self._forget = forget  # told the domains that there are: others have no series any more
        self._still = Lock()
        self._text = ""

    @contextmanager
    def planning(self) -> Iterator[None]:
        """The world changes meanwhile: nobody reads it."""
        with self._still:
            yield

    def page(self) -> str:
        if self._still.acquire(timeout=WAIT_SECONDS):
            try:
                rows, etas = read_gauges(self._world(), self._clock())
            finally:
                self._still.release()
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
    """Every envelope that some Budget has now."""
    used, headroom, hours = ([] for _ in range(3))  # type: tuple[list[GaugeRow], list[GaugeRow], list[GaugeRow]]
    rows |= {CONCURRENCY: used, HEADROOM: headroom, GPU_HOURS: hours}
    ledger = world.budgets
    for name, budget in sorted(ledger.budgets.items()):
        for spec in budget.spec.envelopes:
            envelope = ledger.envelopes[name, spec.name]
            labels = (envelope.owner, name, spec.name, spec.flavor)
            headroom.append((labels, envelope.account.free_charge() / MILLI))
            used += (((*labels, kind), one.amount / MILLI) for kind, one in envelope.by_class.items())
            hours += (((*labels, kind), use / MILLI / HOUR) for kind, use in uses(envelope, now))


def uses(envelope: EnvelopeState, now: int) -> Iterator[tuple[str, int]]:
    account = envelope.account
    used = account.used(now)
    yield "used", used
    yield "committed", max(0, account.declared_end - account.declared * now)
    if account.max_use is not None:
        yield "left", max(0, account.max_use - used)


def read_fleet(world: World, rows: Rows) -> None:
    fleet: list[GaugeRow] = []
    rows[FLEET] = fleet
    for flavor in sorted(world.fleet.flavors.values(), key=lambda flavor: flavor.name):
        for domain in sorted(flavor.domains.values(), key=lambda domain: domain.name):
            fleet += (((flavor.name, domain.name, state), gpus) for state, gpus in states(domain))


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
    for name in world.fleet.flavors:  # nothing is a figure too
        pending.setdefault(name, 0)
    for metric, found in ((PENDING, pending), (UNDATED, undated), (BACKLOG, backlog)):
        rows[metric] = [((name,), found.get(name, 0)) for name in sorted(pending)]
    return etas


def pending_promises(world: World) -> Iterator[Promise]:
    """One for each pending Reservation: of stages that start together, the first's."""
    seen: set[RunKey] = set()
    for _, _, (_, namespace, name) in world.promise_order:
        run = world.runs[namespace, name]
        promise = run.promise
        assert promise is not None, "ranks are those of promises"
        if run.gang:
            promise = promised_together(world, run, promise)[0][1]
            if (namespace, promise.name) in seen:
                continue
            seen.add((namespace, promise.name))
        yield promise


# As text


def render_page(rows: Rows, etas: list[float]) -> str:
    lines: list[str] = []
    for metric, found in rows.items():
        lines += titled(metric)
        for labels, value in found:
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
    """Labels as they are written: the same at every scrape, so the latest are remembered."""
    return ",".join(f'{name}="{escape_label(value)}"' for name, value in zip(names, values, strict=True))


def escape_label(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
