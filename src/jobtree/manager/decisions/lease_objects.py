"""Compares Lease objects with the allocations of Runs, and lists the leases to create and to end.

The allocation in the status of a Run decides. A Lease object that is missing is created, or created again; a
lease whose end was decided is ended. An open lease that no Run holds is ended as well: somebody created it by
hand, or somebody removed the finalizer that keeps a Run until its leases are ended. A lease that somebody
else ended while its Run holds it is not written again, since an end is written once.
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
    endings_in_status,
    lease_from_allocation,
    lease_from_object,
    lease_to_object,
)
from jobtree.kube.watch.object_store import Change

AUDIT_HINT = "the audit log of the API server says who did it"


class PendingLeaseWrites(msgspec.Struct, frozen=True):
    """Lease objects to create and to end, after the allocations of their Runs are written."""

    opens: tuple[GpuLease, ...] = ()
    ends: tuple[Ending, ...] = ()


class LeaseObjects:
    def __init__(self, world: World) -> None:
        self.replay = LedgerReplay()
        self._world = world
        self.existing: set[str] = set()  # names of the Lease objects that were seen
        self._opens: dict[str, GpuLease] = {}
        self._ends: dict[str, Ending] = {}
        self._closing: dict[str, dict[str, Ending]] = {}  # by UID of the Run: ends that were not seen yet
        self._ended_by_others: set[str] = set()  # leases that their Runs still hold
        self._recorded_ends: set[str] = set()  # closed leases that count in the replay
        self._unreadable_runs: frozenset[str] = frozenset()  # UIDs
        # Open leases of unreadable Runs: they stay open, keep their slots, and their payers are charged.
        self._leases_of_unreadable_runs: dict[str, WireLease] = {}
        self._readable_again: list[WireLease] = []  # whose Run can be read again
        self.budgets_to_update: set[str] = (
            set()
        )  # payers of leases whose Run can be read again, or that ended
        self.deleted_by_others: list[GpuLease] = []  # closed leases, which are carried from now on
        self.leases_without_run: list[GpuLease] = []  # open leases whose Run is gone, which are ended now

    def closing(self, uid: str) -> tuple[Ending, ...]:
        return tuple(self._closing.get(uid, {}).values())

    def pending_writes(self) -> PendingLeaseWrites:
        return PendingLeaseWrites(tuple(self._opens.values()), tuple(self._ends.values()))

    # Decisions

    def open(self, lease: GpuLease) -> None:
        if lease.name not in self.existing:
            self._opens[lease.name] = lease

    def close(self, lease: GpuLease, closing: LeaseClosing) -> None:
        self._record_end(lease, closing.at)
        if lease.name in self._ended_by_others:
            self._ended_by_others.discard(lease.name)
            return
        whole = None if lease.name in self.existing else allocated_lease(lease)
        ending = Ending(lease=lease.name, end=format_time(closing.at), reason=closing.reason, whole=whole)
        self._closing.setdefault(lease.uid, {})[lease.name] = ending
        self._ends[lease.name] = ending

    # Lease objects as they are seen

    def load_closing(self, run: Run) -> None:
        """Loads the endings that an earlier manager decided, and may not have written."""
        endings = endings_in_status(run)
        if endings:
            self._closing[run.metadata.uid] = {ending.lease: ending for ending in endings}
        for ending in endings:
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
        """Drops endings of leases that do not exist, once all Lease objects have been loaded."""
        for uid, endings in list(self._closing.items()):
            for name in endings.keys() - self._ends.keys():
                self._handle_ended(uid, name)

    def _handle_ended(self, uid: str, name: str) -> None:
        endings = self._closing.get(uid, {})
        if endings.pop(name, None) is not None and not endings:
            del self._closing[uid]

    def handle_changes(self, changes: Iterable[Change[WireLease]]) -> list[Violation]:
        """Takes in changed Lease objects, prepares the writes that correct them, and returns violations."""
        violations = [violation for change in changes for violation in self._handle(change)]
        readable_again, self._readable_again = self._readable_again, []
        for lease in readable_again:
            violations += self._handle_open(lease)
        return violations

    def release_readable(self, unreadable_runs: frozenset[str]) -> None:
        """Gives up the slots that were held for Runs that can be read now, before these Runs take them."""
        self._unreadable_runs = unreadable_runs
        for name, lease in list(self._leases_of_unreadable_runs.items()):
            if lease.spec.run_ref.uid not in unreadable_runs:
                self._forget(name)
                self._readable_again.append(lease)

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
        self._ended_by_others.discard(name)
        self._ends.pop(name, None)
        self._forget(name)
        self._handle_ended(lease.spec.run_ref.uid, name)
        if name not in self._world.posted_leases:
            return self._handle_unowned(lease)
        self._opens[name] = self._world.posted_leases[name].lease
        return [Violation("I6", f"{name} was deleted while it counted: it is put back; {AUDIT_HINT}")]

    def _handle_unowned(self, lease: WireLease) -> list[Violation]:
        """Drops a closed lease that was deleted; its usage is carried from now on if it was not before."""
        if lease.status.end is None:
            return []
        closed, end = lease_from_object(lease), parse_time(lease.status.end)
        budget = closed.payer[0]
        counted = closed.name in self._recorded_ends and budget in self._world.budgets.budgets
        not_carried = counted and closed.name not in self._world.budgets.archived_leases.get(budget, ())
        self._recorded_ends.discard(closed.name)
        if not_carried:
            self._world.carry_lease(closed, end)
            self.deleted_by_others.append(closed)
        self._world.drop_lease(closed, end)
        why = f"{closed.name} was deleted while its hours counted: its Budget carries them now; {AUDIT_HINT}"
        return [Violation("I6", why)] if not_carried else []

    def _handle_open(self, lease: WireLease) -> list[Violation]:
        name = lease.metadata.name
        if name in self._world.posted_leases or name in self._ends:
            return []
        opened = lease_from_object(lease)
        if opened.uid in self._unreadable_runs:
            if name not in self._leases_of_unreadable_runs:
                self._world.hold_lease(opened)
            self._leases_of_unreadable_runs[name] = lease
            return []
        ending = self._closing.get(opened.uid, {}).get(name)
        violations = []
        if ending is None:
            at = format_time(max(self._world.now, opened.start))
            ending = Ending(lease=name, end=at, reason="Cancelled")
            run = self._world.runs.get(opened.run_key)
            if run is not None and run.uid == opened.uid:
                why = f"{name} belongs to no Run that holds it: it is ended; {AUDIT_HINT}"
                violations = [Violation("I6", why)]
            else:
                self.leases_without_run.append(opened)
        self._ends[name] = ending
        self._world.put_lease(closed_lease_object(lease, parse_time(ending.end), ending.reason))
        self._record_end(opened, parse_time(ending.end))
        return violations

    def _handle_closed(self, lease: WireLease) -> list[Violation]:
        name, end = lease.metadata.name, lease.status.end
        assert end is not None
        self._forget(name)
        self._ends.pop(name, None)
        self._handle_ended(lease.spec.run_ref.uid, name)
        if name in self._world.posted_leases:
            self._ended_by_others.add(name)
            why = f"{name} was ended by somebody else while its Run holds it: cancel the Run if it is to end"
            return [Violation("I6", f"{why}; {AUDIT_HINT}")]
        self._world.put_lease(lease)
        self._record_end(lease_from_object(lease), parse_time(end))
        return []

    def _forget(self, name: str) -> None:
        """Stops charging a lease by itself: its Run can be read now, or the lease is over."""
        lease = self._leases_of_unreadable_runs.pop(name, None)
        if lease is not None:
            self._world.open_leases.undo_hold(name)
            self.budgets_to_update.add(lease.spec.payer.budget)

    def _record_end(self, lease: GpuLease, end: int) -> None:
        if lease.name not in self._recorded_ends:
            self._recorded_ends.add(lease.name)
            self.replay.close(lease, end)
