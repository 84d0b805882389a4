"""The board of a backfill pass: who holds which GPUs of which node, from when until when.

A job may start now where all who hold something still have it then. A hold is laid where the job is free to
start soonest, by the ends that are assumed of what runs and of what is held; gaps before other holds count.
What was found about nodes on which nothing changed since is not computed again.
"""

from bisect import bisect_right
from collections.abc import Collection
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from jobtree.simulation.replay.engine import FOREVER
from jobtree.simulation.schedulers.node_pool import Nodes, Placement

JobClass = tuple[int, int]  # GPUs, assumed duration
Ready = list[int]  # of one node: when its first, second, … GPU is free for good, soonest first


class Hold(NamedTuple):
    """GPUs of a node that are kept for a job that waits."""

    start: int
    end: int
    gpus: int


class BackfillPlan:
    """What one pass plans: which GPUs are held, from when until when."""

    def __init__(self, nodes: Nodes, running: list[Ready]) -> None:
        self._nodes, self._size = nodes, nodes.size
        self.at = 0
        self.held = 0
        self._running = running  # when the GPUs of each node are ready, but for holds
        self._holds: dict[int, list[Hold]] = {}
        self._refused: list[JobClass] = []  # the least that could not start: more of either cannot
        self._soonest: dict[int, list[tuple[int, int]]] = {}  # by GPUs: when ready, node; without holds
        self._touched: list[int] = []  # nodes with holds, whenever something changes there
        self._known: dict[
            JobClass, tuple[int, dict[int, int]]
        ] = {}  # how much of that was seen; what followed

    # Starting now

    def fit(self, gpus: int, duration: int) -> Placement | None:
        """Where the job can start now without delaying anyone who holds something."""
        if gpus > self._nodes.total_free:
            return None
        for less, shorter in self._refused:
            if less <= gpus and shorter <= duration:
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
        """The first node, by how many of its GPUs are free, that is free for so many until the end."""
        for free in order:
            for node in self._nodes.with_free(free):
                if node not in without and self._is_free(node, gpus, self.at, end):
                    return node
        return None

    def _is_free(self, node: int, gpus: int, start: int, end: int) -> bool:
        """Whether so many GPUs of the node are free from start to end, beside what runs and is held."""
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

    def occupied(self, placement: Placement) -> None:
        """A job has just started there."""
        for node, _ in placement:
            for share, heap in self._soonest.items():
                heappush(heap, (self._running[node][share - 1], node))
            if node in self._holds:
                self._touched.append(node)

    # Holding for later

    def hold(self, gpus: int, duration: int) -> None:
        """Keep the nodes that are free for the job soonest."""
        self.held += 1
        start_and_placement = (
            self._one(gpus, duration) if gpus <= self._size else self._several(gpus, duration)
        )
        if start_and_placement is not None:
            start, placement = start_and_placement
            for node, share in placement:
                self._holds.setdefault(node, []).append(Hold(start, start + duration, share))
                self._touched.append(node)

    def _one(self, gpus: int, duration: int) -> tuple[int, Placement] | None:
        held = self._where_held(gpus, duration)
        soonest = min(((at, node) for node, at in held.items()), default=(FOREVER, 0))
        untouched = self._untouched(gpus)
        if untouched is not None:
            soonest = min(soonest, (max(self.at, self._running[untouched][gpus - 1]), untouched))
        return None if soonest[0] >= FOREVER else (soonest[0], ((soonest[1], gpus),))

    def _where_held(self, gpus: int, duration: int) -> dict[int, int]:
        """When each node on which somebody holds something is free for such a job."""
        read, cached = self._known.get((gpus, duration), (0, {}))
        for node in set(self._touched[read:]):
            cached[node] = self._earliest(node, gpus, duration)
        self._known[gpus, duration] = (len(self._touched), cached)
        return cached

    def _untouched(self, gpus: int) -> int | None:
        """Of the nodes on which nobody holds anything, the one that is ready first."""
        heap = self._soonest.get(gpus)
        if heap is None:
            heap = [(ready[gpus - 1], node) for node, ready in enumerate(self._running)]
            heapify(heap)
            self._soonest[gpus] = heap
        while heap and (heap[0][1] in self._holds or self._running[heap[0][1]][gpus - 1] != heap[0][0]):
            heappop(heap)
        return heap[0][1] if heap else None

    def _several(self, gpus: int, duration: int) -> tuple[int, Placement] | None:
        whole, rest = divmod(gpus, self._size)
        held = self._where_held(self._size, duration)
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
        """Whole nodes, and one for the rest, that are free from that very instant on."""
        end, chosen = start + duration, list[int]()
        for soon, node in ordered:
            if soon > start or len(chosen) == whole:
                break
            if soon == start or node not in self._holds or self._is_free(node, self._size, start, end):
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
