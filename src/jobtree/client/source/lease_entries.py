"""Reads the leases of the ledger: open, closed and archived ones, in the order in which they started."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from jobtree.api.kinds.lease import Lease as WireLease
from jobtree.api.schema.quantities import parse_time
from jobtree.api.validation.object_parser import parse_object
from jobtree.archive.day_file import lease_uid
from jobtree.client.source.ledger_period import ALWAYS, Period
from jobtree.core import GpuLease, lease_from_object, lease_number
from jobtree.snapshot.cluster import Cluster


class LeaseEntry(NamedTuple):
    """One lease, with its end and closure reason if it is closed."""

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
    """Returns the wanted leases, oldest first; those in cluster and archive are read from the cluster."""
    in_cluster = [body for _, body in cluster.objects.of("Lease")]
    uids = {lease_uid(body) for body in in_cluster}
    selected = [
        entry
        for body in (*in_cluster, *(body for body in archived if lease_uid(body) not in uids))
        if wanted((entry := lease_entry(body)).lease) and period.overlaps(entry.lease.start, entry.end)
    ]
    return sorted(
        selected, key=lambda entry: (entry.lease.start, entry.lease.run_key, lease_number(entry.lease))
    )


def lease_entry(body: dict[str, Any]) -> LeaseEntry:
    wire = parse_object(body, "the ledger")
    assert isinstance(wire, WireLease)
    end = parse_time(wire.status.end) if wire.status.end else None
    return LeaseEntry(lease_from_object(wire), end, wire.status.closure_reason or "", body)


def belongs_to(owner: str, team: str) -> bool:
    """Whether an owner is the team or below it."""
    return owner == team or owner.startswith(f"{team}:")
