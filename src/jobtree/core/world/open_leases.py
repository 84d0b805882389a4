"""Every open lease, with what was posted for it.

An open lease occupies slots, counts against the limits of its payer and of the trees above its Run, and adds
to the Run's width. The posted values are kept with it, so that closing it undoes exactly those, whatever has
changed since. ``undo_open`` is the exact inverse of ``open``, and ``undo_close`` of ``close``, so a trial
needs no copy of the world. Of a closed lease only its usage stays.

A lease of a Run that cannot be read or written is only held: it occupies its slots and is charged to its
payer, and planning does not know the Run.
"""

from collections.abc import Iterable

import msgspec

from jobtree.core.accounts.budget_index import BudgetIndex
from jobtree.core.accounts.envelope_accounts import Account, EnvelopeState, reported_amount, usage_class
from jobtree.core.model.gpu_lease import GpuLease, RunKey, Slots
from jobtree.core.runs import carried_usage
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.fleet import Fleet, PodLoad
from jobtree.core.world.run_queue import RunQueue
from jobtree.core.world.timers import TimerQueue


class PostedLease(msgspec.Struct, frozen=True):
    """An open lease with what was posted for it."""

    lease: GpuLease
    envelope: EnvelopeState
    run: RunState | None
    known_end: int | None
    load: PodLoad


