"""Handles nodes that are added, replaced or removed, or that fail, while leases are open on them.

A node has failed if it is deleted, out of service, or not Ready for longer than the grace (F2), unless the
breaker holds it (F2c). For a lease it has also failed if another node replaced it under the same name. The
leases of a failed node stay open until a plan closes them, so this module keeps the domain of a deleted node
and the leases of a replaced one.
A node whose device plugin reports no GPUs keeps its GPUs as long as leases are open on it.
"""

from collections.abc import Iterator

import msgspec

from jobtree.api.kubernetes.node import Node
from jobtree.core.model.gpu_lease import GpuLease
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.domain import Domain
from jobtree.core.supply.fleet import Fleet
from jobtree.core.world.node_breaker import NodeBreaker
from jobtree.core.world.open_leases import OpenLeases
from jobtree.core.world.pending_changes import PendingChanges
from jobtree.core.world.timers import TimerQueue


class NodeLifecycle:
    def __init__(
        self, fleet: Fleet, open_leases: OpenLeases, timers: TimerQueue, changes: PendingChanges
    ) -> None:
        self._fleet = fleet
        self._open_leases = open_leases
        self._timers = timers
        self._changes = changes
        self._replaced_leases: dict[str, set[str]] = {}  # leases on a node that was replaced, by its name
        self._deleted: dict[str, tuple[str, str]] = {}  # flavor and domain of deleted nodes with open leases
        self._not_ready: dict[str, bool] = {}  # nodes that are not Ready; whether their failure is recorded
        self._breaker = NodeBreaker(fleet)

    def put(self, node: Node) -> Domain | None:
        """Adds or replaces a node, and returns its domain; None for a node without GPUs."""
        node = self._with_leased_gpus(node)
        self.drop(node.name)
        if not node.gpus:
            return None
        domain = self._fleet.add(node)
        self._breaker.change(node, 1)
        self._changes.date_search_generation += 1
        self._open_leases.occupy_node(node.name, 1)
        failed = self.has_failed(node.name)
        if failed:
            self._record_failure(node.name)
        if node.not_ready_since_ms is not None:
            self._not_ready[node.name] = failed
        self._timers.schedule_node(node.name)
        self._fleet.flavor(domain.flavor).reconsider_generation += 1
        return domain

    def _with_leased_gpus(self, node: Node) -> Node:
        """Returns the node, with its previous GPUs if it reports none while leases are open on it."""
        previous = self._fleet.nodes.get(node.name)
        leases = self._open_leases.by_node.get(node.name)
        if previous is None or not leases:
            return node
        if previous.node.uid != node.uid:
            self._replaced_leases.setdefault(node.name, set()).update(leases)
        elif not node.gpus:  # that alone is not a failure
            return msgspec.structs.replace(node, gpus=previous.node.gpus, cordoned=True)
        return node

    def drop(self, name: str, uid: str = "") -> None:
        """Removes a deleted node; with a UID, only if the present node of that name has it."""
        node_slots = self._fleet.nodes.get(name)
        if node_slots is None or (uid and node_slots.node.uid != uid):
            return
        domain = self._fleet.domain_by_node[name]
        self._open_leases.occupy_node(name, -1)
        self._recheck_runs(name)
        self._changes.domains_that_shrank.add(domain.name)
        self._changes.check_promises(domain.promises)
        if name in self._open_leases.by_node:
            self._deleted[name] = (domain.flavor, domain.name)
        self._breaker.change(node_slots.node, -1)
        self._fleet.remove(name)
        self._changes.nodes_to_cordon.pop(name, None)
        self._not_ready.pop(name, None)

    def has_failed(self, name: str, lease: str = "") -> bool:
        """Whether a node has failed (F2), or was replaced since the lease of that name opened on it."""
        node_slots = self._fleet.nodes.get(name)
        if node_slots is None or node_slots.node.failed or lease in self._replaced_leases.get(name, ()):
            return True
        at = None if node_slots.node.not_ready_since_ms is None else self._fleet.grace_end(name)
        return at is not None and at <= self._timers.now and not self.is_held(name)

    def is_held(self, name: str) -> bool:
        """Whether the breaker holds a node: it is not Ready, but does not fail (F2c)."""
        node_slots = self._fleet.nodes.get(name)
        return node_slots is not None and self._breaker.holds(node_slots.node, self._timers.now)

    def held_nodes(self) -> tuple[str, ...]:
        """Returns the names of the nodes that the breaker holds, sorted."""
        return tuple(name for name in sorted(self._not_ready) if self.is_held(name))

    def failed_nodes(self) -> frozenset[str]:
        """Returns the names of the nodes that have failed and still exist."""
        return frozenset(name for name in self._not_ready if self.has_failed(name))

    def recheck_if_on_failed_node(self, run: RunState) -> None:
        """Has the next plan check a Run that has leases on a node that failed or has not been read yet."""
        if any(self.has_failed(node, lease.name) for lease in run.leases.values() for node, _ in lease.slots):
            self._changes.runs_to_check.add(run.key)

    def deleted_domains(self, lease: GpuLease) -> Iterator[Domain]:
        """Yields the domains of deleted nodes that a lease is on."""
        for node, _ in lease.slots:
            flavor, name = self._deleted.get(node, ("", ""))
            domain = self._fleet.flavor(flavor).domains.get(name) if flavor else None
            if domain is not None:
                yield domain

    def fail_overdue(self) -> None:
        """Records the failure of nodes whose grace is over, when the clock has advanced."""
        for name, recorded in list(self._not_ready.items()):
            failed = self._not_ready[name] = self.has_failed(name)
            if failed and not recorded:
                self._record_failure(name)
                self._changes.check_promises(self._fleet.domain_by_node[name].promises)

    def _record_failure(self, name: str) -> None:
        """Has the next plan move Runs off a failed node and cordon it until it is repaired (F3)."""
        self._recheck_runs(name)
        nodes = self._fleet.nodes
        if name in nodes and not nodes[name].node.cordoned:
            self._changes.nodes_to_cordon[name] = None

    def _recheck_runs(self, name: str) -> None:
        posted = self._open_leases.posted
        self._changes.runs_to_check.update(
            posted[lease].lease.run_key for lease in self._open_leases.by_node.get(name, ())
        )

    def forget_closed(self) -> None:
        """Forgets replaced and deleted nodes on which no lease is open any more."""
        posted, by_node = self._open_leases.posted, self._open_leases.by_node
        self._replaced_leases = {
            node: still_open
            for node, leases in self._replaced_leases.items()
            if (still_open := leases & posted.keys())
        }
        self._deleted = {node: place for node, place in self._deleted.items() if node in by_node}
