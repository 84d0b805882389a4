"""The coming hours of each domain: which Runs hold how many GPUs, and which GPUs are promised."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from jobtree.api.schema.quantities import format_time, parse_time
from jobtree.client.answers.html_tables import html_section, html_table
from jobtree.client.lottery.risk_entries import risks_of
from jobtree.core import Domain, RunState, World
from jobtree.snapshot.cluster import Cluster

COLUMNS = ("what", "GPUs", "from", "to", "may be stopped from")


class Bar(NamedTuple):
    """GPUs of a domain in a period, in ms since the epoch; from ``at_risk`` on, the Run may be stopped."""

    name: str
    gpus: int
    sign: str  # "#": a Run has the GPUs, "=": they are promised
    start: int
    end: int | None = None
    at_risk: int | None = None


class DomainTimeline(NamedTuple):
    """A domain with its bars."""

    name: str
    flavor: str
    capacity: int
    free: int
    bars: tuple[Bar, ...]


class Timeline:
    """The timeline of a cluster from now on, for a duration of ``ahead`` ms."""

    def __init__(self, cluster: Cluster, ahead: int) -> None:
        self._cluster = cluster
        self.now, self.ahead = cluster.now, ahead
        cluster.documents()  # updates the status of all objects
        runs = cluster.world.runs
        self._runs = [runs[key] for key in sorted(runs)]

    @property
    def world(self) -> World:
        return self._cluster.world

    def objects(self) -> list[dict[str, Any]]:
        """Returns the Runs with GPUs or a promise, and their Reservations."""
        objects = self._cluster.objects
        shown = [run for run in self._runs if run.leases or run.promise]
        keys = [("Run", *run.key) for run in shown]
        keys += [("Reservation", run.key[0], run.promise.name) for run in shown if run.promise]
        return [body for key in keys if (body := objects.get(key))]

    def domains(self) -> Iterator[DomainTimeline]:
        """Yields the domains by flavor and name."""
        for _, flavor in sorted(self.world.fleet.flavors.items()):
            for _, domain in sorted(flavor.domains.items()):
                bars = (*self._running_bars(domain), *self._promised_bars(domain))
                yield DomainTimeline(domain.name, domain.flavor, domain.capacity, domain.free, bars)

    def _running_bars(self, domain: Domain) -> Iterator[Bar]:
        for run in self._runs:
            leases = [lease for lease in run.leases.values() if lease.flavor == domain.flavor]
            slots = [mask for lease in leases for node, mask in lease.slots if node in domain.nodes]
            gpus = sum(mask.bit_count() for mask in slots)
            if gpus:
                yield Bar("/".join(run.key), gpus, "#", self.now, run.known_end, self._first_risk(run))

    def _first_risk(self, run: RunState) -> int | None:
        risks = risks_of(self._cluster.objects.get(("Run", *run.key)) or {})
        return min((parse_time(risk.at) for risk in risks if risk.kill_probability != "0"), default=None)

    def _promised_bars(self, domain: Domain) -> Iterator[Bar]:
        promises = [run.promise for run in self._runs if run.promise]
        for promise in sorted(promises, key=lambda promise: promise.precedence):
            gpus = dict(promise.domain_gpus).get(domain.name, 0)
            if gpus and promise.flavor == domain.flavor and promise.at is not None:
                yield Bar(f"{promise.run_key[0]}/{promise.name}", gpus, "=", promise.at, promise.end)

    def __repr__(self) -> str:
        return f"<timeline from {format_time(self.now)}: {len(list(self.domains()))} domains>"

    def _repr_html_(self) -> str:
        return "".join(
            html_section(
                f"{domain.name}: {domain.capacity} GPUs of {domain.flavor}, {domain.free} free",
                [html_table(COLUMNS, map(bar_row, domain.bars))],
            )
            for domain in self.domains()
        )


def bar_row(bar: Bar) -> tuple[object, ...]:
    name = bar.name if bar.sign == "#" else f"promised: {bar.name}"
    times = [None if at is None else format_time(at) for at in (bar.start, bar.end, bar.at_risk)]
    return (name, bar.gpus, *times)
