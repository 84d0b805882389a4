"""Leases as the ledger has them, open and closed, in the order in which they began."""

from collections.abc import Callable
from typing import Any, NamedTuple

from jobtree.api.lease import Lease as WireLease
from jobtree.api.parse import parse_object
from jobtree.api.quantities import parse_time
from jobtree.core.lease import Lease, from_wire, number_of
from jobtree.sim.cluster import Cluster


class Entry(NamedTuple):
    """One lease: what it is, and how it ended if it did."""

    lease: Lease
    end: int | None
    closure: str
    body: dict[str, Any]


def entries(cluster: Cluster, wanted: Callable[[Lease], bool]) -> list[Entry]:
    """The leases that are wanted, oldest first."""
    found = [
        entry
        for key, body in cluster.objects.of("Lease")
        if wanted((entry := _entry(body, cluster.objects.where(key))).lease)
    ]
    return sorted(found, key=lambda entry: (entry.lease.start, entry.lease.run, number_of(entry.lease)))


def _entry(body: dict[str, Any], where: str) -> Entry:
    wire = parse_object(body, where)
    assert isinstance(wire, WireLease)
    end = parse_time(wire.status.end) if wire.status.end else None
    return Entry(from_wire(wire), end, wire.status.closure_reason or "", body)


def belongs_to(owner: str, team: str) -> bool:
    """Whether an owner is that team, or below it."""
    return owner == team or owner.startswith(f"{team}:")
