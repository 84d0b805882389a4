"""Holdings: every open lease, and what was posted for it.

An open lease occupies slots, counts against the limits of its payer and of the trees above its Run, and makes
up the Run's width. What was posted is kept with it, so that closing undoes exactly that, whatever has changed
since. ``undo_open`` is the exact inverse of ``open``, ``undo_close`` of ``close``: a trial needs no copy of
the world. A closed lease leaves nothing behind but its sums in the books.

A lease whose Run cannot be read is only charged: its payer pays on, and nobody plans with it.
"""

from collections.abc import Iterable

import msgspec

from jobtree.core.accounts.budget_index import BudgetIndex
from jobtree.core.accounts.envelope_accounts import (
    Account,
    EnvelopeState,
    reported_amount,
    usage_class,
)
from jobtree.core.model.gpu_lease import GpuLease, RunKey, Slots
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.fleet import Fleet
from jobtree.core.world.run_queue import RunQueue
from jobtree.core.world.timers import TimerQueue


class PostedLease(msgspec.Struct, frozen=True):
    """An open lease with what was posted for it, so that closing undoes exactly that."""

    lease: GpuLease
    envelope: EnvelopeState
    run: RunState | None
    known_end: int | None
    cpu_milli: int
    memory_bytes: int
    pod_size: int


