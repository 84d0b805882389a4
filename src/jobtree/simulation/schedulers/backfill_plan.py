"""The plan of a backfill pass: which GPUs of each node are held, and from when until when.

A job may start now if all holds stay possible. A hold is placed where the job can start first, by the assumed
ends of running jobs and of holds; it may use a gap before another hold. Results for nodes on which nothing
has changed are cached.
"""

from bisect import bisect_right
from collections.abc import Collection
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from jobtree.simulation.replay.engine import FOREVER
from jobtree.simulation.schedulers.node_pool import Nodes, Placement

JobClass = tuple[int, int]  # GPUs, assumed duration
Ready = list[int]  # of one node: the instants from which 1, 2, … GPUs stay free, ascending


class Hold(NamedTuple):
    """GPUs of a node that are kept for a waiting job."""

    start: int
    end: int
    gpus: int


class BackfillPlan:
    """The holds of one pass."""

    def __init__(self, nodes: Nodes, running: list[Ready]) -> None:
        self._nodes, self._size = nodes, nodes.size
        self.at = 0
        self.held = 0
        self._running = running  # when the GPUs of each node are free, without holds
        self._holds: dict[int, list[Hold]] = {}
        self._refused: list[
            JobClass
        ] = []  # jobs that could not start; a larger and longer job cannot start either
        self._soonest: dict[
            int, list[tuple[int, int]]
        ] = {}  # by GPUs, the instant and the node, of nodes without holds
        self._changed: list[int] = []  # nodes with holds, in the order of their changes
        # By class, how many of the changes were read, and the first instant on each node with holds.
        self._earliest_cache: dict[JobClass, tuple[int, dict[int, int]]] = {}

    # Starting now

    def fit(self, gpus: int, duration: int) -> Placement | None:
        """Returns where the job can start now without a delay of any hold."""
        if gpus > self._nodes.total_free:
            return None
        for fewer_gpus, shorter in self._refused:
            if fewer_gpus <= gpus and shorter <= duration:
                return None
        placement = self._find(gpus, self.at + duration)
        if placement is None:
            self._refused.append((gpus, duration))
        return placement

    def _find(self, gpus: int, end: int) -> Placement | None:
        nodes, size = self._nodes, self._size
        if gpus <= size:
            node = self._first(range(gpus, size + 1), gpus, end, ())
            return None if node is None else ((node, gpus),)
        whole, rest = divmod(gpus, size)
        whole_nodes = [node for node in nodes.with_free(size) if self._is_free(node, size, self.at, end)][
            :whole
        ]
        if len(whole_nodes) < whole:
            return None
        placement = tuple((node, size) for node in whole_nodes)
        if not rest:
            return placement
        last = self._first(range(size, rest - 1, -1), rest, end, whole_nodes)
        return None if last is None else (*placement, (last, rest))

    def _first(self, order: range, gpus: int, end: int, without: Collection[int]) -> int | None:
        """Returns the first node with enough free GPUs until ``end``, in this order of free GPUs."""
        for free in order:
            for node in self._nodes.with_free(free):
                if node not in without and self._is_free(node, gpus, self.at, end):
                    return node
        return None

    def _is_free(self, node: int, gpus: int, start: int, end: int) -> bool:
        """Whether these GPUs of the node are free from ``start`` to ``end``, beside jobs and holds."""
        ready, holds = self._running[node], self._holds.get(node, ())
        instants = [start, *(hold.start for hold in holds if start < hold.start < end)]
        for at in instants:
            busy = self._size - bisect_right(ready, at)
            for hold in holds:
                if hold.start <= at < hold.end:
                    busy += hold.gpus
            if busy + gpus > self._size:
                return False
        return True

    def record_start(self, placement: Placement) -> None:
        """Updates the nodes of a job that has just started."""
        for node, _ in placement:
            for share, heap in self._soonest.items():
                heappush(heap, (self._running[node][share - 1], node))
            if node in self._holds:
                self._changed.append(node)

    # Holding for later

    def hold(self, gpus: int, duration: int) -> None:
        """Holds the nodes that are free for the job first."""
        self.held += 1
        start_and_placement = (
            self._on_one_node(gpus, duration)
            if gpus <= self._size
            else self._on_several_nodes(gpus, duration)
        )
        if start_and_placement is not None:
            start, placement = start_and_placement
            for node, share in placement:
                self._holds.setdefault(node, []).append(Hold(start, start + duration, share))
                self._changed.append(node)

    def _on_one_node(self, gpus: int, duration: int) -> tuple[int, Placement] | None:
        held = self._instants_with_holds(gpus, duration)
        soonest = min(((at, node) for node, at in held.items()), default=(FOREVER, 0))
        without_holds = self._without_holds(gpus)
        if without_holds is not None:
            soonest = min(soonest, (max(self.at, self._running[without_holds][gpus - 1]), without_holds))
        return None if soonest[0] >= FOREVER else (soonest[0], ((soonest[1], gpus),))

    def _instants_with_holds(self, gpus: int, duration: int) -> dict[int, int]:
        """Returns when each node with holds is free for a job of this class."""
        read, cached = self._earliest_cache.get((gpus, duration), (0, {}))
        for node in set(self._changed[read:]):
            cached[node] = self._earliest(node, gpus, duration)
        self._earliest_cache[gpus, duration] = (len(self._changed), cached)
        return cached

    def _without_holds(self, gpus: int) -> int | None:
        """Returns the node without holds that is free first."""
        heap = self._soonest.get(gpus)
        if heap is None:
            heap = [(ready[gpus - 1], node) for node, ready in enumerate(self._running)]
            heapify(heap)
            self._soonest[gpus] = heap
        while heap and (heap[0][1] in self._holds or self._running[heap[0][1]][gpus - 1] != heap[0][0]):
            heappop(heap)
        return heap[0][1] if heap else None

    def _on_several_nodes(self, gpus: int, duration: int) -> tuple[int, Placement] | None:
        whole, rest = divmod(gpus, self._size)
        held = self._instants_with_holds(self._size, duration)
        ordered = sorted(
            (held[node] if node in held else max(self.at, ready[-1]), node)
            for node, ready in enumerate(self._running)
        )
        last = 0
        for start, _ in ordered[whole - 1 :]:
            if last < start < FOREVER and (placement := self._from(start, duration, whole, rest, ordered)):
                return start, placement
            last = start
        return None

    def _from(
        self, start: int, duration: int, whole: int, rest: int, ordered: list[tuple[int, int]]
    ) -> Placement | None:
        """Returns whole nodes, and one for the rest, that are free from exactly this instant."""
        end, chosen = start + duration, list[int]()
        for free_at, node in ordered:
            if free_at > start or len(chosen) == whole:
                break
            if free_at == start or node not in self._holds or self._is_free(node, self._size, start, end):
                chosen.append(node)
        if len(chosen) < whole:
            return None
        placed = tuple((node, self._size) for node in chosen)
        if not rest:
            return placed
        rest_nodes = (node for node in range(self._nodes.count) if node not in chosen)
        last = next((node for node in rest_nodes if self._is_free(node, rest, start, end)), None)
        return None if last is None else (*placed, (last, rest))

    def _earliest(self, node: int, gpus: int, duration: int) -> int:
        ready, holds = self._running[node], self._holds[node]
        first = max(self.at, ready[gpus - 1])
        for start in sorted({first, *ready[gpus:], *(hold.end for hold in holds)}):
            if first <= start < FOREVER and self._is_free(node, gpus, start, start + duration):
                return start
        return FOREVER
