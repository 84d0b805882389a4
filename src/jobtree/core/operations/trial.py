"""A trial: changes tried on the world, taken back to any mark, and read off as actions at the end.

``begin_action`` says what happens to a Run and why; the leases of that Run which open and close afterwards
belong to it. So no lease ever changes without a cause.

The versions of domains and envelopes are saved with each lease that opens or closes and restored by a
rollback: the answers that were cached before are valid again.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from jobtree.api.kinds.lease import ClosureReason, LeaseClass, OpenReason, Role
from jobtree.core.accounts.envelope_accounts import FOREVER, EnvelopeState
from jobtree.core.model.actions import Action, LeaseClosing
from jobtree.core.model.gpu_lease import GpuLease, RunKey, Slots, count_slots
from jobtree.core.model.outcomes import REQUEUES, ActionKind
from jobtree.core.model.promise import Promise
from jobtree.core.model.reasons import Cause
from jobtree.core.model.versioned_cache import SavedVersions
from jobtree.core.runs.run_state import RunState, SavedRunState
from jobtree.core.supply.domain import Domain
from jobtree.core.world.open_leases import PostedLease
from jobtree.core.world.run_transitions import apply_transition, undo_transition
from jobtree.core.world.world import World


class LeaseTerms(msgspec.Struct, frozen=True, eq=False):
    """Who pays for a group's slots, as what, and what the slots are for."""

    envelope: EnvelopeState
    class_: LeaseClass
    role: Role
    group: int


VersionsBefore = list[tuple[Domain | EnvelopeState, SavedVersions]]


class LeaseOpened(msgspec.Struct, frozen=True):
    lease: GpuLease
    versions: VersionsBefore


