"""The free GPUs of each node, and the placement of jobs, for the schedulers that Jobtree is compared with.

A job that fits on one node is placed on the fitting node with the fewest free GPUs. A larger job takes whole
free nodes, and its remainder takes the fitting node with the most free GPUs. Of equal nodes the one with the
lowest number is chosen. These are the rules of the published simulations.
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
        """Returns the placement of a job, without taking it; None if the job does not fit."""
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
        """Takes the node out of service; the caller gives back the placements on it."""
        if self.up[node]:
            self.up[node] = False
            self.total_free -= self.free[node]

    def come_up(self, node: int) -> None:
        if not self.up[node]:
            self.up[node] = True
            self.total_free += self.free[node]
            self._list(node)

    def with_free(self, free: int) -> list[int]:
        """Returns all nodes with exactly this number of free GPUs, in ascending order."""
        self._any(free)
        listed = self._by_free[free]
        return sorted(node for node in listed if self.free[node] == free and self.up[node])

    # Nodes are listed by their free GPUs; an outdated entry is dropped when it is the first of its list.

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
        """Returns the first nodes that are completely free, at most ``count``."""
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
