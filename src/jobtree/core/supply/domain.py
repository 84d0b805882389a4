"""A domain: an island of fast interconnect, with its nodes in buckets by free GPUs.

Each bucket is sorted by name, and mended when a slot changes hands; nothing is ever rebuilt. Answers about a
domain are remembered until something in it changes: about free slots until a slot does
(``invalidate_free_slots``), about who may stand where until a node does (``invalidate_nodes``), about what
ends when until a Run, a promise or a payer does (``invalidate_profiles``). A trial that takes a change back
brings the answers of before it back too (``cache_snapshot``, ``restore_cache``): so what is remembered is
replaced, never emptied.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Any, NamedTuple

from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.promise import Promise
from jobtree.core.supply.node_slots import NodeSlots, PodDemand

NodeChoice = tuple[int, int, list[str]]  # free GPUs, pods that fit, nodes by name
ProfileCache = dict[tuple[object, ...], Any]
CacheSnapshot = tuple[
    "GpuCounts | None", dict[PodDemand, int], dict[PodDemand, list[NodeChoice]], ProfileCache, ProfileCache
]


class GpuCounts(NamedTuple):
    """GPUs of a domain, counted."""

    total: int
    leased: int  # Active or Opportunistic
    spare: int
    lent: int  # both: opportunistic work on a spare's slots
    foreign: int


class Domain:
    """An island of fast interconnect, for one flavor."""

    __slots__ = (
        "_admitted",
        "_census",
        "_options",
        "_placeable",
        "_usable",
        "buckets",
        "capacity",
        "feasibility_checks",
        "fit_indexes",
        "flavor",
        "free",
        "in_use",
        "lease_occupancies",
        "name",
        "nodes",
        "occupancy_views",
        "opportunistic_slots",
        "profiles",
        "promises",
    )

    def __init__(self, name: str, flavor: str, skylines: dict[tuple[object, ...], Any]) -> None:
        self.name = name
        self.flavor = flavor
        self.fit_indexes = skylines  # its flavor's
        self.nodes: dict[str, NodeSlots] = {}
        self.buckets: list[list[str]] = [[]]  # by free GPUs, sorted by name
        self.free = 0
        self.capacity = 0  # GPUs of nodes that are not failed
        self.in_use = 0  # slots under lease
        self.opportunistic_slots = 0  # of them under Opportunistic leases
        self.promises: dict[RunKey, Promise] = {}  # that count on this domain
        self.profiles: ProfileCache = {}  # remembered by horizon
        self.occupancy_views: ProfileCache = {}  # who occupies which nodes until when
        self.lease_occupancies: dict[str, Any] = {}  # by lease; not invalidated when others come and go
        self.feasibility_checks: dict[tuple[object, ...], Any] = {}  # until a promise here changes
        self._census: GpuCounts | None = None
        self._placeable: dict[PodDemand, int] = {}
        self._options: dict[PodDemand, list[NodeChoice]] = {}
        self._admitted: dict[tuple[object, ...], frozenset[str] | None] = {}
        self._usable: dict[tuple[object, ...], tuple[str, ...]] = {}

    def admitted_nodes(self, demand: PodDemand) -> frozenset[str] | None:
        """Names of the nodes where such a pod may stand and be paid; None means all of them."""
        key = (demand.tolerations, demand.node_selector, demand.payer_selectors)
        if key not in self._admitted:
            names = frozenset(name for name, state in self.nodes.items() if demand.admits(state.node))
            self._admitted[key] = None if len(names) == len(self.nodes) else names
        return self._admitted[key]

    def placeable(self, demand: PodDemand) -> int:
        """How many such pods fit here now (P2)."""
        known = self._placeable.get(demand)
        if known is None:
            known = self._placeable[demand] = self._count(demand)
        return known

    def _count(self, demand: PodDemand) -> int:
        if demand.asks_only_gpus and self.admitted_nodes(demand) is None:
            return self.max_pods_of_size(demand.size)
        return sum([pods * len(names) for _, pods, names in self.node_choices(demand)])

    def node_choices(self, demand: PodDemand) -> list[NodeChoice]:
        """The nodes that could take such a pod, grouped by free GPUs and by pods that fit."""
        known = self._options.get(demand)
        if known is None:
            known = self._options[demand] = self._group(demand)
        return known

    def _group(self, demand: PodDemand) -> list[NodeChoice]:
        names, size, buckets = self.admitted_nodes(demand), demand.size, self.buckets
        if demand.asks_only_gpus and names is None:
            return [
                (free, free // size, buckets[free]) for free in range(size, len(buckets)) if buckets[free]
            ]
        grouped: dict[tuple[int, int], list[str]] = {}
        for bucket in buckets[0 if demand.may_use_spares else size :]:
            for name in bucket:
                if names is None or name in names:
                    state = self.nodes[name]
                    pods = state.pod_capacity(demand)
                    free = state.free + (state.free_spare_mask.bit_count() if demand.may_use_spares else 0)
                    if pods:
                        grouped.setdefault((free, pods), []).append(name)
        return [(free, pods, sorted(found)) for (free, pods), found in sorted(grouped.items())]

    def max_pods_of_size(self, size: int) -> int:
        """Pods of that size that fit here now, if they may stand on every node."""
        return sum([len(names) * (free // size) for free, names in enumerate(self.buckets) if names])

    def max_pods(self, demand: PodDemand) -> int:
        """At most so many such pods fit here, whatever else stands in their way."""
        return (self.capacity if demand.may_use_spares else self.free) // demand.size

    def capacity_pods(self, demand: PodDemand) -> int:
        """Pods that would fit if nothing ran here: what the domain could ever hold."""
        names = self.admitted_nodes(demand)
        return sum(
            self.nodes[name].node.gpus // demand.size
            for name in (self.nodes if names is None else names)
            if not self.nodes[name].node.failed
        )

    def usable_node_names(self, demand: PodDemand) -> tuple[str, ...]:
        """Nodes where such a pod could stand, by name."""
        key = (demand.size, demand.tolerations, demand.node_selector, demand.payer_selectors)
        known = self._usable.get(key)
        if known is None:
            names = self.admitted_nodes(demand)
            states = (self.nodes[name] for name in (self.nodes if names is None else names))
            found = (one.node.name for one in states if one.is_schedulable and one.node.gpus >= demand.size)
            known = self._usable[key] = tuple(sorted(found))
        return known

    def gpu_counts(self) -> GpuCounts:
        """Who uses how much; counted again only after something changed here."""
        if self._census is None:
            states = self.nodes.values()
            self._census = GpuCounts(
                total=sum(state.node.gpus for state in states),
                leased=sum(state.leased.bit_count() for state in states),
                spare=sum(state.spare.bit_count() for state in states),
                lent=sum((state.spare & state.leased).bit_count() for state in states),
                foreign=sum(min(state.foreign, state.free_mask.bit_count()) for state in states),
            )
        return self._census

    def invalidate_free_slots(self) -> None:
        """Something here changed: answers remembered about free slots no longer hold."""
        self._census = None
        self._placeable = {}
        self._options = {}
        self._invalidate_occupancy()

    def _invalidate_occupancy(self) -> None:
        self.profiles = {}
        self.occupancy_views = {}
        self.fit_indexes.clear()

    def invalidate_profiles(self) -> None:
        """Who will be gone from here when is no longer what it was, of those who stay, too."""
        self._invalidate_occupancy()
        self.lease_occupancies = {}
        self.feasibility_checks = {}

    def cache_snapshot(self) -> CacheSnapshot:
        """What is remembered, before a change that may be taken back."""
        return self._census, self._placeable, self._options, self.profiles, self.occupancy_views

    def restore_cache(self, memory: CacheSnapshot) -> None:
        """All is again as it was when these answers were remembered."""
        self._census, self._placeable, self._options, self.profiles, self.occupancy_views = memory

    def invalidate_nodes(self) -> None:
        self.invalidate_free_slots()
        self.invalidate_profiles()
        self._admitted.clear()
        self._usable.clear()

    def recount(self, state: NodeSlots) -> None:
        """One of its nodes changed: put it in the bucket of its present free count."""
        before = state.free
        state.recount()
        after = state.free
        if before != after:
            name, bucket = state.node.name, self.buckets[before]
            del bucket[bisect_left(bucket, name)]
            insort(self.buckets[after], name)
            self.free += after - before

    def add_to_bucket(self, state: NodeSlots) -> None:
        while len(self.buckets) <= state.node.gpus:
            self.buckets.append([])
        insort(self.buckets[state.free], state.node.name)


def total_placeable(domains: Iterable[Domain], demand: PodDemand) -> int:
    return sum(domain.placeable(demand) for domain in domains)
