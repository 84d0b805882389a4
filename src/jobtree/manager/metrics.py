"""What the manager counts, as Prometheus reads it. Never a label per Run.

``METRICS`` is the whole list: the pages of the reference, the tests and the server are made from it. Counters
and histograms grow with a measure, which belongs to a decision and is taken once that is written: what was
refused never counts, and after a crash they begin at zero. Gauges that are marked ``of_world`` are read off
the world of the leader when somebody asks (see ``gauges``); a standby has no world, and shows none.

To add a metric: describe it here, put it into ``METRICS``, and call ``add``, ``observe`` or ``set_to``.
"""

from collections.abc import Callable, Container
from typing import NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest as text_of,
)

from jobtree.core import Violation

disable_created_metrics()  # type: ignore[no-untyped-call]  # when a series began is of no use here

MINUTE, HOUR, DAY = 60, 3_600, 86_400
WAITS = (1, 5, 15, MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 4 * HOUR, 12 * HOUR, DAY, 3 * DAY, 7 * DAY)
ETAS = (MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 4 * HOUR, 12 * HOUR, DAY, 3 * DAY, 7 * DAY, 30 * DAY)
ERRORS = (-DAY, -4 * HOUR, -HOUR, -10 * MINUTE, -MINUTE, 1, MINUTE, 10 * MINUTE, HOUR, 4 * HOUR, DAY)
WORK = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
INVARIANTS = tuple(f"I{number}" for number in range(1, 13))


SeriesKey = tuple[str, str]  # flavor and domain


class Metric(NamedTuple):
    """A name that people search for, what it says, and what it is told apart by."""

    name: str
    kind: str
    text: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    of_world: bool = False


class Measure(NamedTuple):
    """One more of a counter, or one more value in a histogram."""

    metric: Metric
    labels: tuple[str, ...] = ()
    value: float = 1


SUBMITTED = Metric(
    "jobtree_runs_submitted_total",
    "counter",
    "Runs that came and were taken up. A job tree is one; its stages do not count.",
)
ADMISSION = Metric(
    "jobtree_runs_admission_latency_seconds",
    "histogram",
    "How long Runs waited for their first start, from creation or from the end of what they follow; "
    "by the reason of the start.",
    ("flavor", "result"),
    WAITS,
)
PENDING = Metric("jobtree_reservations_pending", "gauge", "Pending Reservations.", ("flavor",), of_world=True)
UNDATED = Metric(
    "jobtree_reservations_undated",
    "gauge",
    "Pending Reservations without earliestStart: nothing known will make their start possible.",
    ("flavor",),
    of_world=True,
)
BACKLOG = Metric(
    "jobtree_reservations_backlog_seconds",
    "gauge",
    "How far ahead the last promised start lies.",
    ("flavor",),
    of_world=True,
)
ETA = Metric(
    "jobtree_reservation_eta_seconds",
    "histogram",
    "Pending Reservations by the time until their promised start, as it is now (not a rate); "
    "those without one are in +Inf only.",
    buckets=ETAS,
    of_world=True,
)
PROMISE_ERROR = Metric(
    "jobtree_reservation_promise_error_seconds",
    "histogram",
    "Start minus what was first promised: below zero it started sooner, above one second later.",
    buckets=ERRORS,
)
FORECAST = Metric(
    "jobtree_forecast_latency_seconds",
    "histogram",
    "Time to bring forecasts of Reservations up to date in one step: all of them, or some while many wait.",
    buckets=WORK,
)
PLAN = Metric(
    "jobtree_plan_latency_seconds",
    "histogram",
    "Time to decide all that follows from what changed.",
    buckets=WORK,
)
RESOLVER = Metric(
    "jobtree_resolver_actions_total",
    "counter",
    "What was taken for promises that were due (Reclaim, DropSpares, Shrink, Lottery), in each domain.",
    ("kind", "flavor", "domain"),
)
DRAWS = Metric(
    "jobtree_lottery_draws_total", "counter", "Runs that were drawn in lotteries, those given back included."
)
PREEMPTIONS = Metric(
    "jobtree_preemptions_total",
    "counter",
    "Runs that lost GPUs to others with a right to them, by the reason of their leases' end, in each domain.",
    ("flavor", "domain", "reason"),
)
ENVELOPE = ("owner", "budget", "envelope", "flavor")
CONCURRENCY = Metric(
    "jobtree_budget_concurrency_gpus",
    "gauge",
    "GPUs that an envelope pays for now, spares at their rate; of class opportunistic, those it does not.",
    (*ENVELOPE, "class"),
    of_world=True,
)
HEADROOM = Metric(
    "jobtree_budget_headroom_gpus",
    "gauge",
    "GPUs that an envelope's concurrency still allows, whether its window is open or not.",
    ENVELOPE,
    of_world=True,
)
GPU_HOURS = Metric(
    "jobtree_budget_gpu_hours",
    "gauge",
    "GPU-hours of an envelope: used; committed to Runs with a maxDuration; and, with maxGPUHours, left.",
    (*ENVELOPE, "kind"),
    of_world=True,
)
FLEET = Metric(
    "jobtree_fleet_gpus",
    "gauge",
    "GPUs: active, spare (idle), opportunistic, foreign (pods that are not Jobtree's), free, or unavailable "
    "(idle on a node that is cordoned, not Ready or failed). Together they are the domain.",
    ("flavor", "domain", "state"),
    of_world=True,
)
VIOLATIONS = Metric(
    "jobtree_invariant_violations_total",
    "counter",
    "Invariants found broken, by their name in the specification.",
    ("invariant",),
)
UNREADABLE = Metric(
    "jobtree_unreadable",
    "gauge",
    "Objects of a kind that are there and cannot be read: the log says why, and the status of Runs.",
    ("resource",),
)
LEADING = Metric("jobtree_leading", "gauge", "1 in the manager that plans, 0 in one that stands by.")
SILENCE = Metric(
    "jobtree_watch_silent_seconds",
    "gauge",
    "How long ago the API server last said anything about a kind; readiness is lost after 90 seconds.",
    ("resource",),
)
ARCHIVE_FAILING = Metric(
    "jobtree_archive_failing",
    "gauge",
    "1 while the last attempt to write closed leases to the archive failed: they stay in the cluster.",
)
CERTIFICATE = Metric(
    "jobtree_webhook_certificate_left_seconds",
    "gauge",
    "How long the certificate that the webhook shows is still valid; none where no webhook is served.",
    ("secret",),
)
METRICS = (
    SUBMITTED,
    ADMISSION,
    PENDING,
    UNDATED,
    BACKLOG,
    ETA,
    PROMISE_ERROR,
    FORECAST,
    PLAN,
    RESOLVER,
    DRAWS,
    PREEMPTIONS,
    CONCURRENCY,
    HEADROOM,
    GPU_HOURS,
    FLEET,
    VIOLATIONS,
    LEADING,
    UNREADABLE,
    SILENCE,
    ARCHIVE_FAILING,
    CERTIFICATE,
)


