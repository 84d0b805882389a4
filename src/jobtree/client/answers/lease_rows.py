"""The rows of leases: the use and the cost of each lease in a period.

GPU-seconds are exact. GPU-hours and credits are rounded to nine decimal places; for an exact total, add up
GPU-seconds and divide by 3600. Credits are GPU-hours times the lease's rate and the flavor's present price.
"""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec

from jobtree.api.kinds.policy import Policy
from jobtree.api.schema.quantities import HOUR, MILLI, SECOND, format_milli, format_time
from jobtree.client.source.lease_entries import LeaseEntry
from jobtree.client.source.ledger_period import Period
from jobtree.core import GpuLease

PLACES = 9
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class LeaseRow(msgspec.Struct, frozen=True, rename={"first": "from", "last": "to", "class_": "class"}):
    """A lease. ``first`` and ``last`` bound the part of it that is in the period that was asked for."""

    lease: str
    run: str
    owner: str
    payer: str
    budget: str
    envelope: str
    flavor: str
    class_: str
    role: str
    gpus: int
    rate: Decimal
    start: datetime
    end: datetime | None
    first: datetime
    last: datetime
    gpu_seconds: Decimal
    gpu_hours: Decimal
    charged_gpu_hours: Decimal
    credits: Decimal
    opened: str
    closed: str

    def row(self) -> dict[str, Any]:
        return dict(zip(LEASE_COLUMNS, msgspec.structs.astuple(self), strict=True))

    def texts(self) -> list[str]:
        """Returns the row as texts, with times as in the API."""
        return [cell_text(value) for value in self.row().values()]


LEASE_COLUMNS = LeaseRow.__struct_encode_fields__


def cell_text(value: object) -> str:
    if isinstance(value, datetime):
        return format_time((value - EPOCH) // timedelta(milliseconds=1))
    if isinstance(value, Decimal):
        return f"{value:f}"
    return "" if value is None else str(value)


def lease_row(policy: Policy, now: int, entry: LeaseEntry, period: Period) -> LeaseRow:
    """Returns the row of a lease; an open one counts until ``now``, in ms since the epoch."""
    lease = entry.lease
    first, last = period.clip(lease.start, now if entry.end is None else entry.end)
    charge = charge_of(lease) * (last - first)
    return LeaseRow(
        lease.name,
        "/".join(lease.run_key),
        lease.owner,
        lease.payer_owner,
        *lease.payer,
        lease.flavor,
        lease.class_,
        lease.role,
        lease.gpus,
        Decimal(format_milli(lease.rate)),
        as_datetime(lease.start),
        None if entry.end is None else as_datetime(entry.end),
        as_datetime(first),
        as_datetime(last),
        Decimal(format_milli(lease.gpus * (last - first) * MILLI // SECOND)),
        Decimal(decimal(lease.gpus * (last - first), HOUR)),
        Decimal(decimal(charge, MILLI * HOUR)),
        Decimal(decimal(charge * policy.price_milli(lease.flavor), MILLI * MILLI * HOUR)),
        lease.reason,
        entry.closure,
    )


def as_datetime(milliseconds: int) -> datetime:
    return EPOCH + timedelta(milliseconds=milliseconds)


def charge_of(lease: GpuLease) -> int:
    """Returns the charge in thousandths of a GPU; opportunistic leases cost nothing."""
    return 0 if lease.role == "Opportunistic" else lease.charge


def decimal(amount: int, unit: int) -> str:
    """Returns an amount in units, rounded to nine decimal places, without trailing zeros."""
    scaled = (2 * amount * 10**PLACES + unit) // (2 * unit)
    whole, fraction = divmod(scaled, 10**PLACES)
    return f"{whole}.{fraction:0{PLACES}d}".rstrip("0").rstrip(".")
