"""Formats leases as rows of CSV: the usage and cost of each lease in a period.

GPU-seconds are exact. GPU-hours and credits are rounded to nine decimal places; for an exact total, add up
GPU-seconds and divide by 3600. Credits are GPU-hours times the lease's rate and the flavor's present price.
"""

import csv
import sys
from collections.abc import Iterable

from jobtree.api.schema.quantities import HOUR, MILLI, SECOND, format_milli, format_time
from jobtree.client.source.lease_entries import LeaseEntry
from jobtree.client.source.ledger_period import Period
from jobtree.core import GpuLease
from jobtree.snapshot.cluster import Cluster

PLACES = 9

COLUMNS = (
    "lease",
    "run",
    "owner",
    "payer",
    "budget",
    "envelope",
    "flavor",
    "class",
    "role",
    "gpus",
    "rate",
    "start",
    "end",
    "from",
    "to",
    "gpu_seconds",
    "gpu_hours",
    "charged_gpu_hours",
    "credits",
    "opened",
    "closed",
)


def print_rows(cluster: Cluster, leases: Iterable[LeaseEntry], period: Period) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(COLUMNS)
    for entry in leases:
        writer.writerow(csv_row(cluster, entry, period))


def csv_row(cluster: Cluster, entry: LeaseEntry, period: Period) -> list[str]:
    """Returns the row of a lease; ``from`` and ``to`` bound the part of it that is in the period."""
    lease = entry.lease
    first, last = period.clip(lease.start, cluster.now if entry.end is None else entry.end)
    price = cluster.world.policy.price_milli(lease.flavor)
    charge = charge_of(lease) * (last - first)
    return [
        lease.name,
        "/".join(lease.run_key),
        lease.owner,
        lease.payer_owner,
        *lease.payer,
        lease.flavor,
        lease.class_,
        lease.role,
        str(lease.gpus),
        format_milli(lease.rate),
        format_time(lease.start),
        "" if entry.end is None else format_time(entry.end),
        format_time(first),
        format_time(last),
        format_milli(lease.gpus * (last - first) * MILLI // SECOND),
        decimal(lease.gpus * (last - first), HOUR),
        decimal(charge, MILLI * HOUR),
        decimal(charge * price, MILLI * MILLI * HOUR),
        lease.reason,
        entry.closure,
    ]


def charge_of(lease: GpuLease) -> int:
    """Returns the charge in thousandths of a GPU; opportunistic leases cost nothing."""
    return 0 if lease.role == "Opportunistic" else lease.charge


def decimal(amount: int, unit: int) -> str:
    """Returns an amount in units, rounded to nine decimal places, without trailing zeros."""
    scaled = (2 * amount * 10**PLACES + unit) // (2 * unit)
    whole, fraction = divmod(scaled, 10**PLACES)
    return f"{whole}.{fraction:0{PLACES}d}".rstrip("0").rstrip(".")
