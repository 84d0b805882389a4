"""The metrics of the manager, as Prometheus reads them. No metric has a label per Run.

``METRICS`` is the whole list: the pages of the reference, the tests and the server are made from it. Counters
and histograms change with the measures of a decision, once it is written: refused decisions do not count, and
after a crash they begin at zero. Gauges that are marked ``of_world`` are read from the world of the leader at
every scrape (see ``planner.world_gauges``); a standby has no world, and shows none of them.

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

disable_created_metrics()  # type: ignore[no-untyped-call]  # nothing here uses the start of a series

MINUTE, HOUR, DAY = 60, 3_600, 86_400
WAITS = (1, 5, 15, MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 4 * HOUR, 12 * HOUR, DAY, 3 * DAY, 7 * DAY)
ETAS = (MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 4 * HOUR, 12 * HOUR, DAY, 3 * DAY, 7 * DAY, 30 * DAY)
ERRORS = (-DAY, -4 * HOUR, -HOUR, -10 * MINUTE, -MINUTE, 1, MINUTE, 10 * MINUTE, HOUR, 4 * HOUR, DAY)
WORK = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
INVARIANTS = tuple(f"I{number}" for number in range(1, 13))


SeriesKey = tuple[str, str]  # flavor and domain


class Metric(NamedTuple):
    """The name, kind, help text, labels and buckets of one metric."""

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
    "Runs that were submitted and have a status. A job tree counts once; its stages do not count.",
)
ADMISSION = Metric(
    "jobtree_runs_admission_latency_seconds",
    "histogram",
    "How long Runs waited for their first start, from creation or from the end of the Runs that they follow; "
    "by the reason of the start.",
    ("flavor", "result"),
    WAITS,
)
PENDING = Metric("jobtree_reservations_pending", "gauge", "Pending Reservations.", ("flavor",), of_world=True)
UNDATED = Metric(
    "jobtree_reservations_undated",
    "gauge",
    "Pending Reservations without earliestStart: no known event will make their start possible.",
    ("flavor",),
    of_world=True,
)
BACKLOG = Metric(
    "jobtree_reservations_backlog_seconds",
    "gauge",
    "Time until the latest promised start.",
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
    "Start minus the first promised start: negative if the Run started sooner.",
    buckets=ERRORS,
)
PROMISES = Metric(
    "jobtree_reservation_promises_total",
    "counter",
    "Promises whose Run started: onTime or late by the earliest date that was told, and stopped if Jobtree "
    "stopped it too soon. Kept are onTime less stopped. Conditional ones count on budget of the family.",
    ("confidence", "outcome"),
)
FORECAST = Metric(
    "jobtree_forecast_latency_seconds",
    "histogram",
    "Time to update forecasts of Reservations in one turn: all of them, or some while many Runs wait.",
    buckets=WORK,
)
PLAN = Metric(
    "jobtree_plan_latency_seconds",
    "histogram",
    "Time to plan in one turn.",
    buckets=WORK,
)
RESOLVER = Metric(
    "jobtree_resolver_actions_total",
    "counter",
    "Actions for promises that were due (Reclaim, DropSpares, Shrink, Lottery), in each domain.",
    ("kind", "flavor", "domain"),
)
DRAWS = Metric(
    "jobtree_lottery_draws_total",
    "counter",
    "Runs that were drawn in lotteries, including those that were given back.",
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
    "GPUs of an envelope that a new Run of its owner could get now.",
    ENVELOPE,
    of_world=True,
)
FAMILY_HEADROOM = Metric(
    "jobtree_budget_family_headroom_gpus",
    "gauge",
    "GPUs of an envelope that a new Run of another owner of the family could get now.",
    ENVELOPE,
    of_world=True,
)
GPU_HOURS = Metric(
    "jobtree_budget_gpu_hours",
    "gauge",
    "GPU-hours of an envelope: used, committed (to Runs with a maxDuration and to promises), left.",
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
HELD_NODES = Metric(
    "jobtree_held_nodes",
    "gauge",
    "Nodes that are NotReady and keep their leases, because more than half of the nodes were lost together.",
    ("flavor", "domain"),
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
    "Objects of a kind that cannot be read; the log and the status of Runs say why.",
    ("resource",),
)
SET_ASIDE = Metric(
    "jobtree_set_aside",
    "gauge",
    "Runs, Budgets, Reservations and Leases that the API server refuses to store and that are tried again "
    "after a pause; the log and Events say why.",
)
LEADING = Metric("jobtree_leading", "gauge", "1 in the manager that leads and plans, 0 in a standby.")
SILENCE = Metric(
    "jobtree_watch_silent_seconds",
    "gauge",
    "Time since the API server last sent anything about a kind; after 90 seconds the manager is not ready.",
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
    "Time until the certificate of the webhook expires; absent if no webhook is served.",
    ("secret",),
)
WEBHOOK_REFUSALS = Metric(
    "jobtree_webhook_refusals_total",
    "counter",
    "Requests that the webhook refused, by its path. Without --webhook-client-ca anybody can ask.",
    ("path",),
)
CLOCK_AHEAD = Metric(
    "jobtree_clock_ahead_seconds",
    "gauge",
    "By how much planning time is ahead of the manager's system clock, which was set back or is slow.",
)
METRICS = (
    SUBMITTED,
    ADMISSION,
    PENDING,
    UNDATED,
    BACKLOG,
    ETA,
    PROMISE_ERROR,
    PROMISES,
    FORECAST,
    PLAN,
    RESOLVER,
    DRAWS,
    PREEMPTIONS,
    CONCURRENCY,
    HEADROOM,
    FAMILY_HEADROOM,
    GPU_HOURS,
    FLEET,
    HELD_NODES,
    VIOLATIONS,
    LEADING,
    UNREADABLE,
    SET_ASIDE,
    SILENCE,
    ARCHIVE_FAILING,
    CERTIFICATE,
    WEBHOOK_REFUSALS,
    CLOCK_AHEAD,
)


class Metrics:
    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        own = [metric for metric in METRICS if not metric.of_world]
        self._counters = {metric: self._counter(metric) for metric in own if metric.kind == "counter"}
        self._gauges = {metric: self._gauge(metric) for metric in own if metric.kind == "gauge"}
        self._histograms = {metric: self._histogram(metric) for metric in own if metric.kind == "histogram"}
        self._placed: set[tuple[Metric, tuple[str, ...]]] = set()  # series of counters with a domain
        # Renders the gauges of the world; None until this process plans.
        self.of_world: Callable[[], str] | None = None
        for invariant in INVARIANTS:  # without a zero before it, rate() misses the first increment
            self._counters[VIOLATIONS].labels(invariant)

    def record(self, measure: Measure) -> None:
        if measure.metric.kind == "counter":
            self.add(measure.metric, measure.value, *measure.labels)
        else:
            self.observe(measure.metric, measure.value, *measure.labels)

    def add(self, metric: Metric, amount: float = 1, *labels: str) -> None:
        counter = self._counters[metric]
        (counter.labels(*labels) if labels else counter).inc(amount)
        if "domain" in metric.labels:
            self._placed.add((metric, labels))

    def forget_domains(self, present: Container[SeriesKey]) -> None:
        """Removes the counters of domains that are gone; they begin at zero if such a domain comes back."""
        for metric, labels in [*self._placed]:
            values = dict(zip(metric.labels, labels, strict=True))
            if (values["flavor"], values["domain"]) not in present:
                self._placed.discard((metric, labels))
                self._counters[metric].remove(*labels)

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        histogram = self._histograms[metric]
        (histogram.labels(*labels) if labels else histogram).observe(value)

    def set_to(self, metric: Metric, value: float, *labels: str) -> None:
        gauge = self._gauges[metric]
        (gauge.labels(*labels) if labels else gauge).set(value)

    def count(self, violation: Violation) -> None:
        self.add(VIOLATIONS, 1, violation.invariant)

    def set_archive_failing(self, *, failing: bool) -> None:
        self.set_to(ARCHIVE_FAILING, int(failing))

    def page(self, *, leads: bool = True) -> bytes:
        """Returns all metrics, those of the world only if this process leads; may wait for a plan to end."""
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
