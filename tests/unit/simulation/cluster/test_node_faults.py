"""Faults between two instants happen to a cluster in order."""

from collections.abc import Iterable

from jobtree.simulation.cluster.node_faults import Fault, advance_with_faults, faults_between
from jobtree.simulation.inputs.outages import NEVER, Outage


def test_node_that_is_down_when_the_step_begins_fails_then() -> None:
    outages = [Outage("a", 5, 20), Outage("b", 12, 100), Outage("c", 1, 10), Outage("d", 31, 40)]
    assert faults_between(outages, 10, 30) == [
        Fault(10, "fail", "a"),
        Fault(12, "fail", "b"),
        Fault(20, "heal", "a"),
    ]


def test_outage_without_an_end_never_heals() -> None:
    assert faults_between([Outage("a", 5, NEVER)], 0, 1_000) == [Fault(5, "fail", "a")]


class RecordingCluster:
    """A cluster that records the faults of its nodes."""

    def __init__(self) -> None:
        self.now = 0
        self.down: set[str] = set()
        self.log: list[tuple[int, str, list[str]]] = []

    def advance(self, until: int) -> None:
        assert until >= self.now
        self.now = until

    def fail(self, nodes: Iterable[str]) -> None:
        self.log.append((self.now, "fail", list(nodes)))
        self.down |= set(nodes)

    def heal(self, nodes: Iterable[str]) -> None:
        self.log.append((self.now, "heal", list(nodes)))
        self.down -= set(nodes)

    def is_failed(self, node: str) -> bool:
        return node in self.down


def test_faults_of_one_instant_happen_together() -> None:
    cluster = RecordingCluster()
    faults = [Fault(5, "fail", "a"), Fault(5, "fail", "b"), Fault(9, "heal", "a")]
    assert advance_with_faults(cluster, faults, 20) == faults
    assert cluster.log == [(5, "fail", ["a", "b"]), (9, "heal", ["a"])]
    assert cluster.now == 20


def test_faults_that_change_nothing_are_skipped() -> None:
    """A node that is down already does not fail, and one that is in service does not heal."""
    cluster = RecordingCluster()
    cluster.down = {"a"}
    assert advance_with_faults(cluster, [Fault(5, "fail", "a"), Fault(6, "heal", "b")], 9) == []
    assert cluster.log == []