class OpenLeases:
    def __init__(
        self,
        runs: dict[RunKey, RunState],
        fleet: Fleet,
        ledger: BudgetIndex,
        alarms: TimerQueue,
        line: RunQueue,
    ) -> None:
        self._runs = runs
        self._fleet = fleet
        self._ledger = ledger
        self._alarms = alarms
        self._line = line
        self.posted: dict[str, PostedLease] = {}
        self.unreadable_run_leases: dict[str, PostedLease] = {}  # of Runs that cannot be read
        self.by_node: dict[str, dict[str, None]] = {}  # names of open leases
        self._spent: dict[str, int] = {}  # use of closed leases whose Run has not come yet, by its UID

    def open(self, lease: GpuLease) -> None:
        self._post_lease(self.posting_for(lease))

    def undo_open(self, name: str) -> None:
        """The inverse of open."""
        self._unpost_lease(self.posted[name])

    def close(self, name: str, at: int) -> PostedLease:
        held = self.posted[name]
        self._unpost_lease(held)
        self.add_closed_usage_of_payer(held, at, 1)
        self.add_closed_usage_of_run(held, at, 1)
        self._count_return(held, 1)
        return held

    def undo_close(self, held: PostedLease, at: int) -> None:
        """The inverse of close."""
        self._count_return(held, -1)
        self.add_closed_usage_of_payer(held, at, -1)
        self.add_closed_usage_of_run(held, at, -1)
        self._post_lease(held)

    def charge_only(self, lease: GpuLease) -> None:
        """Its payer pays for it, and that is all that is known of it."""
        held = self.unreadable_run_leases[lease.name] = self.posting_for(lease)
        post_charge(held, 1)
        self._alarms.schedule_envelope(held.envelope)

    def undo_charge_only(self, name: str) -> None:
        """The inverse of charge; of a lease that is not charged, nothing."""
        held = self.unreadable_run_leases.pop(name, None)
        if held is not None:
            post_charge(held, -1)
            self._count_return(held, 1)

    def repost(self, names: Iterable[str]) -> None:
        """Known ends or limits changed: post these leases anew."""
        for name in names:
            lease = self.posted[name].lease
            self.undo_open(name)
            self.open(lease)

    def unpost_budget(self, budget: str) -> tuple[list[GpuLease], list[GpuLease]]:
        """Take the budget's open leases off the books, so that its caps can change under them."""
        leases, charged = (
            [held.lease for held in kept.values() if held.envelope.key[0] == budget]
            for kept in (self.posted, self.unreadable_run_leases)
        )
        for lease in leases:
            self.undo_open(lease.name)
        for lease in charged:
            self.undo_charge_only(lease.name)
        return leases, charged

    def repost_budget(self, lifted: tuple[list[GpuLease], list[GpuLease]]) -> None:
        leases, charged = lifted
        for lease in leases:
            self.open(lease)
        for lease in charged:
            self.charge_only(lease)

    def occupy_node(self, node: str, sign: int) -> None:
        """A node came anew, or goes: its part of the leases that stand on it."""
        for name in self.by_node.get(node, ()):
            held = self.posted[name]
            self._occupy(held, tuple(slot for slot in held.lease.slots if slot[0] == node), sign)

    def run_of(self, lease: GpuLease) -> RunState | None:
        run = self._runs.get(lease.run_key)
        return run if run is not None and run.uid == lease.uid else None

    def posting_for(self, lease: GpuLease) -> PostedLease:
        """The lease with what is to be posted for it as things stand."""
        run = self.run_of(lease)
        envelope = self._ledger.envelope(lease.payer, lease.payer_owner, lease.flavor)
        shape = run.shape if run else None
        end = run.known_end if run else None
        if end is not None and lease.role != "Opportunistic":  # an unpaid one does not end with a window
            end = max(lease.start, min(end, envelope.end))
        return PostedLease(
            lease=lease,
            envelope=envelope,
            run=run,
            known_end=end,
            cpu_milli=shape.cpu_milli if shape else 0,
            memory_bytes=shape.memory_bytes if shape else 0,
            pod_size=(run.pod_size if run else 0) or 1,
        )

    def _post_lease(self, held: PostedLease) -> None:
        lease = held.lease
        self.posted[lease.name] = held
        self._post_payer(held, 1)
        self._occupy(held, lease.slots, 1)
        for node, _ in lease.slots:
            self.by_node.setdefault(node, {})[lease.name] = None
        if held.run is not None:
            held.run.add_lease(lease)
            self._reindex_run(lease, held.run)
            self.record_interim(held.run)

    def _unpost_lease(self, held: PostedLease) -> None:
        lease = held.lease
        del self.posted[lease.name]
        self._post_payer(held, -1)
        self._occupy(held, lease.slots, -1)
        for node, _ in lease.slots:
            on_node = self.by_node[node]
            del on_node[lease.name]
            if not on_node:
                del self.by_node[node]
        if held.run is not None:
            held.run.remove_lease(lease)
            self._reindex_run(lease, held.run)
            self.record_interim(held.run)

    def record_interim(self, run: RunState) -> None:
        """What the Run holds on sufferance counts until its promise is due."""
        before, at = run.recorded_interim_until, run.interim_until
        if before is None and at is None:
            return
        run.record_interim_until(at)
        if at != before:
            self._fleet.invalidate_profiles_around(run.leases.values())
        for lease in run.leases.values():
            if lease.role != "Opportunistic":
                held = self.posted[lease.name]
                held.envelope.record_interim(lease, at, held.known_end)

    def record_provisional(self, run: RunState) -> None:
        """The Run is provisional now, or is not any more."""
        for lease in run.leases.values():
            if lease.role != "Opportunistic":
                self._record_provisional(self.posted[lease.name])

    @staticmethod
    def _record_provisional(held: PostedLease) -> None:
        since = None if held.run is None else held.run.provisional_since
        held.envelope.record_provisional(held.lease, since, held.known_end)

    # What is posted

    def _post_payer(self, held: PostedLease, sign: int) -> None:
        lease, envelope = held.lease, held.envelope
        post_charge(held, sign)
        if lease.role == "Opportunistic":
            return
        if sign > 0:
            envelope.leases[lease.name] = lease
            self._record_provisional(held)
        else:
            del envelope.leases[lease.name]
            envelope.record_interim(lease, None)
            envelope.record_provisional(lease, None)
        if held.known_end is not None:
            envelope.record_known_end(held.known_end, lease.charge, sign)
        if sign > 0:  # a lease less never brings an instant nearer
            self._alarms.schedule_envelope(envelope)
            if held.run is not None and held.run.quotas:
                self._alarms.schedule_quotas(held.run.quotas)

    def _occupy(self, held: PostedLease, slots: Slots, sign: int) -> None:
        change = self._fleet.take_slots if sign > 0 else self._fleet.release_slots
        change(slots, held.lease.role, held.cpu_milli, held.memory_bytes, held.pod_size)

    def _reindex_run(self, lease: GpuLease, run: RunState) -> None:
        """Updates what depends on the width and the opportunistic GPUs of a Run whose leases changed."""
        if lease.role != "Spare" and run.shape is not None and run.shape.malleable:
            self._fleet.invalidate_profiles_around(run.leases.values())  # they count the steps it can take
        if lease.role == "Opportunistic":
            self._line.update(run)

    # What a closed lease used; it was taken off the open ones before, or never was among them

    @staticmethod
    def add_closed_usage_of_payer(held: PostedLease, at: int, sign: int) -> None:
        lease, envelope = held.lease, held.envelope
        span = sign * (at - lease.start)
        envelope.by_class[usage_class(lease)].closed_usage += reported_amount(lease) * span
        if lease.role != "Opportunistic":
            for account in envelope.accounts(lease):
                account.closed_usage += lease.charge * span

    def add_closed_usage_of_run(self, held: PostedLease, at: int, sign: int) -> None:
        lease, run = held.lease, held.run
        span = sign * (at - lease.start)
        charged = 0 if lease.role == "Opportunistic" else lease.charge * span
        if run is None:
            self._spent[lease.uid] = self._spent.get(lease.uid, 0) + charged
            return
        run.add_closed_usage(lease, span, charged)

    def pop_closed_charge(self, uid: str) -> int:
        """A Run came: what its closed leases used that came before it."""
        return self._spent.pop(uid, 0)

    def _count_return(self, held: PostedLease, sign: int) -> None:
        """Money came back: it could let a waiting Run start."""
        flavors = {held.lease.flavor}
        for cap in held.envelope.caps:
            flavors.update(envelope.spec.flavor for envelope in cap.envelopes)
        for name in flavors:
            self._fleet.flavor(name).reconsider_generation += sign
        held.envelope.count_return(sign)


def post_charge(held: PostedLease, sign: int) -> None:
    """Its payer's books, and every limit that it counts against."""
    lease = held.lease
    held.envelope.by_class[usage_class(lease)].open(reported_amount(lease), lease.start, sign)
    if lease.role != "Opportunistic":
        for account in accounts(held):
            account.open(lease.charge, lease.start, held.known_end, sign, goes_on=lease.reason == "Continue")


def accounts(held: PostedLease) -> Iterable[Account]:
    """All limits that a funded lease counts against."""
    yield from held.envelope.accounts(held.lease)
    if held.run is not None:
        yield from held.run.quotas
