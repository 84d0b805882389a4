"""Leases as the ledger has them, open, closed and archived, in the order in which they began."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from jobtree.api.kinds.lease import Lease as WireLease
from jobtree.api.schema.quantities import parse_time
from jobtree.api.validation.object_parser import parse_object
from jobtree.archive.day_file import lease_uid
from jobtree.cli.source.ledger_period import ALWAYS, Period
from jobtree.core import GpuLease, lease_from_object, lease_number
from jobtree.snapshot.cluster import Cluster


class LeaseEntry(NamedTuple):
    """One lease: what it is, and how it ended if it did."""

    lease: GpuLease
    end: int | None
    closure: str
    body: dict[str, Any]


def entries(
    cluster: Cluster,
    wanted: Callable[[GpuLease], bool],
    period: Period = ALWAYS,
    archived: Iterable[dict[str, Any]] = (),
) -> list[LeaseEntry]:
    """The leases that are wanted, oldest first. One that is in both places is the cluster's."""
    here = [body for _, body in cluster.objects.of("Lease")]
    known = {lease_uid(body) for body in here}
    found = [
        entry
        for body in (*here, *(body for body in archived if lease_uid(body) not in known))
        if wanted((entry := lease_entry(body)).lease) and period.overlaps(entry.lease.start, entry.end)
    ]
    return sorted(
        found, key=lambda entry: (entry.lease.start, entry.lease.run_key, lease_number(entry.lease))
    )


def lease_entry(body: dict[str, Any]) -> LeaseEntry:
    wire = parse_object(body, "the ledger")
    assert isinstance(wire, WireLease)
    end = parse_time(wire.status.end) if wire.status.end else None
    return LeaseEntry(lease_from_object(wire), end, wire.status.closure_reason or "", body)


def belongs_to(owner: str, team: str) -> bool:
    """Whether an owner is that team, or below it."""
    return owner == team or owner.startswith(f"{team}:")
