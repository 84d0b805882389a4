"""The books, kept again the slow and obvious way: from all leases ever opened, added up one by one."""

from collections.abc import Iterator
from typing import NamedTuple

from jobtree.api.kinds.budget import Budget
from jobtree.api.schema.quantities import HOUR, MILLI, parse_duration, parse_time
from jobtree.core.model.gpu_lease import GpuLease, RunKey
from tests.unit.core.lab import Lab, Record

FOREVER = 1 << 60


class Limit(NamedTuple):
    """A limit of a budget: on whose charge it is, and how much of it there may be, at once and in time."""

    label: str
    budget: str
    envelopes: frozenset[str]
    borrowed_only: bool
    gpus: int | None
    hours: int | None
    prices: dict[str, int] | None = None  # by flavor, where it is in credits

    def weight(self, lease: GpuLease) -> int:
        """What a lease counts here: thousandths of a GPU, or of a credit an hour."""
        if lease.role == "Opportunistic" or lease.payer[0] != self.budget:
            return 0
        if lease.payer[1] not in self.envelopes or (self.borrowed_only and lease.class_ != "Borrowed"):
            return 0
        price = MILLI if self.prices is None else self.prices.get(lease.flavor, MILLI)
        return lease.gpus * lease.rate * price


def limits_of(budget: Budget, prices: dict[str, int]) -> Iterator[Limit]:
    name = budget.metadata.name
    for one in budget.spec.envelopes:
        only = frozenset({one.name})
        yield Limit(f"{name}/{one.name}", name, only, False, one.concurrency, one.max_gpu_hours)
        yield Limit(f"{name}/{one.name} credits", name, only, False, None, one.max_credits, prices)
        if one.lending:
            most, hours = one.lending.max_concurrency, one.lending.max_gpu_hours
            yield Limit(f"{name}/{one.name} lent", name, only, True, most, hours)
    for cap in budget.spec.aggregate_caps:
        all_of_them = frozenset(cap.envelopes)
        yield Limit(
            f"{name}/{cap.name} cap", name, all_of_them, False, cap.max_concurrency, cap.max_gpu_hours
        )
        yield Limit(f"{name}/{cap.name} cap credits", name, all_of_them, False, None, cap.max_credits, prices)


class Oracle:
    """Sums over the records of a Lab."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.tolerated: dict[str, int] = {}  # use above a limit that an edit found there already

    @property
    def limits(self) -> list[Limit]:
        ledger, prices = self.lab.world.budgets, self.lab.world.policy.prices_milli
        return [limit for one in ledger.budgets.values() for limit in limits_of(one, prices)]

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
        """What declared Runs will still use, at most to their windows' ends (C5)."""
        total = 0
        for record in self.lab.records.values():
            weight = limit.weight(record.lease) if open_at(record, at) else 0
            end = self.known_end(record.lease) if weight else None
            if end is not None:
                total += weight * max(0, end - at)
        return total

    def just_opened(self, limit: Limit, at: int) -> int:
        """Charge of open-ended leases that opened at this very instant: each commits one hour (C5)."""
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
        for one in budget.spec.envelopes if budget else ():
            if one.name == lease.payer[1] and one.end:
                end = min(end, parse_time(one.end))
        return end

    def since(self, run: RunKey, at: int) -> int:
        """When the Run was last admitted before that instant."""
        return max(start for start in self.lab.admissions[run] if start <= at)

    def note_edit(self) -> None:
        """Budgets were edited: what is used and declared above a new limit may stay so."""
        now = self.lab.world.now
        self.tolerated = {
            limit.label: self.used(limit, now) + self.declared(limit, now) for limit in self.limits
        }

    def broken_limits(self) -> list[str]:
        """I3: at no instant at which a lease opened, nor now, is any limit exceeded."""
        now = self.lab.world.now
        found = []
        for limit in self.limits:
            charge = self.charge(limit, now)
            if limit.gpus is not None and charge > limit.gpus * MILLI * MILLI:
                found.append(f"{limit.label}: {charge} of {limit.gpus} GPUs")
            committed = self.used(limit, now) + self.declared(limit, now)
            if limit.hours is not None:
                most = max(limit.hours * MILLI * MILLI * HOUR, self.tolerated.get(limit.label, 0))
                if committed > most:
                    found.append(f"{limit.label}: {committed} used and declared of {most}")
        return found


def open_at(record: Record, at: int) -> bool:
    return record.lease.start <= at and (record.end is None or at < record.end)
