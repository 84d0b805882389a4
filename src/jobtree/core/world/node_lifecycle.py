"""The ground: nodes come, change, fail and go while leases stand on them.

A node has failed if it is deleted, out of service, or not Ready for longer than the grace (F2); and for a
lease, if another node came under its name. Whatever happens to a node, its leases stay open until a plan
closes them: so it is remembered where a deleted node was, and which leases stood on one that was replaced.
A node whose device plugin is silent still has its GPUs, as long as leases stand on them.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from jobtree.api.kubernetes.node import Node
from jobtree.core.model.gpu_lease import GpuLease
from jobtree.core.supply.domain import Domain

if TYPE_CHECKING:
    from jobtree.core.world.world import World


class NodeLifecycle:
    def __init__(self, world: "World") -> None:
        self._world = world
        self._replaced: dict[str, set[str]] = {}  # leases that stood on a node which came anew under its name
        self._gone: dict[str, tuple[str, str]] = {}  # flavor and domain of deleted nodes that leases stand on
        self._doubtful: dict[str, None] = {}  # nodes that are not Ready, and have not failed yet

    def put(self, node: Node) -> None:
        """A node came or changed. Under its name, but with another UID, it is another node."""
        world = self._world
        node = self._with_leased_gpus(node)
        self.drop(node.name)
        if not node.gpus:
            return
        domain = world.fleet.add(node).domain
        world.date_search_generation += 1
        if len(domain.nodes) == 1:
            world.promise_index.index_domain(domain)
        world.foreign_pods.add_to_node(node.name)
        world.open_leases.occupy_node(node.name, 1)
        if self.has_failed(node.name):
            self._record_failure(node.name)
        elif node.not_ready_since_ms is not None:
            self._doubtful[node.name] = None
            world.timers.schedule_node(node.name)
        world.fleet.flavor(domain.flavor).reconsider_generation += 1

    def _with_leased_gpus(self, node: Node) -> Node:
        """The node as the leases on it have it: perhaps replaced, perhaps with a silent plugin."""
        known = self._world.fleet.nodes.get(node.name)
        leases = self._world.leases_by_node.get(node.name)
        if known is None or not leases:
            return node
        if known.node.uid != node.uid:
            self._replaced.setdefault(node.name, set()).update(leases)
        elif not node.gpus:  # that is not yet a failure
            return msgspec.structs.replace(node, gpus=known.node.gpus, cordoned=True)
        return node

    def drop(self, name: str, uid: str = "") -> None:
        """The node is gone; with a UID, only if that very node is the one that is known."""
        world = self._world
        known = world.fleet.nodes.get(name)
        if known is None or (uid and known.node.uid != uid):
            return
        world.open_leases.occupy_node(name, -1)
        self._recheck_runs(name)
        world.domains_that_shrank.add(known.domain.name)
        if name in world.leases_by_node:
            self._gone[name] = (known.domain.flavor, known.domain.name)
        world.fleet.remove(name)
        world.nodes_to_cordon.pop(name, None)
        self._doubtful.pop(name, None)
        world.recheck_all_promises = True

    def has_failed(self, name: str, lease: str = "") -> bool:
        """Deleted, out of service, or not Ready for too long (F2); or not the node this lease stood on."""
        state = self._world.fleet.nodes.get(name)
        if state is None or state.node.failed or lease in self._replaced.get(name, ()):
            return True
        since = state.node.not_ready_since_ms
        return since is not None and since + self._world.policy.node_grace_ms <= self._world.now

    def deleted_domains(self, lease: GpuLease) -> Iterator[Domain]:
        """Domains of deleted nodes that a lease stands on."""
        for node, _ in lease.slots:
            flavor, name = self._gone.get(node, ("", ""))
            domain = self._world.fleet.flavor(flavor).domains.get(name) if flavor else None
            if domain is not None:
                yield domain

    def fail_overdue(self) -> None:
        """The clock moved: nodes whose grace is over have failed."""
        for name in [name for name in self._doubtful if self.has_failed(name)]:
            del self._doubtful[name]
            self._record_failure(name)
            self._world.recheck_all_promises = True

    def _record_failure(self, name: str) -> None:
        """Runs on this node must go on elsewhere; nothing new is placed there until it is healed (F3)."""
        self._recheck_runs(name)
        nodes = self._world.fleet.nodes
        if name in nodes and not nodes[name].node.cordoned:
            self._world.nodes_to_cordon[name] = None

    def _recheck_runs(self, name: str) -> None:
        held = self._world.posted_leases
        self._world.runs_to_check.update(
            held[lease].lease.run_key for lease in self._world.leases_by_node.get(name, ())
        )

    def forget_closed(self) -> None:
        """A plan was carried out: only what still stands there needs to know what was."""
        held, by_node = self._world.posted_leases, self._world.leases_by_node
        self._replaced = {
            node: still for node, names in self._replaced.items() if (still := names & held.keys())
        }
        self._gone = {node: where for node, where in self._gone.items() if node in by_node}
