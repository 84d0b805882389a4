"""Keeps the domains of one GPU flavor in packing order (P3).

A sorted list of (fresh, free, domain) gives the pack order, and read backwards the domains with the most free
GPUs. ``Fleet`` updates the entry of a domain with each change. ``reconsider_generation`` counts the events
that could let a waiting Run start: a refused Run is considered again only when it has changed.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush, merge
from operator import itemgetter

from jobtree.core.model.versioned_cache import Version
from jobtree.core.supply.domain import Domain
from jobtree.core.supply.growth_candidates import GrowthCandidates
from jobtree.core.supply.node_slots import PodDemand


class FlavorPool:
    """All domains that have GPUs of one kind."""

    __slots__ = (
        "_largest",
        "_sizes",
        "biggest_node",
        "domains",
        "fit_version",
        "free",
        "growth_candidates",
        "growth_checked_generation",
        "inactive_checked_generation",
        "name",
        "opportunistic_slots",
        "packing_order",
        "queue_checked_generation",
        "reconsider_generation",
        "spare_slots",
        "swept_generation",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.domains: dict[str, Domain] = {}
        self.fit_version = Version()  # replaced when the occupancy of any of its domains changes
        self.packing_order: list[tuple[int, int, str]] = []  # (fresh, free, domain)
        self.free = 0
        self.biggest_node = 0
        self.spare_slots = 0  # under Spare leases
        self.opportunistic_slots = 0  # under Opportunistic leases
        self.reconsider_generation = 0  # counts every event that could let a waiting Run start
        self.growth_candidates = GrowthCandidates()
        # The values of reconsider_generation at which the following were last considered.
        self.growth_checked_generation = -1  # all growth candidates
        self.queue_checked_generation = -1  # all active waiting Runs
        self.inactive_checked_generation = -1  # all inactive waiting Runs
        self.swept_generation = -1  # what others would have to give back (R14)
        self._largest: dict[PodDemand, int] = {}
        self._sizes: dict[int, int] = {}  # nodes by their GPUs

    def domains_of_slice(self, shares: Iterable[tuple[str, int]]) -> list[Domain]:
        """Returns the domains of a slice that still exist."""
        return [self.domains[name] for name, _ in shares if name in self.domains]

    def largest_domain_pods(self, demand: PodDemand) -> int:
        """Returns how many pods fit in the domain that could hold most if it were empty."""
        pods = self._largest.get(demand)
        if pods is None:
            pods = 0
            for domain in sorted(self.domains.values(), key=lambda domain: -domain.capacity):
                if domain.capacity // demand.size <= pods:
                    break  # the remaining domains are no larger
                pods = max(pods, domain.capacity_pods(demand))
            self._largest[demand] = pods
        return pods

    def invalidate_fit(self) -> None:
        """Invalidates the earliest-fit indexes of this flavor, after the occupancy of a domain changed."""
        self.fit_version = Version()

    def count_node(self, gpus: int, sign: int) -> None:
        """Counts a node of that many GPUs that came; with sign −1, one that went."""
        self._largest.clear()
        self._sizes[gpus] = self._sizes.get(gpus, 0) + sign
        if not self._sizes[gpus]:
            del self._sizes[gpus]
        self.biggest_node = max(self._sizes, default=0)

    def in_pack_order(self, gpus: int) -> Iterator[Domain]:
        """Yields domains with at least that many free GPUs: in use first, fewest left over first (P3).

        A caller that changes a domain must roll the change back before it takes the next domain.
        """
        order = self.packing_order
        for fresh in (0, 1):
            at = bisect_left(order, (fresh, gpus, ""))
            while at < len(order) and order[at][0] == fresh:
                yield self.domains[order[at][2]]
                at += 1

    def domains_by_room(self, demand: PodDemand) -> Iterator[Domain]:
        """Yields domains where such pods fit, most pods first, ties by name.

        A domain is counted only when its upper bound exceeds the best counted domain.
        """
        counted: list[tuple[int, str]] = []  # a heap, most pods on top
        for domain in self._by_max_pods(demand):
            while counted and -counted[0][0] > domain.max_pods(demand):
                yield self.domains[heappop(counted)[1]]
            pods = domain.placeable(demand)
            if pods:
                heappush(counted, (-pods, domain.name))
        while counted:
            yield self.domains[heappop(counted)[1]]

    def _by_max_pods(self, demand: PodDemand) -> Iterator[Domain]:
        """Yields domains by their upper bound on such pods, highest first."""
        if demand.may_use_spares:
            yield from sorted(self.domains.values(), key=lambda domain: -domain.max_pods(demand))
            return
        fresh = bisect_left(self.packing_order, (1,))
        halves = (reversed(self.packing_order[:fresh]), reversed(self.packing_order[fresh:]))
        for _, free, name in merge(*halves, key=itemgetter(1), reverse=True):
            if free < demand.size:
                return
            yield self.domains[name]
