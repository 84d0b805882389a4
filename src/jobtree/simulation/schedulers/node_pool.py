"""The nodes of a fleet as the compared schedulers see them: GPUs free on each, and where a job goes.

A job of at most a node's GPUs goes to the node with the fewest free GPUs that fits; a larger one takes
whole free nodes, its remainder the freest node that fits. Ties go to the lowest number. These are the
rules of the published simulations.
"""

from collections.abc import Collection
from heapq import heapify, heappop, heappush

Placement = tuple[tuple[int, int], ...]  # node and GPUs on it


class Nodes:
    def __init__(self, count: int, gpus_per_node: int) -> None:
        self.count, self.size = count, gpus_per_node
        self.free = [gpus_per_node] * count
        self.up = [True] * count
        self.total_free = count * gpus_per_node
        self._by_free: list[list[int]] = [[] for _ in range(gpus_per_node)] + [list(range(count))]
        heapify(self._by_free[gpus_per_node])
        self._listed = [[False] * count for _ in range(gpus_per_node)] + [[True] * count]

    def place(self, gpus: int) -> Placement | None:
        """Where a job goes now; None where it does not fit. Nothing is taken yet."""
        if gpus > self.total_free:
            return None
        if gpus <= self.size:
            node = next((self._first(free) for free in range(gpus, self.size + 1) if self._any(free)), None)
            return None if node is None else ((node, gpus),)
        whole, rest = divmod(gpus, self.size)
        nodes = self._whole(whole)
        if len(nodes) < whole:
            return None
        placed = tuple((node, self.size) for node in nodes)
        if not rest:
            return placed
        last = self._freest(rest, nodes)
        return None if last is None else (*placed, (last, rest))

    def take(self, placement: Placement) -> None:
        for node, gpus in placement:
            self.free[node] -= gpus
            self.total_free -= gpus
            self._list(node)

    def give_back(self, placement: Placement) -> None:
        for node, gpus in placement:
            self.free[node] += gpus
            if self.up[node]:
                self.total_free += gpus
                self._list(node)

    def go_down(self, node: int) -> None:
        """The node is out of service; what ran on it must be given back as well."""
        if self.up[node]:
            self.up[node] = False
            self.total_free -= self.free[node]

    def come_up(self, node: int) -> None:
        if not self.up[node]:
            self.up[node] = True
            self.total_free += self.free[node]
            self._list(node)

    def with_free(self, free: int) -> list[int]:
        """All nodes with exactly that many free GPUs, lowest number first."""
        self._any(free)
        listed = self._by_free[free]
        return sorted(node for node in listed if self.free[node] == free and self.up[node])

    # Nodes are listed by their free GPUs; what is no longer true is dropped when it comes first.

    def _list(self, node: int) -> None:
        free = self.free[node]
        if free and not self._listed[free][node]:
            self._listed[free][node] = True
            heappush(self._by_free[free], node)

    def _any(self, free: int) -> bool:
        heap, listed = self._by_free[free], self._listed[free]
        while heap and (self.free[heap[0]] != free or not self.up[heap[0]]):
            listed[heappop(heap)] = False
        return bool(heap)

    def _first(self, free: int) -> int:
        return self._by_free[free][0]

    def _whole(self, count: int) -> list[int]:
        """The first nodes that are wholly free, at most that many."""
        nodes: list[int] = []
        while len(nodes) < count and self._any(self.size):
            nodes.append(heappop(self._by_free[self.size]))
        for node in nodes:
            heappush(self._by_free[self.size], node)
        return nodes

    def _freest(self, gpus: int, without: Collection[int]) -> int | None:
        for free in range(self.size, gpus - 1, -1):
            if self._any(free):
                node = next((node for node in self.with_free(free) if node not in without), None)
                if node is not None:
                    return node
        return None
