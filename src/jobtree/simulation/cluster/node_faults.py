"""Lets the nodes of a simulated cluster fail and return at the instants that outages give."""

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from typing import Literal, NamedTuple, Protocol

from jobtree.simulation.inputs.outages import Outage


class Fault(NamedTuple):
    """A node fails or returns at an instant."""

    at: int
    kind: Literal["fail", "heal"]
    node: str


class FaultTarget(Protocol):
    """What a simulated cluster offers to faults."""

    def advance(self, until: int) -> None: ...

    def fail(self, nodes: Iterable[str]) -> None: ...

    def heal(self, nodes: Iterable[str]) -> None: ...

    def is_failed(self, node: str) -> bool: ...


def faults_between(outages: Iterable[Outage[str]], since: int, until: int) -> list[Fault]:
    """The faults after one instant and up to another. A node that is down at the first instant fails then."""
    faults: list[Fault] = []
    for node, start, end in outages:
        if start <= until and end > since:
            faults.append(Fault(max(start, since), "fail", node))
            if end <= until:
                faults.append(Fault(end, "heal", node))
    return sorted(faults)


def advance_with_faults(cluster: FaultTarget, faults: Iterable[Fault], until: int) -> list[Fault]:
    """Moves the clock to an instant with these faults on the way, those of one instant together.

    Returns the faults that changed a node: a node that is down already does not fail.
    """
    effective: list[Fault] = []
    for (at, kind), group in groupby(faults, attrgetter("at", "kind")):
        cluster.advance(at)
        changes = [fault for fault in group if cluster.is_failed(fault.node) == (kind == "heal")]
        if changes:
            (cluster.fail if kind == "fail" else cluster.heal)([fault.node for fault in changes])
            effective += changes
    cluster.advance(until)
    return effective
