"""A flavor: all domains that have GPUs of one kind, in the order in which they are packed.

One sorted list of (fresh, free, domain) gives the pack order of P3, and from its other end the domains with
most room. Whoever changes a domain mends its entry here. A flavor also counts what could let a waiting Run
start (``reconsider_generation``): whoever was refused is asked again only when the count has moved on.
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
        self.growth_candidates = GrowthCandidates()  # Runs that may grow as soon as there is room and money
        self.growth_checked_generation = -1  # the gains at which all of them were last asked
        self.queue_checked_generation = -1  # the gains at which all who wait were last asked
        self.inactive_checked_generation = (
            -1
        )  # the gains at which it was last looked who of those asleep could start
        self._largest: dict[PodDemand, int] = {}
        self._sizes: dict[int, int] = {}  # nodes by their GPUs

    def domains_of_slice(self, shares: Iterable[tuple[str, int]]) -> list[Domain]:
        """The domains of a slice that are still there."""
        return [self.domains[name] for name, _ in shares if name in self.domains]

    def largest_domain_pods(self, demand: PodDemand) -> int:
        """Pods that the largest domain could hold if it were empty."""
        known = self._largest.get(demand)
        if known is None:
            known = 0
            for domain in sorted(self.domains.values(), key=lambda domain: -domain.capacity):
                if domain.capacity // demand.size <= known:
                    break  # nor could any that follows hold more
                known = max(known, domain.capacity_pods(demand))
            self._largest[demand] = known
        return known

    def invalidate_fit(self) -> None:
        """The occupancy of a domain changed, and with it the instants at which pods first fit there."""
        self.fit_version = Version()

    def count_node(self, gpus: int, sign: int) -> None:
        """A node of that many GPUs came (or went)."""
        self._largest.clear()
        self._sizes[gpus] = self._sizes.get(gpus, 0) + sign
        if not self._sizes[gpus]:
            del self._sizes[gpus]
        self.biggest_node = max(self._sizes, default=0)

    def in_pack_order(self, gpus: int) -> Iterator[Domain]:
        """Domains with at least that many free GPUs: in use first, least left over first (P3).

        Whatever is tried between two steps must have been taken back by the second.
        """
        order = self.packing_order
        for fresh in (0, 1):
            at = bisect_left(order, (fresh, gpus, ""))
            while at < len(order) and order[at][0] == fresh:
                yield self.domains[order[at][2]]
                at += 1

    def domains_by_room(self, demand: PodDemand) -> Iterator[Domain]:
        """Domains that hold such pods, most of them first, ties by name.

        No more pods fit than free GPUs allow, so those with too few free are not even looked at.
        """
        found: list[tuple[int, str]] = []
        for domain in self._by_reach(demand):
            while found and -found[0][0] > domain.max_pods(demand):
                yield self.domains[heappop(found)[1]]
            pods = domain.placeable(demand)
            if pods:
                heappush(found, (-pods, domain.name))
        while found:
            yield self.domains[heappop(found)[1]]

    def _by_reach(self, demand: PodDemand) -> Iterator[Domain]:
        """Domains by the pods that they hold at most, most first."""
        if demand.may_use_spares:
            yield from sorted(self.domains.values(), key=lambda domain: -domain.max_pods(demand))
            return
        fresh = bisect_left(self.packing_order, (1,))
        halves = (reversed(self.packing_order[:fresh]), reversed(self.packing_order[fresh:]))
        for _, free, name in merge(*halves, key=itemgetter(1), reverse=True):
            if free < demand.size:
                return
            yield self.domains[name]
