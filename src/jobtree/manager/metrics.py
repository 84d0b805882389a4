"""What the manager counts, as Prometheus reads it. Never a label per Run."""

from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, generate_latest

from jobtree.core.check import Violation


class Metric(NamedTuple):
    """A name that people search for, what it says, and what it is told apart by."""

    name: str
    kind: str
    text: str
    labels: tuple[str, ...]


VIOLATIONS = Metric(
    "jobtree_invariant_violations_total",
    "counter",
    "Invariants found broken, by their name in the specification.",
    ("invariant",),
)
METRICS = (VIOLATIONS,)


class Metrics:
    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._violations = Counter(
            VIOLATIONS.name, VIOLATIONS.text, VIOLATIONS.labels, registry=self._registry
        )

    def count(self, violation: Violation) -> None:
        self._violations.labels(violation.invariant).inc()

    def page(self) -> bytes:
        return generate_latest(self._registry)
