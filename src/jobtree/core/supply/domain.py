"""A domain: the nodes of one island of fast interconnect, in buckets by free GPUs.

Each bucket is sorted by name and updated when slots are leased or released. Answers about a domain are cached
by version (``versioned_cache``): each kind of change replaces those versions whose answers it makes wrong.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.promise import Promise
from jobtree.core.model.versioned_cache import SavedVersions, Version, VersionedCache
from jobtree.core.supply.node_slots import NodeSlots, PodDemand

NodeChoice = tuple[int, int, list[str]]  # free GPUs, pods that fit, nodes by name
MAX_EARLIER_PROMISES = 4  # earlier sets of promises that get their version back when they return


class GpuCounts(NamedTuple):
    """The GPUs of a domain, by use."""

    total: int
    leased: int  # Active or Opportunistic
    spare: int
    lent: int  # both leased and spare: opportunistic work on a spare's slots
    foreign: int


GPU_COUNTS = VersionedCache[None, GpuCounts]()
PLACEABLE = VersionedCache[PodDemand, int]()
NODE_CHOICES = VersionedCache[PodDemand, list[NodeChoice]]()


class Domain:
    """An island of fast interconnect, for one flavor."""

    __slots__ = (
        "_admitted",
        "_earlier_promises",
        "_promise_changes",
        "_usable",
        "buckets",
        "capacity",
        "feasibility_version",
        "flavor",
        "free",
        "in_use",
        "name",
        "nodes",
        "occupancy_version",
        "opportunistic_slots",
        "promise_version",
        "promises",
        "release_version",
        "slots_version",
    )

    def __init__(self, name: str, flavor: str) -> None:
        self.name = name
        self.flavor = flavor
        self.nodes: dict[str, NodeSlots] = {}
        self.buckets: list[list[str]] = [[]]  # by free GPUs, sorted by name
        self.free = 0
        self.capacity = 0  # GPUs of nodes that are not failed
        self.in_use = 0  # slots under lease
        self.opportunistic_slots = 0  # of them under Opportunistic leases
        self.promises: dict[RunKey, Promise] = {}  # that count on this domain
        self.promise_version = 0  # a number for the present set of these promises
        self._promise_changes = 0
        self._earlier_promises = deque[tuple[int, dict[RunKey, Promise]]](maxlen=MAX_EARLIER_PROMISES)
        self.slots_version = Version()  # replaced when a slot is leased or released
        self.occupancy_version = Version()  # replaced when a lease, or the time at which one ends, changes
        self.release_version = Version()  # replaced when the time at which an open lease ends changes
        self.feasibility_version = Version()  # replaced when that, a promise or a promised Run changes
        self._admitted: dict[tuple[object, ...], frozenset[str] | None] = {}
        self._usable: dict[tuple[object, ...], tuple[str, ...]] = {}

    def admitted_nodes(self, demand: PodDemand) -> frozenset[str] | None:
        """Returns the names of the nodes where such a pod may run and be paid; None: all nodes."""
        key = admission_key(demand)
        if key not in self._admitted:
            names = frozenset(name for name, state in self.nodes.items() if demand.admits(state.node))
            self._admitted[key] = None if len(names) == len(self.nodes) else names
        return self._admitted[key]

    def placeable(self, demand: PodDemand) -> int:
        """Returns how many such pods fit here now (P2)."""
        cached = PLACEABLE.at(self.slots_version)
        pods = cached.get(demand)
        if pods is None:
            pods = cached[demand] = self._count(demand)
        return pods

    def _count(self, demand: PodDemand) -> int:
        if demand.asks_only_gpus and self.admitted_nodes(demand) is None:
            return self.max_pods_of_size(demand.size)
        return sum([pods * len(names) for _, pods, names in self.node_choices(demand)])

    def node_choices(self, demand: PodDemand) -> list[NodeChoice]:
        """Returns the nodes that could take such a pod, grouped by free GPUs and by pods that fit."""
        cached = NODE_CHOICES.at(self.slots_version)
        choices = cached.get(demand)
        if choices is None:
            choices = cached[demand] = self._group(demand)
        return choices

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
                    free = state.free_with_spares if demand.may_use_spares else state.free
                    if pods:
                        grouped.setdefault((free, pods), []).append(name)
        return [(free, pods, sorted(group)) for (free, pods), group in sorted(grouped.items())]

    def max_pods_of_size(self, size: int) -> int:
        """Returns how many pods of that size fit here now, if they may run on every node."""
        return sum([len(names) * (free // size) for free, names in enumerate(self.buckets) if names])

    def max_pods(self, demand: PodDemand) -> int:
        """Returns an upper bound on such pods that fit here, from GPU counts alone."""
        return (self.capacity if demand.may_use_spares else self.free) // demand.size

    def capacity_pods(self, demand: PodDemand) -> int:
        """Returns how many such pods would fit if nothing ran here."""
        names = self.admitted_nodes(demand)
        return sum(
            self.nodes[name].node.gpus // demand.size
            for name in (self.nodes if names is None else names)
            if not self.nodes[name].node.failed
        )

    def usable_node_names(self, demand: PodDemand) -> tuple[str, ...]:
        """Returns the names of the nodes where such a pod could run if nothing else did, sorted."""
        key = (demand.size, *admission_key(demand))
        usable = self._usable.get(key)
        if usable is None:
            names = self.admitted_nodes(demand)
            states = (self.nodes[name] for name in (self.nodes if names is None else names))
            large_enough = (
                state.node.name for state in states if state.is_schedulable and state.node.gpus >= demand.size
            )
            usable = self._usable[key] = tuple(sorted(large_enough))
        return usable

    def gpu_counts(self) -> GpuCounts:
        """Returns the GPUs of the domain by use, cached until a slot changes."""
        cached = GPU_COUNTS.at(self.slots_version)
        counts = cached.get(None)
        if counts is None:
            nodes = self.nodes.values()
            counts = cached[None] = GpuCounts(
                total=sum(slots.node.gpus for slots in nodes),
                leased=sum(slots.leased.bit_count() for slots in nodes),
                spare=sum(slots.spare.bit_count() for slots in nodes),
                lent=sum((slots.spare & slots.leased).bit_count() for slots in nodes),
                foreign=sum(min(slots.foreign, slots.free_mask.bit_count()) for slots in nodes),
            )
        return counts

    def set_promise(self, run_key: RunKey, promise: Promise | None) -> None:
        """Sets the promise to that Run which counts on this domain; None removes it.

        A trial changes promises and rolls them back, then the plan makes the same changes. The same promises
        have the same version each time.
        """
        self._earlier_promises.append((self.promise_version, dict(self.promises)))
        if promise is None:
            self.promises.pop(run_key, None)
        else:
            self.promises[run_key] = promise
        self._promise_changes += 1
        self.promise_version = next(
            (version for version, promises in self._earlier_promises if promises == self.promises),
            self._promise_changes,
        )
        self.invalidate_feasibility()

    def invalidate_feasibility(self) -> None:
        """Invalidates what is cached about whether the domain keeps its promises."""
        self.feasibility_version = Version()

    def invalidate_free_slots(self) -> None:
        """Invalidates what depends on the slots that are free, after leases or foreign pods changed."""
        self.slots_version = Version()
        self.occupancy_version = Version()

    def invalidate_profiles(self) -> None:
        """Invalidates what depends on when leases end, after that changed for open leases too."""
        self.occupancy_version = Version()
        self.release_version = Version()
        self.feasibility_version = Version()

    def invalidate_nodes(self) -> None:
        """Invalidates all answers, after a node came, went or changed."""
        self.invalidate_free_slots()
        self.invalidate_profiles()
        self._admitted.clear()
        self._usable.clear()

    def save_versions(self) -> SavedVersions:
        """Returns the versions before a lease opens or closes in a trial."""
        return self.slots_version, self.occupancy_version

    def restore_versions(self, saved: SavedVersions) -> None:
        """Makes the answers of before a change valid again after it was rolled back."""
        self.slots_version, self.occupancy_version = saved

    def recount(self, state: NodeSlots) -> None:
        """Moves a node that changed to the bucket of its present free GPUs."""
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


def admission_key(demand: PodDemand) -> tuple[object, ...]:
    """Everything in a demand that decides which nodes admit its pods."""
    return (
        demand.tolerations,
        demand.node_selector,
        demand.payer_selectors,
        demand.avoided_nodes,
        demand.requirements,
    )


def total_placeable(domains: Iterable[Domain], demand: PodDemand) -> int:
    return sum(domain.placeable(demand) for domain in domains)