class OpenLeases:
    def __init__(
        self,
        runs: dict[RunKey, RunState],
        fleet: Fleet,
        budgets: BudgetIndex,
        timers: TimerQueue,
        run_queue: RunQueue,
    ) -> None:
        self._runs = runs
        self._fleet = fleet
        self._budgets = budgets
        self._timers = timers
        self._run_queue = run_queue
        self.posted: dict[str, PostedLease] = {}  # by name
        self.held: dict[str, PostedLease] = {}  # leases of Runs that planning leaves out
        self.by_node: dict[str, dict[str, None]] = {}  # names of open leases
        self._closed_charges: dict[str, int] = {}  # of closed leases whose Run is not known, by its UID

    def open(self, lease: GpuLease) -> None:
        self._post_lease(self.posting_for(lease))

    def undo_open(self, name: str) -> None:
        """The inverse of open."""
        self._unpost_lease(self.posted[name])

    def close(self, name: str, at: int) -> PostedLease:
        posted = self.posted[name]
        self._unpost_lease(posted)
        self._add_closed_usage_of_payer(posted, at, 1)
        self._add_closed_usage_of_run(posted, at, 1)
        self._count_return(posted, 1)
        return posted

    def undo_close(self, posted: PostedLease, at: int) -> None:
        """The inverse of close."""
        self._count_return(posted, -1)
        self._add_closed_usage_of_payer(posted, at, -1)
        self._add_closed_usage_of_run(posted, at, -1)
        self._post_lease(posted)

    def hold(self, lease: GpuLease) -> None:
        """Occupies the slots of a lease whose Run planning leaves out, and charges its payer."""
        posted = self.held[lease.name] = self.posting_for(lease)
        post_charge(posted, 1)
        self._occupy(posted, lease.slots, 1)
        self._timers.schedule_envelope(posted.envelope)

    def undo_hold(self, name: str) -> None:
        """The inverse of hold; does nothing for a lease that is not held."""
        posted = self.held.pop(name, None)
        if posted is not None:
            post_charge(posted, -1)
            self._occupy(posted, posted.lease.slots, -1)
            self._count_return(posted, 1)

    def repost(self, names: Iterable[str]) -> None:
        """Posts leases again whose known ends or limits changed."""
        for name in names:
            lease = self.posted[name].lease
            self.undo_open(name)
            self.open(lease)

    def unpost_budget(self, budget: str) -> tuple[list[GpuLease], list[GpuLease]]:
        """Unposts the open leases of a Budget before its limits change; returns them for repost_budget."""
        leases, charged = (
            [posted.lease for posted in postings.values() if posted.envelope.key[0] == budget]
            for postings in (self.posted, self.held)
        )
        for lease in leases:
            self.undo_open(lease.name)
        for lease in charged:
            self.undo_hold(lease.name)
        return leases, charged

    def repost_budget(self, unposted: tuple[list[GpuLease], list[GpuLease]]) -> None:
        leases, charged = unposted
        for lease in leases:
            self.open(lease)
        for lease in charged:
            self.hold(lease)

    def occupy_node(self, node: str, sign: int) -> None:
        """Takes the slots of the open leases on a node that was added; with sign -1, releases them."""
        for posted in (*(self.posted[name] for name in self.by_node.get(node, ())), *self.held.values()):
            self._occupy(posted, tuple(slot for slot in posted.lease.slots if slot[0] == node), sign)

    def run_of(self, lease: GpuLease) -> RunState | None:
        run = self._runs.get(lease.run_key)
        return run if run is not None and run.uid == lease.uid else None

    def posting_for(self, lease: GpuLease) -> PostedLease:
        """Returns the lease with what is to be posted for it at present."""
        run = self.run_of(lease)
        envelope = self._budgets.envelope(lease.payer, lease.payer_owner, lease.flavor)
        shape = run.shape if run else None
        end = run.known_end if run else None
        if end is not None and lease.role != "Opportunistic":  # an opportunistic lease outlasts windows
            end = max(lease.start, min(end, envelope.end))
        return PostedLease(
            lease=lease,
            envelope=envelope,
            run=run,
            known_end=end,
            load=PodLoad(
                (run.pod_size if run else 0) or 1,
                shape.cpu_milli if shape else 0,
                shape.memory_bytes if shape else 0,
                shape.requirements.others if shape else (),
            ),
        )

    def _post_lease(self, posted: PostedLease) -> None:
        lease = posted.lease
        self.posted[lease.name] = posted
        self._post_payer(posted, 1)
        self._occupy(posted, lease.slots, 1)
        for node, _ in lease.slots:
            self.by_node.setdefault(node, {})[lease.name] = None
        if posted.run is not None:
            posted.run.add_lease(lease)
            self._reindex_run(lease, posted.run)
            self.record_interim(posted.run)

    def _unpost_lease(self, posted: PostedLease) -> None:
        lease = posted.lease
        del self.posted[lease.name]
        self._post_payer(posted, -1)
        self._occupy(posted, lease.slots, -1)
        for node, _ in lease.slots:
            on_node = self.by_node[node]
            del on_node[lease.name]
            if not on_node:
                del self.by_node[node]
        if posted.run is not None:
            posted.run.remove_lease(lease)
            self._reindex_run(lease, posted.run)
            self.record_interim(posted.run)

    def record_interim(self, run: RunState) -> None:
        """Records with its payers until when the Run runs as interim work: until its promise is due."""
        before, until = run.recorded_interim_until, run.interim_until
        if before is None and until is None:
            return
        run.record_interim_until(until)
        if until != before:
            self._fleet.invalidate_profiles_around(run.leases.values())
        for lease in run.leases.values():
            if lease.role != "Opportunistic":
                posted = self.posted[lease.name]
                posted.envelope.record_interim(lease, until, posted.known_end)

    def record_provisional(self, run: RunState) -> None:
        """Records with its payers whether the Run is provisional, and since when."""
        for lease in run.leases.values():
            if lease.role != "Opportunistic":
                self._record_provisional(self.posted[lease.name])

    @staticmethod
    def _record_provisional(posted: PostedLease) -> None:
        since = None if posted.run is None else posted.run.provisional_since
        posted.envelope.record_provisional(posted.lease, since, posted.known_end)

    def _post_payer(self, posted: PostedLease, sign: int) -> None:
        lease, envelope = posted.lease, posted.envelope
        post_charge(posted, sign)
        if lease.role == "Opportunistic":
            return
        if envelope.undated_promises:
            self._budgets.kept_budget_changed.add(envelope.key)
        if sign > 0:
            envelope.leases[lease.name] = lease
            self._record_provisional(posted)
        else:
            del envelope.leases[lease.name]
            envelope.record_interim(lease, None)
            envelope.record_provisional(lease, None)
        if posted.known_end is not None:
            envelope.record_known_end(posted.known_end, lease.charge, sign)
        if sign > 0:  # closing a lease brings no instant nearer
            self._timers.schedule_envelope(envelope)
            if posted.run is not None and posted.run.quotas:
                self._timers.schedule_quotas(posted.run.quotas)

    def _occupy(self, posted: PostedLease, slots: Slots, sign: int) -> None:
        change = self._fleet.take_slots if sign > 0 else self._fleet.release_slots
        change(slots, posted.lease.role, posted.load)

    def _reindex_run(self, lease: GpuLease, run: RunState) -> None:
        """Updates what depends on the width and the opportunistic GPUs of a Run whose leases changed."""
        if lease.role != "Spare" and run.shape is not None and run.shape.malleable:
            self._fleet.invalidate_profiles_around(run.leases.values())  # they count the steps it can take
        if lease.role == "Opportunistic":
            self._run_queue.update(run)

    # Usage of closed leases, which were unposted before or were never posted

    def add_closed_usage(self, lease: GpuLease, end: int) -> None:
        """Adds the usage of a lease that was closed when it was read, unless the carried usage has it."""
        posting = self.posting_for(lease)
        run = posting.run
        if lease.name not in self._budgets.archived_leases.get(lease.payer[0], ()):
            self._add_closed_usage_of_payer(posting, end, 1)
        if run is None or lease.name not in run.usage.archived_leases:
            self._add_closed_usage_of_run(posting, end, 1)
        self._timers.schedule_envelope(posting.envelope)  # its hours may run out sooner
        if run is not None:
            self._timers.schedule_quotas(run.quotas)

    @staticmethod
    def _add_closed_usage_of_payer(posted: PostedLease, at: int, sign: int) -> None:
        lease, envelope = posted.lease, posted.envelope
        span = sign * (at - lease.start)
        envelope.by_class[usage_class(lease)].closed_usage += reported_amount(lease) * span
        if lease.role != "Opportunistic":
            for account in envelope.accounts(lease):
                account.closed_usage += lease.charge * span

    def _add_closed_usage_of_run(self, posted: PostedLease, at: int, sign: int) -> None:
        lease, run = posted.lease, posted.run
        span = sign * (at - lease.start)
        charge = 0 if lease.role == "Opportunistic" else lease.charge * span
        if run is None:
            self._closed_charges[lease.uid] = self._closed_charges.get(lease.uid, 0) + charge
        else:
            run.add_closed_usage(lease, span, charge)

    def load_closed_usage(self, run: RunState) -> None:
        """Adds to a new Run the usage of leases that were closed or archived before the Run was read."""
        run.usage.add_closed_charge(self._closed_charges.pop(run.uid, 0))
        carried_usage.load_run(self._budgets, run)

    def _count_return(self, posted: PostedLease, sign: int) -> None:
        """Counts that charge returned to an envelope: a waiting Run may start, or a promise get a date."""
        flavors = {posted.lease.flavor}
        for cap in posted.envelope.caps:
            flavors.update(envelope.spec.flavor for envelope in cap.envelopes)
        for name in flavors:
            self._fleet.flavor(name).reconsider_generation += sign
        posted.envelope.count_return(sign)


def post_charge(posted: PostedLease, sign: int) -> None:
    """Adds a lease to the usage of its payer and to every limit that it counts against."""
    lease = posted.lease
    posted.envelope.by_class[usage_class(lease)].open(reported_amount(lease), lease.start, sign)
    if lease.role != "Opportunistic":
        for account in accounts(posted):
            account.open(
                lease.charge, lease.start, posted.known_end, sign, goes_on=lease.reason == "Continue"
            )


def accounts(posted: PostedLease) -> Iterable[Account]:
    """Yields all limits that a funded lease counts against."""
    yield from posted.envelope.accounts(posted.lease)
    if posted.run is not None:
        yield from posted.run.quotas
