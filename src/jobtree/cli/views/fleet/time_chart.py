"""Draws a chart of the coming hours: a line for each Run or promise with GPUs of a domain.

``#``: the Run holds the GPUs; ``?``: it may be stopped from then on; ``=``: the GPUs are promised. A line up
to the right edge may have no known end.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from jobtree.api.schema.quantities import format_time, parse_time
from jobtree.cli.shell.table import room
from jobtree.cli.views.lottery.risk_lines import risks_of
from jobtree.cli.views.place_names import Places
from jobtree.cli.views.runs.run_summary import run_title
from jobtree.core import Domain, RunState
from jobtree.messages.wording import counted_noun
from jobtree.snapshot.cluster import Cluster

PLAIN_WIDTH = 110
NARROWEST = 24
LEGEND = "# held   ? may be stopped   = promised"
TICK = 10  # columns between two times


class Bar(NamedTuple):
    """GPUs of a domain in a period; from ``at_risk`` on, the Run may be stopped."""

    name: str
    gpus: int
    sign: str
    start: int
    end: int | None = None
    at_risk: int | None = None


class Chart:
    def __init__(self, cluster: Cluster, ahead: int) -> None:
        self._cluster = cluster
        self._now, self._ahead = cluster.now, ahead
        cluster.documents()  # updates the status of all objects
        runs = cluster.world.runs
        self._runs = [runs[key] for key in sorted(runs)]

    def objects(self) -> list[dict[str, Any]]:
        """Returns the Runs with GPUs or a promise, and their Reservations."""
        objects = self._cluster.objects
        shown = [run for run in self._runs if run.leases or run.promise]
        keys = [("Run", *run.key) for run in shown]
        keys += [("Reservation", run.key[0], run.promise.name) for run in shown if run.promise]
        return [body for key in keys if (body := objects.get(key))]

    def lines(self) -> Iterator[str]:
        places = Places(self._cluster.world)
        flavors = sorted(self._cluster.world.fleet.flavors.items())
        domains = [domain for _, flavor in flavors for _, domain in sorted(flavor.domains.items())]
        for domain in domains:
            capacity = f"{counted_noun(domain.capacity, 'GPU')} of {domain.flavor}, {domain.free} free"
            yield f"{places.called(domain.name)}  {capacity}"
            yield from self._draw([*self._running_bars(domain), *self._promised_bars(domain)])
        yield LEGEND if domains else "no GPUs"

    def _running_bars(self, domain: Domain) -> Iterator[Bar]:
        for run in self._runs:
            leases = [lease for lease in run.leases.values() if lease.flavor == domain.flavor]
            slots = [mask for lease in leases for node, mask in lease.slots if node in domain.nodes]
            gpus = sum(mask.bit_count() for mask in slots)
            if gpus:
                yield Bar(run_title(run), gpus, "#", self._now, run.known_end, self._first_risk(run))

    def _first_risk(self, run: RunState) -> int | None:
        risks = risks_of(self._cluster.objects.get(("Run", *run.key)) or {})
        return min((parse_time(risk.at) for risk in risks if risk.kill_probability != "0"), default=None)

    def _promised_bars(self, domain: Domain) -> Iterator[Bar]:
        promises = [run.promise for run in self._runs if run.promise]
        for promise in sorted(promises, key=lambda promise: promise.precedence):
            gpus = dict(promise.domain_gpus).get(domain.name, 0)
            if gpus and promise.flavor == domain.flavor and promise.at is not None:
                yield Bar(f"{promise.run_key[0]}/{promise.name}", gpus, "=", promise.at, promise.end)

    def _draw(self, bars: list[Bar]) -> Iterator[str]:
        """Yields a scale of times and the bars, or a note if there are none."""
        if not bars:
            yield "  no GPUs are in use or promised here"
            return
        names = max(len(bar.name) for bar in bars)
        gpus = max(len(str(bar.gpus)) for bar in bars)
        width = max(NARROWEST, (room() or PLAIN_WIDTH) - names - gpus - 6)
        yield f"{' ' * (names + gpus + 6)}{self._scale(width)}".rstrip()
        for bar in bars:
            yield f"  {bar.name:<{names}}  {bar.gpus:>{gpus}}  {self._signs(bar, width)}".rstrip()

    def _scale(self, width: int) -> str:
        """Returns ``11:00     11:45     …``: the time of every tenth column."""
        times = (
            format_time(self._now + column * self._ahead // width) for column in range(0, width - 4, TICK)
        )
        return "".join(f"{time[11:16]:<{TICK}}" for time in times).rstrip()

    def _signs(self, bar: Bar, width: int) -> str:
        return "".join(self._sign(bar, self._now + column * self._ahead // width) for column in range(width))

    @staticmethod
    def _sign(bar: Bar, at: int) -> str:
        if at < bar.start or (bar.end is not None and at >= bar.end):
            return " "
        return "?" if bar.at_risk is not None and at >= bar.at_risk else bar.sign
