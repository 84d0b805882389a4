"""Which Lease objects are there, and which are still to be made or ended.

The allocations of Runs are what holds; Lease objects follow. One that is missing is made (again); one whose
end was decided is ended. So is one that nobody holds: if its Run is there, somebody made it by hand; if its
Run is gone, somebody took away the finalizer that kept the Run until its leases were ended. One that somebody
else ended while its Run holds it stays as it is, for an end is written once; nothing is left to write for it
when its Run lets go.
"""

from collections.abc import Iterable

import msgspec

from jobtree.api.kinds.lease import Lease as WireLease
from jobtree.api.kinds.run import Ending, Run
from jobtree.api.schema.quantities import format_time, parse_time
from jobtree.core import (
    GpuLease,
    LeaseClosing,
    LedgerReplay,
    Violation,
    World,
    allocated_lease,
    closed_lease_object,
    lease_from_allocation,
    lease_from_object,
    lease_to_object,
)
from jobtree.kube.watch.object_store import Change

WHO = "the audit log of the API server says who did it"


class PendingLeaseWrites(msgspec.Struct, frozen=True):
    """Lease objects to make and to end, after the Runs' allocations say so."""

    opens: tuple[GpuLease, ...] = ()
    ends: tuple[Ending, ...] = ()


class LeaseObjects:
    def __init__(self, world: World) -> None:
        self.replay = LedgerReplay()
        self._world = world
        self.existing: set[str] = set()
        self._opens: dict[str, GpuLease] = {}
        self._ends: dict[str, Ending] = {}
        self._closing: dict[str, dict[str, Ending]] = {}  # by UID of the Run: ends not known to be written
        self._over: set[str] = set()  # held by their Runs, yet ended by somebody else
        self._settled: set[str] = set()
        self._unread: frozenset[str] = frozenset()  # UIDs of Runs that cannot be read: their leases stay
        self._kept: dict[str, WireLease] = {}  # open leases of those: their payers are charged, no more
        self.budgets_to_update: set[str] = set()  # Budgets that paid for such a lease: to be told
        self.deleted_by_others: list[GpuLease] = []  # deleted by others, and carried since: to be told
        self.leases_without_run: list[
            GpuLease
        ] = []  # their Run went without ending them: they are ended, and it is told

    def closing(self, uid: str) -> tuple[Ending, ...]:
        return tuple(self._closing.get(uid, {}).values())

    def pending_writes(self) -> PendingLeaseWrites:
        return PendingLeaseWrites(tuple(self._opens.values()), tuple(self._ends.values()))

    # What was decided

    def open(self, lease: GpuLease) -> None:
        if lease.name not in self.existing:
            self._opens[lease.name] = lease

    def close(self, lease: GpuLease, closing: LeaseClosing) -> None:
        self._record_end(lease, closing.at)
        if lease.name in self._over:
            self._over.discard(lease.name)
            return
        whole = None if lease.name in self.existing else allocated_lease(lease)
        ending = Ending(lease=lease.name, end=format_time(closing.at), reason=closing.reason, whole=whole)
        self._closing.setdefault(lease.uid, {})[lease.name] = ending
        self._ends[lease.name] = ending

    # What is seen

    def load_closing(self, run: Run) -> None:
        """A Run of an earlier life of this process: what it was about to end."""
        if run.status.closing:
            self._closing[run.metadata.uid] = {ending.lease: ending for ending in run.status.closing}
        for ending in run.status.closing:
            if ending.whole is not None and ending.lease not in self.existing:
                lease = lease_from_allocation(run, ending.whole)
                self._opens[lease.name], self._ends[lease.name] = lease, ending
                self._world.put_lease(
                    closed_lease_object(lease_to_object(lease), parse_time(ending.end), ending.reason)
                )
                self._record_end(lease, parse_time(ending.end))

    def forget_run(self, uid: str) -> None:
        self._closing.pop(uid, None)

    def forget_missing(self) -> None:
        """All there is has been seen: what was to be ended and is not there will not come any more."""
        for uid, endings in list(self._closing.items()):
            for name in endings.keys() - self._ends.keys():
                self._handle_ended(uid, name)

    def _handle_ended(self, uid: str, name: str) -> None:
        endings = self._closing.get(uid, {})
        if endings.pop(name, None) is not None and not endings:
            del self._closing[uid]

    def handle_changes(self, changes: Iterable[Change[WireLease]], unread: frozenset[str]) -> list[Violation]:
        """Lease objects as they are now; what is not as it should be is put right, and told."""
        self._unread = unread
        found = [violation for change in changes for violation in self._handle(change)]
        for name, lease in list(self._kept.items()):
            if lease.spec.run_ref.uid not in unread:
                self._forget(name)
                found += self._handle_open(lease)
        return found

    def _handle(self, change: Change[WireLease]) -> list[Violation]:
        if change.after is None:
            assert change.before is not None
            return self._handle_deleted(change.before.value)
        lease = change.after.value
        name = lease.metadata.name
        self.existing.add(name)
        self._opens.pop(name, None)
        if lease.status.end is None:
            return self._handle_open(lease)
        return self._handle_closed(lease)

    def _handle_deleted(self, lease: WireLease) -> list[Violation]:
        name = lease.metadata.name
        self.existing.discard(name)
        self._over.discard(name)
        self._ends.pop(name, None)
        self._forget(name)
        self._handle_ended(lease.spec.run_ref.uid, name)
        if name not in self._world.posted_leases:
            return self._handle_unowned(lease)
        self._opens[name] = self._world.posted_leases[name].lease
        return [Violation("I6", f"{name} was deleted while it counted: it is put back; {WHO}")]

    def _handle_unowned(self, lease: WireLease) -> list[Violation]:
        """A closed lease is gone. If nobody carried its hours yet, they are carried from now on."""
        if lease.status.end is None:
            return []
        known, end = lease_from_object(lease), parse_time(lease.status.end)
        budget = known.payer[0]
        counted = known.name in self._settled and budget in self._world.budgets.budgets
        early = counted and known.name not in self._world.budgets.archived_leases.get(budget, ())
        self._settled.discard(known.name)
        if early:
            self._world.carry_lease(known, end)
            self.deleted_by_others.append(known)
        self._world.drop_lease(known, end)
        said = f"{known.name} was deleted while its hours counted: its Budget carries them now; {WHO}"
        return [Violation("I6", said)] if early else []

    def _handle_open(self, lease: WireLease) -> list[Violation]:
        name = lease.metadata.name
        if name in self._world.posted_leases or name in self._ends:
            return []
        known = lease_from_object(lease)
        if known.uid in self._unread:
            if name not in self._kept:
                self._world.open_leases.charge_only(known)
            self._kept[name] = lease
            return []
        ending = self._closing.get(known.uid, {}).get(name)
        found = []
        if ending is None:
            at = format_time(max(self._world.now, known.start))
            ending = Ending(lease=name, end=at, reason="Cancelled")
            run = self._world.runs.get(known.run_key)
            if run is not None and run.uid == known.uid:
                found = [Violation("I6", f"{name} belongs to no Run that holds it: it is ended; {WHO}")]
            else:
                self.leases_without_run.append(known)
        self._ends[name] = ending
        self._world.put_lease(closed_lease_object(lease, parse_time(ending.end), ending.reason))
        self._record_end(known, parse_time(ending.end))
        return found

    def _handle_closed(self, lease: WireLease) -> list[Violation]:
        name, end = lease.metadata.name, lease.status.end
        assert end is not None
        self._forget(name)
        self._ends.pop(name, None)
        self._handle_ended(lease.spec.run_ref.uid, name)
        if name in self._world.posted_leases:
            self._over.add(name)
            said = f"{name} was ended by somebody else while its Run holds it: cancel the Run if it is to end"
            return [Violation("I6", f"{said}; {WHO}")]
        self._world.put_lease(lease)
        self._record_end(lease_from_object(lease), parse_time(end))
        return []

    def _forget(self, name: str) -> None:
        """The Run of a lease can be read now, or the lease is over: it is not kept apart any more."""
        kept = self._kept.pop(name, None)
        if kept is not None:
            self._world.open_leases.undo_charge_only(name)
            self.budgets_to_update.add(kept.spec.payer.budget)

    def _record_end(self, lease: GpuLease, end: int) -> None:
        if lease.name not in self._settled:
            self._settled.add(lease.name)
            self.replay.close(lease, end)
