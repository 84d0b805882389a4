"""Who must pay for a gang, and in which domain, worked out from the rules C2–C5 and P3 by hand."""

from collections.abc import Iterator
from typing import NamedTuple

from jobtree.api.kinds.budget import Envelope
from jobtree.api.kinds.lease import LeaseClass
from jobtree.api.kinds.run import Run
from jobtree.api.schema.quantities import HOUR, MILLI, parse_duration, parse_time
from jobtree.core.model.gpu_lease import GpuLease
from tests.property.drive import Drive
from tests.property.invariants import entitlement, tiers, within
from tests.property.ledger_oracle import FOREVER, Limit
from tests.unit.core.build import NAMESPACE

SPONSORS = 1000

Share = tuple[int, str, tuple[str, str], LeaseClass, int]  # group, domain, payer, class, GPUs


class Payer(NamedTuple):
    tier: int
    end: int
    budget: str
    name: str
    class_: LeaseClass
    envelope: Envelope

    @property
    def key(self) -> tuple[str, str]:
        return self.budget, self.name


class Island(NamedTuple):
    """A domain: whether Jobtree uses it already, and its free GPUs and pods."""

    used: bool
    free: int
    name: str
    pods: int


class Teller:
    """Lays out one Run on paper. What it has given out already counts against everything."""

    def __init__(self, drive: Drive, run: Run, pod_size: int) -> None:
        assert run.spec.resources is not None
        self.drive, self.run, self.size = drive, run, pod_size
        self.flavor = run.spec.resources.gpu_type
        self.now = drive.world_now
        self.given: list[GpuLease] = []
        self.payers = sorted(self._payers(), key=lambda payer: payer[:4])
        self.islands = self._islands()
        length = run.spec.runtime.max_duration
        self.length = None if length is None else parse_duration(length)

    def _payers(self) -> Iterator[Payer]:
        """Every envelope once, in its nearest tier."""
        budgets = list(self.drive.lab.world.budgets.budgets.values())
        near = tiers(self.run.spec.owner, budgets)
        for one in budgets:
            owner = one.spec.owner
            for env in one.spec.envelopes:
                may = entitlement(self.run, env, owner, budgets)
                end = parse_time(env.end) if env.end else FOREVER
                if env.flavor != self.flavor:
                    continue
                if may & {"Owned", "Shared"}:
                    class_: LeaseClass = "Owned" if "Owned" in may else "Shared"
                    yield Payer(near[owner], end, one.metadata.name, env.name, class_, env)
                elif "Borrowed" in may:
                    tier = SPONSORS + self.run.spec.funding.sponsors.index(owner)
                    yield Payer(tier, end, one.metadata.name, env.name, "Borrowed", env)

    def _islands(self) -> dict[str, Island]:
        found: dict[str, Island] = {}
        taken: dict[str, int] = {}
        for record in self.drive.open_records():
            for node, mask in record.lease.slots:
                taken[node] = taken.get(node, 0) | mask
        for sketch in self.drive.fleet:
            mine = taken.get(sketch.name, 0)
            free = sketch.gpus - mine.bit_count()
            old = found.get(sketch.domain, Island(False, 0, sketch.domain, 0))
            used, pods = old.used or mine > 0, old.pods + free // self.size
            found[sketch.domain] = Island(used, old.free + free, sketch.domain, pods)
        return found

    def headroom(self, payer: Payer) -> int:
        """GPUs for which this one can still pay (C4, C5)."""
        if not within(payer.envelope, self.now):
            return 0
        one = self._lease(payer, 1)
        span = HOUR if self.length is None else min(self.now + self.length, payer.end) - self.now
        most = [self._left(limit, one, span) for limit in self.drive.oracle.limits if limit.weight(one)]
        borrowable = self.run.spec.funding.max_borrow_gpus
        if payer.class_ == "Borrowed" and borrowable is not None:
            most.append(borrowable - sum(lease.gpus for lease in self.given if lease.class_ == "Borrowed"))
        return max(0, min(most))

    def _left(self, limit: Limit, one: GpuLease, span: int) -> int:
        oracle, now = self.drive.oracle, self.now
        found = FOREVER
        given = sum(limit.weight(lease) for lease in self.given)
        if limit.gpus is not None:
            found = (limit.gpus * MILLI * MILLI - oracle.charge(limit, now) - given) // limit.weight(one)
        if limit.hours is not None:
            spent = (
                oracle.used(limit, now) + oracle.declared(limit, now) + oracle.just_opened(limit, now) * HOUR
            )
            spent += sum(limit.weight(lease) * self._span(lease) for lease in self.given)
            left = limit.hours * MILLI * MILLI * HOUR - spent
            found = min(found, left // (limit.weight(one) * span))
        return found

    def _span(self, lease: GpuLease) -> int:
        (payer,) = (payer for payer in self.payers if payer.key == lease.payer)
        return HOUR if self.length is None else min(self.now + self.length, payer.end) - self.now

    def _lease(self, payer: Payer, gpus: int) -> GpuLease:
        return GpuLease(
            name="",
            run_key=(NAMESPACE, self.run.metadata.name),
            uid="",
            owner=self.run.spec.owner,
            payer=payer.key,
            payer_owner="",
            class_=payer.class_,
            role="Active",
            group=0,
            flavor=payer.envelope.flavor,
            slots=(),
            gpus=gpus,
            start=self.now,
            rate=MILLI,
            reason="Start",
        )

    def lay_out(self, groups: list[int]) -> list[Share] | None:
        """Group by group: the earliest tier that can pay where the group fits, then pack order."""
        shares: list[Share] = []
        for number, gpus in enumerate(groups):
            found = self._lay_group(number, gpus)
            if found is None:
                return None
            shares += found
        return shares

    def _lay_group(self, number: int, gpus: int) -> list[Share] | None:
        fitting = [island for island in self.islands.values() if island.pods * self.size >= gpus]
        fitting.sort(key=lambda island: (not island.used, island.free, island.name))
        for tier in sorted({payer.tier for payer in self.payers}):
            for island in fitting:
                shares = self._pay(number, gpus, island.name, tier)
                if shares is not None:
                    self.islands[island.name] = Island(
                        True, island.free - gpus, island.name, island.pods - gpus // self.size
                    )
                    return shares
        return None

    def _pay(self, number: int, gpus: int, domain: str, tier: int) -> list[Share] | None:
        shares: list[Share] = []
        before = len(self.given)
        for payer in self.payers:
            place = payer.envelope.selector.get("fabric.domain", domain)
            if payer.tier > tier or place != domain:
                continue
            paid = min(gpus, self.headroom(payer) // self.size * self.size)
            if paid:
                self.given.append(self._lease(payer, paid))
                shares.append((number, domain, payer.key, payer.class_, paid))
                gpus -= paid
        if gpus:
            del self.given[before:]
        return None if gpus else shares
