"""A flavor: all domains that have GPUs of one kind, in the order in which they are packed.

One sorted list of (fresh, free, domain) gives the pack order of P3, and from its other end the domains with
most room. Whoever changes a domain mends its entry here. A flavor also counts what could let a waiting Run
start (``gains``): whoever was refused is asked again only when the count has moved on.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush, merge
from operator import itemgetter
from typing import Any

from jobtree.core.supply.domain import Domain
from jobtree.core.supply.growth_candidates import Eager
from jobtree.core.supply.node_slots import Demand


class Flavor:
    """All domains that have GPUs of one kind."""

    __slots__ = (
        "_largest",
        "_sizes",
        "asked",
        "biggest_node",
        "domains",
        "eager",
        "free",
        "gains",
        "name",
        "order",
        "served",
        "skylines",
        "spare_slots",
        "unpaid_slots",
        "weighed",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.domains: dict[str, Domain] = {}
        self.skylines: dict[tuple[object, ...], Any] = {}  # remembered by skyline
        self.order: list[tuple[int, int, str]] = []  # (fresh, free, domain)
        self.free = 0
        self.biggest_node = 0
        self.spare_slots = 0  # under Spare leases
        self.unpaid_slots = 0  # under Opportunistic leases
        self.gains = 0  # counts every event that could let a waiting Run start
        self.eager = Eager()  # Runs that may grow as soon as there is room and money
        self.asked = -1  # the gains at which all of them were last asked
        self.served = -1  # the gains at which all who wait were last asked
        self.weighed = -1  # the gains at which it was last looked who of those asleep could start
        self._largest: dict[Demand, int] = {}
        self._sizes: dict[int, int] = {}  # nodes by their GPUs

    def among(self, shares: Iterable[tuple[str, int]]) -> list[Domain]:
        """The domains of a slice that are still there."""
        return [self.domains[name] for name, _ in shares if name in self.domains]

    def largest(self, demand: Demand) -> int:
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
        order = self.order
        for fresh in (0, 1):
            at = bisect_left(order, (fresh, gpus, ""))
            while at < len(order) and order[at][0] == fresh:
                yield self.domains[order[at][2]]
                at += 1

    def roomiest(self, demand: Demand) -> Iterator[Domain]:
        """Domains that hold such pods, most of them first, ties by name.

        No more pods fit than free GPUs allow, so those with too few free are not even looked at.
        """
        found: list[tuple[int, str]] = []
        for domain in self._by_reach(demand):
            while found and -found[0][0] > domain.reach(demand):
                yield self.domains[heappop(found)[1]]
            pods = domain.placeable(demand)
            if pods:
                heappush(found, (-pods, domain.name))
        while found:
            yield self.domains[heappop(found)[1]]

    def _by_reach(self, demand: Demand) -> Iterator[Domain]:
        """Domains by the pods that they hold at most, most first."""
        if demand.on_spares:
            yield from sorted(self.domains.values(), key=lambda domain: -domain.reach(demand))
            return
        fresh = bisect_left(self.order, (1,))
        halves = (reversed(self.order[:fresh]), reversed(self.order[fresh:]))
        for _, free, name in merge(*halves, key=itemgetter(1), reverse=True):
            if free < demand.size:
                return
            yield self.domains[name]
