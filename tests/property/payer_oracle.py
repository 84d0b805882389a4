"""Computes from the rules C2–C5, P3 and P4 which envelopes must pay for a gang, and in which domains."""

from collections.abc import Iterator
from itertools import permutations
from operator import itemgetter
from typing import NamedTuple

from jobtree.api.kinds.budget import Envelope
from jobtree.api.kinds.lease import LeaseClass
from jobtree.api.kinds.run import Run
from jobtree.api.schema.quantities import HOUR, MILLI, parse_duration, parse_time
from jobtree.core.model.gpu_lease import GpuLease
from tests.property.checked_cluster import CheckedCluster
from tests.property.invariants import entitlement, tiers, within
from tests.property.ledger_oracle import FOREVER, Limit
from tests.unit.core.build import NAMESPACE

SPONSORS = 1000  # the tier of the first sponsor

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


class DomainRoom(NamedTuple):
    """A domain: whether Jobtree uses it already, and its free GPUs and pods."""

    used: bool
    free: int
    name: str
    pods: int


class PayerOracle:
    """Lays out one Run. The leases that it has planned so far count against every limit."""

    def __init__(self, cluster: CheckedCluster, run: Run, pod_size: int) -> None:
        assert run.spec.resources is not None
        self.cluster, self.run, self.pod_size = cluster, run, pod_size
        self.flavor = run.spec.resources.gpu_type
        self.now = cluster.now
        self.planned: list[GpuLease] = []
        self.payers = sorted(self._payers(), key=lambda payer: payer[:4])
        self.rooms = self._rooms()
        max_duration = run.spec.runtime.max_duration
        self.max_duration = None if max_duration is None else parse_duration(max_duration)

    def _payers(self) -> Iterator[Payer]:
        """Yields every envelope once, in its nearest tier."""
        budgets = list(self.cluster.lab.world.budgets.budgets.values())
        tier_by_owner = tiers(self.run.spec.owner, budgets)
        for budget in budgets:
            name, owner = budget.metadata.name, budget.spec.owner
            for envelope in budget.spec.envelopes:
                classes = entitlement(self.run, envelope, owner, budgets)
                end = parse_time(envelope.end) if envelope.end else FOREVER
                if envelope.flavor != self.flavor:
                    continue
                if classes & {"Owned", "Shared"}:
                    class_: LeaseClass = "Owned" if "Owned" in classes else "Shared"
                    yield Payer(tier_by_owner[owner], end, name, envelope.name, class_, envelope)
                elif "Borrowed" in classes:
                    tier = SPONSORS + self.run.spec.funding.sponsors.index(owner)
                    yield Payer(tier, end, name, envelope.name, "Borrowed", envelope)

    def _rooms(self) -> dict[str, DomainRoom]:
        rooms: dict[str, DomainRoom] = {}
        leased: dict[str, int] = {}
        for record in self.cluster.open_records():
            for name, mask in record.lease.slots:
                leased[name] = leased.get(name, 0) | mask
        for node in self.cluster.fleet:
            mask = leased.get(node.name, 0)
            free = node.gpus - mask.bit_count()
            room = rooms.get(node.domain, DomainRoom(False, 0, node.domain, 0))
            used, pods = room.used or mask > 0, room.pods + free // self.pod_size
            rooms[node.domain] = DomainRoom(used, room.free + free, node.domain, pods)
        return rooms

    def headroom(self, payer: Payer) -> int:
        """Returns the GPUs that this envelope can still pay for (C4, C5)."""
        if not within(payer.envelope, self.now):
            return 0
        unit = self._lease(payer, 1)
        bounds = [
            self._left(limit, unit, payer) for limit in self.cluster.oracle.limits if limit.weight(unit)
        ]
        max_borrow = self.run.spec.funding.max_borrow_gpus
        if payer.class_ == "Borrowed" and max_borrow is not None:
            bounds.append(
                max_borrow - sum(lease.gpus for lease in self.planned if lease.class_ == "Borrowed")
            )
        return max(0, min(bounds))

    def _left(self, limit: Limit, unit: GpuLease, payer: Payer) -> int:
        """Returns how many leases like ``unit`` the limit still allows."""
        oracle, now, weight = self.cluster.oracle, self.now, limit.weight(unit)
        left = FOREVER
        if limit.gpus is not None:
            planned = sum(limit.weight(lease) for lease in self.planned)
            left = (limit.gpus * MILLI * MILLI - oracle.charge(limit, now) - planned) // weight
        if limit.hours is not None:
            usage = (
                oracle.used(limit, now) + oracle.declared(limit, now) + oracle.just_opened(limit, now) * HOUR
            )
            for lease in self.planned:
                (planned_payer,) = (other for other in self.payers if other.key == lease.payer)
                usage += limit.weight(lease) * self._committed(planned_payer)
            usage_left = limit.hours * MILLI * MILLI * HOUR - usage
            left = min(left, usage_left // (weight * self._committed(payer)))
        return left

    def _committed(self, payer: Payer) -> int:
        """Returns the time for which a lease of the Run commits hours of this payer (C5)."""
        if self.max_duration is None:
            return HOUR
        return min(self.now + self.max_duration, payer.end) - self.now

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
        """Places all groups in one domain where no further tier has to pay for that, else apart (P4)."""
        apart = self._tried(groups, None)
        together = [self._tried(groups, room.name) for room in self._in_pack_order()]
        options = [option for option in [*together, apart] if option is not None]
        if not options or len(groups) == 1:
            return None if apart is None else apart[1]
        return min(options, key=itemgetter(0))[1]

    def _in_pack_order(self) -> list[DomainRoom]:
        return sorted(self.rooms.values(), key=lambda room: (not room.used, room.free, room.name))

    def _tried(self, groups: list[int], only: str | None) -> tuple[list[int], list[Share]] | None:
        """Returns the furthest tier of each group and who pays, in one domain or in any; plans nothing."""
        rooms, planned = dict(self.rooms), len(self.planned)
        first = self._to_fill(groups) if len(groups) > 1 else []
        furthest: list[int] = []
        shares: list[Share] = []
        for number, gpus in enumerate(groups):
            laid_out = self._lay_out_group(number, gpus, only, first)
            if laid_out is None:
                break
            furthest.append(laid_out[0])
            shares += laid_out[1]
        self.rooms = rooms
        del self.planned[planned:]
        return (furthest, shares) if len(furthest) == len(groups) else None

    def _to_fill(self, groups: list[int]) -> list[str]:
        """Returns as few domains as hold the groups, of equals the fullest first: by trying all."""
        ordered = self._in_pack_order()
        held = {room.name: room.pods * self.pod_size // groups[0] for room in ordered}
        for count in range(1, len(ordered) + 1):
            for chosen in permutations(held, count):
                if sum(held[name] for name in chosen) >= len(groups):
                    return [*chosen]
        return []

    def _lay_out_group(
        self, number: int, gpus: int, only: str | None, first: list[str]
    ) -> tuple[int, list[Share]] | None:
        """Places a group where the earliest tier can pay; returns that tier and who pays."""
        fitting = [
            room
            for room in self._in_pack_order()
            if room.pods * self.pod_size >= gpus and only in {None, room.name}
        ]
        fitting.sort(key=lambda room: first.index(room.name) if room.name in first else len(first))
        for tier in sorted({payer.tier for payer in self.payers}):
            for room in fitting:
                shares = self._pay(number, gpus, room.name, tier)
                if shares is not None:
                    self.rooms[room.name] = DomainRoom(
                        True, room.free - gpus, room.name, room.pods - gpus // self.pod_size
                    )
                    return tier, shares
        return None

    def _pay(self, number: int, gpus: int, domain: str, tier: int) -> list[Share] | None:
        shares: list[Share] = []
        before = len(self.planned)
        for payer in self.payers:
            selected = payer.envelope.selector.get("fabric.domain", domain)
            if payer.tier > tier or selected != domain:
                continue
            paid = min(gpus, self.headroom(payer) // self.pod_size * self.pod_size)
            if paid:
                self.planned.append(self._lease(payer, paid))
                shares.append((number, domain, payer.key, payer.class_, paid))
                gpus -= paid
        if gpus:
            del self.planned[before:]
        return None if gpus else shares