class Metrics:
    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        kept = [metric for metric in METRICS if not metric.of_world]
        self._counters = {one: self._counter(one) for one in kept if one.kind == "counter"}
        self._gauges = {one: self._gauge(one) for one in kept if one.kind == "gauge"}
        self._histograms = {one: self._histogram(one) for one in kept if one.kind == "histogram"}
        self._placed: set[tuple[Metric, tuple[str, ...]]] = set()  # series of counters that name a domain
        self.of_world: Callable[[], str] | None = None  # gauges as text; none until this process plans
        for invariant in INVARIANTS:  # a series that begins with its first increment hides it from a rate
            self._counters[VIOLATIONS].labels(invariant)

    def record(self, measure: Measure) -> None:
        if measure.metric.kind == "counter":
            self.add(measure.metric, measure.value, *measure.labels)
        else:
            self.observe(measure.metric, measure.value, *measure.labels)

    def add(self, metric: Metric, amount: float = 1, *labels: str) -> None:
        known = self._counters[metric]
        (known.labels(*labels) if labels else known).inc(amount)
        if "domain" in metric.labels:
            self._placed.add((metric, labels))

    def forget_domains(self, present: Container[SeriesKey]) -> None:
        """Counters of domains that are gone go too; should such a domain come back, they begin anew."""
        for metric, labels in [*self._placed]:
            named = dict(zip(metric.labels, labels, strict=True))
            if (named["flavor"], named["domain"]) not in present:
                self._placed.discard((metric, labels))
                self._counters[metric].remove(*labels)

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        known = self._histograms[metric]
        (known.labels(*labels) if labels else known).observe(value)

    def set_to(self, metric: Metric, value: float, *labels: str) -> None:
        known = self._gauges[metric]
        (known.labels(*labels) if labels else known).set(value)

    def count(self, violation: Violation) -> None:
        self.add(VIOLATIONS, 1, violation.invariant)

    def set_archive_failing(self, *, failing: bool) -> None:
        self.set_to(ARCHIVE_FAILING, int(failing))

    def page(self, *, leads: bool = True) -> bytes:
        """All of it, of the world only while this process leads. May wait for the end of a plan."""
        read = self.of_world if leads else None
        self.set_to(LEADING, int(read is not None))
        world = read() if read is not None else ""
        return text_of(self._registry) + world.encode()

    def _counter(self, metric: Metric) -> Counter:
        return Counter(metric.name, metric.text, metric.labels, registry=self._registry)

    def _gauge(self, metric: Metric) -> Gauge:
        return Gauge(metric.name, metric.text, metric.labels, registry=self._registry)

    def _histogram(self, metric: Metric) -> Histogram:
        buckets = metric.buckets
        return Histogram(metric.name, metric.text, metric.labels, registry=self._registry, buckets=buckets)
