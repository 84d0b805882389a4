"""The usage of Budgets, computed again in a slow and simple way: all leases ever opened are added up."""

from collections.abc import Iterator
from typing import NamedTuple

from jobtree.api.kinds.budget import Budget
from jobtree.api.schema.quantities import HOUR, MILLI, parse_duration, parse_time
from jobtree.core.model.gpu_lease import GpuLease, RunKey
from tests.unit.core.lab import Lab, Record

FOREVER = 1 << 60


class Limit(NamedTuple):
    """A limit of a Budget: which charge it limits, and how much of it there may be at once and over time."""

    label: str
    budget: str
    envelopes: frozenset[str]
    borrowed_only: bool
    gpus: int | None
    hours: int | None
    prices: dict[str, int] | None = None  # by flavor, if the limit is in credits

    def weight(self, lease: GpuLease) -> int:
        """Returns what a lease counts for this limit: thousandths of a GPU, or of a credit per hour."""
        if lease.role == "Opportunistic" or lease.payer[0] != self.budget:
            return 0
        if lease.payer[1] not in self.envelopes or (self.borrowed_only and lease.class_ != "Borrowed"):
            return 0
        price = MILLI if self.prices is None else self.prices.get(lease.flavor, MILLI)
        return lease.gpus * lease.rate * price


def limits_of(budget: Budget, prices: dict[str, int]) -> Iterator[Limit]:
    name = budget.metadata.name
    for envelope in budget.spec.envelopes:
        label, only = f"{name}/{envelope.name}", frozenset({envelope.name})
        yield Limit(label, name, only, False, envelope.concurrency, envelope.max_gpu_hours)
        yield Limit(f"{label} credits", name, only, False, None, envelope.max_credits, prices)
        if envelope.lending:
            gpus, hours = envelope.lending.max_concurrency, envelope.lending.max_gpu_hours
            yield Limit(f"{label} lent", name, only, True, gpus, hours)
    for cap in budget.spec.aggregate_caps:
        label, members = f"{name}/{cap.name} cap", frozenset(cap.envelopes)
        yield Limit(label, name, members, False, cap.max_concurrency, cap.max_gpu_hours)
        yield Limit(f"{label} credits", name, members, False, None, cap.max_credits, prices)


class LedgerOracle:
    """Charges and usage as sums over the records of a Lab."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.tolerated: dict[
            str, int
        ] = {}  # usage by limit when Budgets were last edited: it may be above the limit

    @property
    def limits(self) -> list[Limit]:
        budgets, prices = self.lab.world.budgets.budgets, self.lab.world.policy.prices_milli
        return [limit for budget in budgets.values() for limit in limits_of(budget, prices)]

    def charge(self, limit: Limit, at: int) -> int:
        return sum(limit.weight(record.lease) for record in self.lab.records.values() if open_at(record, at))

    def used(self, limit: Limit, at: int) -> int:
        return sum(
            limit.weight(record.lease)
            * (min(at, FOREVER if record.end is None else record.end) - record.lease.start)
            for record in self.lab.records.values()
            if record.lease.start <= at
        )

    def declared(self, limit: Limit, at: int) -> int:
        """Returns what declared Runs will still use, at most until their windows end (C5)."""
        total = 0
        for record in self.lab.records.values():
            weight = limit.weight(record.lease) if open_at(record, at) else 0
            end = self.known_end(record.lease) if weight else None
            if end is not None:
                total += weight * max(0, end - at)
        return total

    def just_opened(self, limit: Limit, at: int) -> int:
        """Returns the charge of open-ended leases that opened at this instant: each commits one hour (C5)."""
        return sum(
            limit.weight(record.lease)
            for record in self.lab.records.values()
            if record.lease.start == at and open_at(record, at) and self.known_end(record.lease) is None
        )

    def known_end(self, lease: GpuLease) -> int | None:
        run = self.lab.world.runs.get(lease.run_key)
        limit = run.run_object.spec.runtime.max_duration if run else None
        if limit is None:
            return None
        end = self.since(lease.run_key, lease.start) + parse_duration(limit)
        budget = self.lab.world.budgets.budgets.get(lease.payer[0])
        for envelope in budget.spec.envelopes if budget else ():
            if envelope.name == lease.payer[1] and envelope.end:
                end = min(end, parse_time(envelope.end))
        return end

    def since(self, run: RunKey, at: int) -> int:
        """Returns when the Run last started before that instant."""
        return max(start for start in self.lab.admissions[run] if start <= at)

    def record_edit(self) -> None:
        """Records an edit of Budgets: what is used and declared above a new limit may stay so."""
        now = self.lab.world.now
        self.tolerated = {
            limit.label: self.used(limit, now) + self.declared(limit, now) for limit in self.limits
        }

    def broken_limits(self) -> list[str]:
        """Returns the limits that are exceeded now (I3)."""
        now = self.lab.world.now
        exceeded = []
        for limit in self.limits:
            charge = self.charge(limit, now)
            if limit.gpus is not None and charge > limit.gpus * MILLI * MILLI:
                exceeded.append(f"{limit.label}: {charge} of {limit.gpus} GPUs")
            committed = self.used(limit, now) + self.declared(limit, now)
            if limit.hours is not None:
                allowed = max(limit.hours * MILLI * MILLI * HOUR, self.tolerated.get(limit.label, 0))
                if committed > allowed:
                    exceeded.append(f"{limit.label}: {committed} used and declared of {allowed}")
        return exceeded


def open_at(record: Record, at: int) -> bool:
    return record.lease.start <= at and (record.end is None or at < record.end)
