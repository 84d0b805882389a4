"""Records tentative changes to the world, rolls them back to a checkpoint, and returns them as actions.

``begin_action`` records what happens to a Run and why. Leases of that Run that open or close afterwards
belong to that action, so no lease changes without a cause.

The versions of domains and envelopes are saved with each lease that opens or closes and restored by a
rollback: the answers that were cached before are valid again.
"""

from collections.abc import Collection, Iterator
from typing import Any

import msgspec

from jobtree.api.kinds.lease import ClosureReason, LeaseClass, OpenReason, Role
from jobtree.core.accounts.envelope_accounts import FOREVER, EnvelopeState
from jobtree.core.model.actions import Action, LeaseClosing
from jobtree.core.model.gpu_lease import GpuLease, RunKey, Slots, count_slots, join_pods, lease_name, pods_of
from jobtree.core.model.outcomes import REQUEUES, ActionKind
from jobtree.core.model.promise import Promise
from jobtree.core.model.reasons import Cause
from jobtree.core.model.versioned_cache import SavedVersions
from jobtree.core.runs.run_state import PodSlots, RunState, SavedRunState
from jobtree.core.supply.domain import Domain
from jobtree.core.world.open_leases import PostedLease
from jobtree.core.world.world import World


class LeaseTerms(msgspec.Struct, frozen=True, eq=False):
    """The payer, class, role and group of the slots of one lease."""

    envelope: EnvelopeState
    class_: LeaseClass
    role: Role
    group: int


VersionsBefore = list[tuple[Domain | EnvelopeState, SavedVersions]]


class LeaseOpened(msgspec.Struct, frozen=True):
    lease: GpuLease
    versions: VersionsBefore


class LeaseClosed(msgspec.Struct, frozen=True):
    posted: PostedLease
    versions: VersionsBefore
    at: int
    reason: ClosureReason


class ActionBegun(msgspec.Struct, frozen=True):
    run: RunState
    action: Action  # without its leases, which follow in the journal
    before: SavedRunState


JournalEntry = LeaseOpened | LeaseClosed | ActionBegun


