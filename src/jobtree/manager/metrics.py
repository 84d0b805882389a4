"""What the manager counts, as Prometheus reads it. Never a label per Run."""

from prometheus_client import CollectorRegistry, Counter, generate_latest

from jobtree.core.check import Violation


class Metrics:
    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._violations = Counter(
            "jobtree_invariant_violations",
            "Invariants found broken, by their name in the specification.",
            ["invariant"],
            registry=self._registry,
        )

    def count(self, violation: Violation) -> None:
        self._violations.labels(violation.invariant).inc()

    def page(self) -> bytes:
        return generate_latest(self._registry)
