"""The fleet: all nodes by name, their flavors and domains, changed by events.

A node comes or goes, slots go under lease or are given back, other people's pods come and go. Each event
mends what it touches: the node's counts, its place in its domain's buckets, the domain's place in its
flavor's pack order. So a question costs what it asks about.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable

from jobtree.api.kubernetes.node import Node
from jobtree.core.model.gpu_lease import GpuLease, Slots
from jobtree.core.supply.domain import Domain
from jobtree.core.supply.flavor_pool import FlavorPool
from jobtree.core.supply.node_slots import NodeSlots


class Fleet:
    """All nodes, by name, and their flavors and domains."""

    def __init__(self, node_grace_ms: int = 0) -> None:
        self.node_grace_ms = node_grace_ms  # how long a node may not be Ready before it has failed (F2)
        self.nodes: dict[str, NodeSlots] = {}
        self.flavors: dict[str, FlavorPool] = {}

    def flavor(self, name: str) -> FlavorPool:
        found = self.flavors.get(name)
        if found is None:
            found = self.flavors[name] = FlavorPool(name)
        return found

    def failure_instant(self, name: str) -> int | None:
        """Returns when a node that is not Ready fails (F2); None for a node that is Ready, or gone."""
        slots = self.nodes.get(name)
        since = None if slots is None else slots.node.not_ready_since_ms
        return None if since is None else since + self.node_grace_ms

    def add(self, node: Node) -> NodeSlots:
        """Add a node on which nothing runs yet; the caller leases what is already in use."""
        flavor = self.flavor(node.flavor)
        where = str(node.domain)
        domain = flavor.domains.get(where)
        if domain is None:
            domain = flavor.domains[where] = Domain(where, node.flavor)
            insort(flavor.packing_order, (1, 0, domain.name))
        state = self.nodes[node.name] = NodeSlots(node, domain)
        before = self._entry(domain)
        domain.nodes[node.name] = state
        domain.add_to_bucket(state)
        domain.free += state.free
        domain.capacity += 0 if node.failed else node.gpus
        domain.invalidate_nodes()
        flavor.invalidate_fit()
        self._reorder(flavor, domain, before)
        flavor.count_node(node.gpus, 1)
        flavor.reconsider_generation += 1
        return state

    def remove(self, name: str) -> None:
        """Remove a node whose leases were released before."""
        state = self.nodes.pop(name)
        domain = state.domain
        flavor = self.flavors[domain.flavor]
        before = self._entry(domain)
        bucket = domain.buckets[state.free]
        del bucket[bisect_left(bucket, name)]
        del domain.nodes[name]
        domain.free -= state.free
        domain.capacity -= 0 if state.node.failed else state.node.gpus
        domain.invalidate_nodes()
        flavor.invalidate_fit()
        self._reorder(flavor, domain, before)
        if not domain.nodes:
            del flavor.domains[domain.name]
            flavor.packing_order.remove(self._entry(domain))
        flavor.count_node(state.node.gpus, -1)

    def take_slots(self, slots: Slots, role: str, cpu: int, memory: int, size: int) -> None:
        """Slots go under lease; cpu and memory are what one pod of ``size`` GPUs takes besides."""
        self._lease(slots, role, (cpu, memory, size), 1)

    def release_slots(self, slots: Slots, role: str, cpu: int, memory: int, size: int) -> None:
        """The exact inverse of occupy."""
        self._lease(slots, role, (cpu, memory, size), -1)

    def add_foreign_load(self, name: str, gpus: int, cpu: int, memory: int) -> None:
        """A pod that is not Jobtree's came (or went, with negative figures)."""
        state = self.nodes.get(name)
        if state is None:
            return
        flavor = self.flavors[state.domain.flavor]
        entry = self._entry(state.domain)
        state.foreign += gpus
        state.cpu -= cpu
        state.memory -= memory
        state.domain.recount(state)
        state.domain.invalidate_free_slots()
        flavor.invalidate_fit()
        self._reorder(flavor, state.domain, entry)
        flavor.reconsider_generation += 1

    def reconsider_all(self) -> None:
        """Anybody who waits might be able to start now."""
        for flavor in self.flavors.values():
            flavor.reconsider_generation += 1

    def invalidate_profiles(self) -> None:
        """Who can pay until when, or what the policy says, changed: so did what is certain to end."""
        for flavor in self.flavors.values():
            for domain in flavor.domains.values():
                domain.invalidate_profiles()
            flavor.invalidate_fit()

    def invalidate_profiles_around(self, leases: Iterable[GpuLease]) -> None:
        """Something about a Run changed that horizons of all domains where it holds leases depend on."""
        nodes = self.nodes
        domains = {nodes[node].domain for lease in leases for node, _ in lease.slots if node in nodes}
        for domain in domains:
            domain.invalidate_profiles()
            self.flavors[domain.flavor].invalidate_fit()

    def _lease(self, slots: Slots, role: str, load: tuple[int, int, int], sign: int) -> None:
        cpu, memory, size = load
        touched: dict[Domain, tuple[int, int, str]] = {}
        for name, mask in slots:
            state = self.nodes.get(name)
            if state is None:
                continue  # the node is gone; its leases are closed by the next plan
            domain = state.domain
            if domain not in touched:
                touched[domain] = self._entry(domain)
            gpus = mask.bit_count()
            if cpu or memory:
                pods = sign * -(-gpus // size)
                state.cpu -= cpu * pods
                state.memory -= memory * pods
            state.set_slots(mask, role, sign)
            domain.recount(state)
            domain.in_use += sign * gpus
        for domain, entry in touched.items():
            domain.invalidate_free_slots()
            flavor = self.flavors[domain.flavor]
            flavor.invalidate_fit()
            self._reorder(flavor, domain, entry)
        if role != "Active":
            self._count_roles(slots, role, sign)

    def _count_roles(self, slots: Slots, role: str, sign: int) -> None:
        for name, mask in slots:
            state = self.nodes.get(name)
            if state is None:
                continue
            flavor = self.flavors[state.domain.flavor]
            if role == "Spare":
                flavor.spare_slots += sign * mask.bit_count()
            else:
                flavor.opportunistic_slots += sign * mask.bit_count()
                state.domain.opportunistic_slots += sign * mask.bit_count()

    def _entry(self, domain: Domain) -> tuple[int, int, str]:
        return (0 if domain.in_use else 1, domain.free, domain.name)

    def _reorder(self, flavor: FlavorPool, domain: Domain, before: tuple[int, int, str]) -> None:
        after = self._entry(domain)
        if after != before:
            del flavor.packing_order[bisect_left(flavor.packing_order, before)]
            insort(flavor.packing_order, after)
            flavor.free += after[1] - before[1]