class Trial:
    def __init__(self, world: World) -> None:
        self.world = world
        self._journal: list[JournalEntry] = []

    def checkpoint(self) -> int:
        return len(self._journal)

    def rollback(self, checkpoint: int = 0) -> None:
        """Undoes everything since the checkpoint, newest first."""
        journal, world = self._journal, self.world
        while len(journal) > checkpoint:
            entry = journal.pop()
            if isinstance(entry, ActionBegun):
                world.run_transitions.undo(entry.run, entry.before)
                continue
            if isinstance(entry, LeaseOpened):
                world.open_leases.undo_open(entry.lease.name)
                world.runs[entry.lease.run_key].undo_lease_number()
            else:
                world.open_leases.undo_close(entry.posted, entry.at)
            for changed, saved in entry.versions:
                changed.restore_versions(saved)

    def open(self, run: RunState, terms: LeaseTerms, slots: Slots, at: int, reason: OpenReason) -> GpuLease:
        """Opens a lease on these slots for a Run."""
        lease = GpuLease(
            name=lease_name(run.key[1], run.uid, run.next_lease_number()),
            run_key=run.key,
            uid=run.uid,
            owner=run.owner,
            payer=terms.envelope.key,
            payer_owner=terms.envelope.owner,
            class_=terms.class_,
            role=terms.role,
            group=terms.group,
            flavor=run.flavor,
            slots=slots,
            gpus=count_slots(slots),
            start=at,
            rate=self.rate(terms.role),
            reason=reason,
        )
        versions = self._versions(slots, terms.envelope)
        self.world.open_leases.open(lease)
        self._journal.append(LeaseOpened(lease, versions))
        return lease

    def _versions(self, slots: Slots, envelope: EnvelopeState) -> VersionsBefore:
        """Versions of the domains and the payer of a lease that is about to open or close."""
        domain_by_node = self.world.fleet.domain_by_node
        domains = {domain_by_node[node] for node, _ in slots if node in domain_by_node}
        versions: VersionsBefore = [(domain, domain.save_versions()) for domain in domains]
        versions.append((envelope, envelope.save_versions()))
        return versions

    def rate(self, role: Role) -> int:
        """The rate of a GPU in that role, in thousandths."""
        policy = self.world.policy
        if role == "Active":
            return 1000
        return policy.spare_rate_milli if role == "Spare" else policy.opportunistic_rate_milli

    def close(self, name: str, at: int, reason: ClosureReason) -> GpuLease:
        posted = self.world.posted_leases[name]
        versions = self._versions(posted.lease.slots, posted.envelope)
        closed = self.world.open_leases.close(name, at)
        self._journal.append(LeaseClosed(closed, versions, at, reason))
        return closed.lease

    def end_pods(
        self, run: RunState, name: str, pods: Collection[PodSlots], at: int, reason: ClosureReason
    ) -> GpuLease:
        """Ends these pods of a lease; the others continue with the same payer, in a lease of their own."""
        lease = self.close(name, at, reason)
        kept = [pod for pod in pods_of(lease.slots, run.pod_size) if pod not in pods]
        if kept:
            envelope = self.world.budgets.envelope(lease.payer, lease.payer_owner, lease.flavor)
            terms = LeaseTerms(envelope, lease.class_, lease.role, lease.group)
            self.open(run, terms, join_pods(kept), at, "Continue")
        return lease

    def begin_action(self, kind: ActionKind, run: RunState, at: int, cause: Cause, **details: Any) -> None:  # noqa: ANN401  fields of Action
        """Begins an action: leases of this Run that open and close from here on are part of it."""
        action = Action(kind, run.key, at, cause, **details)
        self._journal.append(ActionBegun(run, action, run.save_state()))
        self.world.run_transitions.apply(run, action)

    def has_promised(self, run: RunState, promise: Promise) -> bool:
        """Whether the Run got this promise in this trial, so that no user has seen it."""
        return any(
            isinstance(entry, ActionBegun)
            and entry.run is run
            and entry.action.kind == "Reserve"
            and entry.action.promise is not None
            and entry.action.promise.number == promise.number
            for entry in self._journal
        )

    def disturbed_runs(self) -> set[RunKey]:
        """Runs whose promises count on something that this trial used for a lease or a promise that moved.

        That is a domain, an envelope, a cap above it, or the quota of a tree. A Run that is confirmed keeps
        the leases that it had, perhaps with other payers than its promise counted on.
        """
        envelopes = self.world.budgets.envelopes
        run_keys: set[RunKey] = set()
        for entry in self._journal if self.world.promise_order else ():
            if isinstance(entry, ActionBegun) and entry.action.kind in REQUEUES:
                run_keys.add(entry.action.run_key)
            elif isinstance(entry, ActionBegun) and entry.action.kind == "Confirm":
                for lease in entry.run.leases.values():
                    run_keys.update(promises_affected_by(self.world, lease))
            elif isinstance(entry, ActionBegun) and entry.action.kind == "Move" and entry.action.promise:
                domains = self.world.fleet.flavor(entry.action.promise.flavor).domains
                for name, _ in entry.action.promise.domain_gpus:
                    run_keys.update(domains[name].promises if name in domains else ())
                for key, _ in entry.action.promise.funding:
                    run_keys.update(envelopes[key].promises if key in envelopes else ())
                run_keys.update(self._under_quota(entry.action.run_key))
                for lease in entry.run.leases.values():  # interim work goes on until its promise is due
                    run_keys.update(promises_affected_by(self.world, lease))
            elif isinstance(entry, LeaseOpened):
                run_keys.update(promises_affected_by(self.world, entry.lease))
                run_keys.update(self._under_quota(entry.lease.run_key))
        return run_keys

    def _under_quota(self, run_key: RunKey) -> Iterator[RunKey]:
        """Runs with a promise that share a quota with this one."""
        run, run_graph = self.world.runs[run_key], self.world.run_graph
        for tree in run_graph.trees_of(run) if run.quotas else ():
            yield from (
                run_below.key for run_below in run_graph.descendants(tree) if run_below.promise is not None
            )

    def causes(self, checkpoint: int = 0) -> dict[RunKey, Cause]:
        """The cause of the last action on each Run since the checkpoint."""
        actions = (entry.action for entry in self._journal[checkpoint:] if isinstance(entry, ActionBegun))
        return {action.run_key: action.cause for action in actions}

    def actions(self) -> list[Action]:
        """The journal as actions, in the order in which they began.

        A lease that one action opened and closed is left out.
        """
        begun: list[tuple[Action, list[LeaseClosing], list[GpuLease]]] = []
        latest: dict[RunKey, int] = {}
        for entry in self._journal:
            if isinstance(entry, ActionBegun):
                latest[entry.action.run_key] = len(begun)
                begun.append((entry.action, [], []))
            elif isinstance(entry, LeaseOpened):
                begun[latest[entry.lease.run_key]][2].append(entry.lease)
            else:
                lease = entry.posted.lease
                _, closes, opens = begun[latest[lease.run_key]]
                if lease in opens:
                    opens.remove(lease)
                else:
                    closes.append(LeaseClosing(lease.name, entry.at, entry.reason))
        return [
            msgspec.structs.replace(action, closes=tuple(closes), opens=tuple(opens))
            for action, closes, opens in begun
        ]


def promises_affected_by(world: World, lease: GpuLease) -> Iterator[RunKey]:
    """Runs with a promise that this lease may break, by its slots or by its charge.

    A lease that is certain to end before a promise is due affects only hours. Provisional work does not
    affect the promises that it yields to. A lease ends with its payer's window, but its Run then keeps the
    slots. Opportunistic work affects no promise.
    """
    posted, envelope = world.posted_leases.get(lease.name), world.budgets.envelopes[lease.payer]
    domains = world.fleet.domain_by_node
    run = world.runs[lease.run_key]
    since = run.provisional_since
    if not envelope.limited_by_concurrency_only or lease.class_ == "Borrowed":
        yield from (
            reservation.promise.run_key
            for sharing in envelope.sharing_a_cap
            for reservation in sharing.dated_reservations
        )
    elif lease.charge:
        paid_until = FOREVER if posted is None or posted.known_end is None else posted.known_end
        for reservation in envelope.dated_reservations if since is None else envelope.dated_after(since):
            if reservation.at < paid_until:
                yield reservation.promise.run_key
    end = FOREVER if run.known_end is None else run.known_end
    for domain in {domains[node] for node, _ in lease.slots if node in domains}:
        for run_key, promise in domain.promises.items() if lease.role != "Opportunistic" else ():
            if promise.begins_before(end) and not run.is_provisional_to(promise.precedence):
                yield run_key
