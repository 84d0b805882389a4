"""Holds all nodes, domains and flavors, and applies node and slot changes to them.

Each change updates only what it touches: the counts of the node, its bucket in the domain, and the entry of
the domain in the pack order of its flavor.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import NamedTuple

from jobtree.api.kubernetes.node import Node
from jobtree.api.kubernetes.node_resources import Resources
from jobtree.core.model.gpu_lease import GpuLease, Slots
from jobtree.core.supply.domain import Domain
from jobtree.core.supply.flavor_pool import FlavorPool
from jobtree.core.supply.node_slots import NodeSlots


class PodLoad(NamedTuple):
    """What one pod uses of a node; CPU in thousandths, memory in bytes."""

    size: int  # GPUs
    cpu_milli: int = 0
    memory_bytes: int = 0
    others: Resources = ()

    @property
    def uses_more_than_gpus(self) -> bool:
        return bool(self.cpu_milli or self.memory_bytes or self.others)


class Fleet:
    """All nodes by name, and their flavors and domains."""

    def __init__(self, node_grace_ms: int = 0) -> None:
        self.node_grace_ms = node_grace_ms  # how long a node may not be Ready before it has failed (F2)
        self.nodes: dict[str, NodeSlots] = {}
        self.domain_by_node: dict[str, Domain] = {}
        self.flavors: dict[str, FlavorPool] = {}

    def flavor(self, name: str) -> FlavorPool:
        flavor = self.flavors.get(name)
        if flavor is None:
            flavor = self.flavors[name] = FlavorPool(name)
        return flavor

    def grace_end(self, name: str) -> int | None:
        """Returns when a node was NotReady (F2), or Ready again (F2c), for its grace; None without a date."""
        slots = self.nodes.get(name)
        if slots is None:
            return None
        lost = slots.node.not_ready_since_ms
        since = slots.node.ready_since_ms if lost is None else lost
        return None if since is None else since + self.node_grace_ms

    def add(self, node: Node) -> Domain:
        """Adds a node with all slots free, and returns its domain.

        The caller then takes the slots of open leases.
        """
        flavor = self.flavor(node.flavor)
        domain_name = str(node.domain)
        domain = flavor.domains.get(domain_name)
        if domain is None:
            domain = flavor.domains[domain_name] = Domain(domain_name, node.flavor)
            insort(flavor.packing_order, (1, 0, domain.name))
        state = self.nodes[node.name] = NodeSlots(node)
        self.domain_by_node[node.name] = domain
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
        return domain

    def remove(self, name: str) -> None:
        """Removes a node; the caller has released the slots of its leases."""
        state = self.nodes.pop(name)
        domain = self.domain_by_node.pop(name)
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

    def take_slots(self, slots: Slots, role: str, load: PodLoad) -> None:
        """Takes slots in that role, with what each of their pods uses besides GPUs."""
        self._lease(slots, role, load, 1)

    def release_slots(self, slots: Slots, role: str, load: PodLoad) -> None:
        """The exact inverse of ``take_slots``."""
        self._lease(slots, role, load, -1)

    def add_foreign_load(self, name: str, load: PodLoad, sign: int) -> None:
        """Adds what a foreign pod uses of a node; with sign -1, removes it."""
        state = self.nodes.get(name)
        if state is None:
            return
        domain = self.domain_by_node[name]
        flavor = self.flavors[domain.flavor]
        entry = self._entry(domain)
        state.foreign += sign * load.size
        state.cpu -= sign * load.cpu_milli
        state.memory -= sign * load.memory_bytes
        state.use_others(load.others, sign)
        domain.recount(state)
        domain.invalidate_free_slots()
        flavor.invalidate_fit()
        self._reorder(flavor, domain, entry)
        flavor.reconsider_generation += 1

    def reconsider_all(self) -> None:
        """Has all waiting Runs reconsidered by the next pass."""
        for flavor in self.flavors.values():
            flavor.reconsider_generation += 1

    def invalidate_profiles(self) -> None:
        """Invalidates all availability profiles, after payers or the policy changed when leases end."""
        for flavor in self.flavors.values():
            for domain in flavor.domains.values():
                domain.invalidate_profiles()
            flavor.invalidate_fit()

    def invalidate_profiles_around(self, leases: Iterable[GpuLease]) -> None:
        """Invalidates the availability profiles of all domains in which these leases have slots."""
        domains = self.domain_by_node
        for domain in {domains[node] for lease in leases for node, _ in lease.slots if node in domains}:
            domain.invalidate_profiles()
            self.flavors[domain.flavor].invalidate_fit()

    def _lease(self, slots: Slots, role: str, load: PodLoad, sign: int) -> None:
        nodes, domains = self.nodes, self.domain_by_node
        touched: dict[Domain, tuple[int, int, str]] = {}
        for name, mask in slots:
            state = nodes.get(name)
            if state is None:
                continue  # the node is gone; its leases are closed by the next plan
            domain = domains[name]
            if domain not in touched:
                touched[domain] = self._entry(domain)
            gpus = mask.bit_count()
            if load.uses_more_than_gpus:
                pods = sign * -(-gpus // load.size)
                state.cpu -= load.cpu_milli * pods
                state.memory -= load.memory_bytes * pods
                state.use_others(load.others, pods)
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
            domain = self.domain_by_node.get(name)
            if domain is None:
                continue
            flavor = self.flavors[domain.flavor]
            if role == "Spare":
                flavor.spare_slots += sign * mask.bit_count()
            else:
                flavor.opportunistic_slots += sign * mask.bit_count()
                domain.opportunistic_slots += sign * mask.bit_count()

    def _entry(self, domain: Domain) -> tuple[int, int, str]:
        return (0 if domain.in_use else 1, domain.free, domain.name)

    def _reorder(self, flavor: FlavorPool, domain: Domain, before: tuple[int, int, str]) -> None:
        after = self._entry(domain)
        if after != before:
            del flavor.packing_order[bisect_left(flavor.packing_order, before)]
            insort(flavor.packing_order, after)
            flavor.free += after[1] - before[1]