class LeaseClosed(msgspec.Struct, frozen=True):
    held: PostedLease
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
        self._settles: list[int] = []  # where in it Runs settle on what they were promised

    def checkpoint(self) -> int:
        return len(self._journal)

    def rollback(self, mark: int = 0) -> None:
        """Undo everything since the mark, newest first."""
        journal, world = self._journal, self.world
        while self._settles and self._settles[-1] >= mark:
            self._settles.pop()
        while len(journal) > mark:
            entry = journal.pop()
            if isinstance(entry, ActionBegun):
                undo_transition(world, entry.run, entry.before)
                continue
            if isinstance(entry, LeaseOpened):
                world.open_leases.undo_open(entry.lease.name)
                world.runs[entry.lease.run_key].undo_lease_number()
            else:
                world.open_leases.undo_close(entry.held, entry.at)
            for changed, saved in entry.versions:
                changed.restore_versions(saved)

    def open(self, run: RunState, terms: LeaseTerms, slots: Slots, at: int, reason: OpenReason) -> GpuLease:
        """Put slots under lease for a Run."""
        lease = GpuLease(
            name=f"{run.key[1][:200].rstrip('.')}-{run.uid[:8]}-{run.next_lease_number()}",
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
        nodes = self.world.fleet.nodes
        domains = {nodes[node].domain for node, _ in slots if node in nodes}
        versions: VersionsBefore = [(domain, domain.save_versions()) for domain in domains]
        versions.append((envelope, envelope.save_versions()))
        return versions

    def rate(self, role: Role) -> int:
        """What a GPU in that role costs, in thousandths."""
        policy = self.world.policy
        if role == "Active":
            return 1000
        return policy.spare_rate_milli if role == "Spare" else policy.opportunistic_rate_milli

    def close(self, name: str, at: int, reason: ClosureReason) -> GpuLease:
        known = self.world.posted_leases[name]
        versions = self._versions(known.lease.slots, known.envelope)
        held = self.world.open_leases.close(name, at)
        self._journal.append(LeaseClosed(held, versions, at, reason))
        return held.lease

    def begin_action(self, kind: ActionKind, run: RunState, at: int, cause: Cause, **details: Any) -> None:  # noqa: ANN401  fields of Action
        """Begin an action: what opens and closes for this Run from here on is part of it."""
        action = Action(kind, run.key, at, cause, **details)
        if kind == "Confirm":
            self._settles.append(len(self._journal))
        self._journal.append(ActionBegun(run, action, run.save_state()))
        apply_transition(self.world, run, action)

    def has_promised(self, run: RunState, promise: Promise) -> bool:
        """Whether the Run got this promise in this trial, so that nobody knows of it yet."""
        return any(
            isinstance(entry, ActionBegun)
            and entry.run is run
            and entry.action.kind == "Reserve"
            and entry.action.promise is not None
            and entry.action.promise.number == promise.number
            for entry in self._journal
        )

    def confirmed_runs(self) -> set[RunKey]:
        """Runs that were on sufferance, and have got in this trial what they were promised."""
        entries = [self._journal[place] for place in self._settles]
        return {entry.action.run_key for entry in entries if isinstance(entry, ActionBegun)}

    def disturbed_runs(self) -> set[RunKey]:
        """Runs whose promises count on what leases that opened or a promise that moved took a part of.

        That is a domain, an envelope, a cap above it, or the quota of a tree. Who settles has had its leases
        until then, and stays: with other money, perhaps, than its promise counted on.
        """
        envelopes = self.world.budgets.envelopes
        found: set[RunKey] = set()
        for entry in self._journal if self.world.promise_order else ():
            if isinstance(entry, ActionBegun) and entry.action.kind in REQUEUES:
                found.add(entry.action.run_key)
            elif isinstance(entry, ActionBegun) and entry.action.kind == "Confirm":
                for lease in entry.run.leases.values():
                    found.update(promises_affected_by(self.world, lease))
            elif isinstance(entry, ActionBegun) and entry.action.kind == "Move" and entry.action.promise:
                domains = self.world.fleet.flavor(entry.action.promise.flavor).domains
                for name, _ in entry.action.promise.domain_gpus:
                    found.update(domains[name].promises if name in domains else ())
                for key, _ in entry.action.promise.funding:
                    found.update(envelopes[key].promises if key in envelopes else ())
                found.update(self._under_quota(entry.action.run_key))
            elif isinstance(entry, LeaseOpened):
                found.update(promises_affected_by(self.world, entry.lease))
                found.update(self._under_quota(entry.lease.run_key))
        return found

    def freed_domains(self) -> dict[str, Domain]:
        """Domains in which leases closed, by name."""
        nodes = self.world.fleet.nodes
        return {
            nodes[node].domain.name: nodes[node].domain
            for entry in self._journal
            if isinstance(entry, LeaseClosed)
            for node, _ in entry.held.lease.slots
            if node in nodes
        }

    def _under_quota(self, run_key: RunKey) -> Iterator[RunKey]:
        """Promised Runs that share a quota with this one."""
        run, kin = self.world.runs[run_key], self.world.run_graph
        for tree in kin.trees_of(run) if run.quotas else ():
            yield from (one.key for one in kin.descendants(tree) if one.promise is not None)

    def causes(self, mark: int = 0) -> dict[RunKey, Cause]:
        """Every Run that something was done to since the mark, and the cause of the last of it."""
        acts = (entry.action for entry in self._journal[mark:] if isinstance(entry, ActionBegun))
        return {action.run_key: action.cause for action in acts}

    def actions(self) -> list[Action]:
        """The journal as actions, in the order in which they began.

        A lease that an action opened and closed again never was.
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
                lease = entry.held.lease
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
    """Promised Runs that a lease may stand in the way of, by its place or by its money.

    One that is certain to end before a promise is due leaves everything as it was by then, save hours; so
    does provisional work to all whom it yields to. With its payer's window a lease ends as well, but then its
    Run goes on in its place. Unpaid work is in nobody's way.
    """
    held, envelope, nodes = (
        world.posted_leases.get(lease.name),
        world.budgets.envelopes[lease.payer],
        world.fleet.nodes,
    )
    run = world.runs[lease.run_key]
    since = run.provisional_since
    if not envelope.limited_by_concurrency_only or lease.class_ == "Borrowed":
        yield from (
            claim.promise.run_key for one in envelope.sharing_a_cap for claim in one.dated_reservations
        )
    elif lease.charge:
        paid_until = FOREVER if held is None or held.known_end is None else held.known_end
        for claim in envelope.dated_reservations if since is None else envelope.dated_after(since):
            if claim.at < paid_until:
                yield claim.promise.run_key
    end = FOREVER if run.known_end is None else run.known_end
    for domain in {nodes[node].domain for node, _ in lease.slots if node in nodes}:
        for run_key, promise in domain.promises.items() if lease.role != "Opportunistic" else ():
            if promise.begins_before(end) and not run.is_provisional_to(promise.precedence):
                yield run_key
