"""FIFO with backfill: the first jobs that wait hold nodes from a known instant, others flow around them.

In every pass the waiting jobs are gone through by submission. One that fits now and delays nobody who holds
something starts. Of those that cannot, the first ``depth`` hold the nodes that will be ready for them
soonest, by the ends that are assumed of what runs and of what is held. With a depth of one this is EASY,
with many it is conservative backfill, planned anew at each event. Jobs of one size and one assumed duration
are alike: where the oldest of a kind could not start in a pass, nor can the others.
"""

from bisect import bisect_left, insort
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

from jobtree.replay.policies.nodes import Placement
from jobtree.replay.policies.scheduler import Scheduler
from jobtree.replay.scene import Scene
from jobtree.replay.simulation import FOREVER

Kind = tuple[int, int]  # GPUs, assumed duration
Ready = list[int]  # of one node: when its first, second, … GPU is free for good, soonest first


class Hold(NamedTuple):
    """GPUs of a node that are kept for a job that waits."""

    start: int
    end: int
    gpus: int


class Backfill(Scheduler):
    depth: int

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.kinds: dict[Kind, list[int]] = {}  # waiting jobs, oldest first
        self._ready: list[Ready] = [[0] * self.nodes.size for _ in range(self.nodes.count)]
        self._stale: set[int] = set()  # nodes on which something ended, or that came or went
        self._board: Board | None = None
        self._came: list[int] = []

    def enqueue(self, job: int) -> None:
        insort(self.kinds.setdefault((self.trace.gpus[job], self.assumed[job]), []), job)
        self._came.append(job)

    def schedule(self, at: int) -> None:
        if self._stale or self._board is None:
            self._board = Board(self, self._refreshed())
            self._came.clear()
            self._pass(at, self._board, self.kinds)
        else:  # nothing was freed: what was planned stands, and only those who came can start
            came, self._came = self._came, []
            for job in sorted(came):
                self._pass(at, self._board, {(self.trace.gpus[job], self.assumed[job]): [job]})

    def _pass(self, at: int, board: "Board", kinds: dict[Kind, list[int]]) -> None:
        board.at = at
        heads = [(jobs[0], kind, 0) for kind, jobs in kinds.items()]
        heapify(heads)
        started: dict[Kind, set[int]] = {}
        while heads and (self.nodes.total_free or board.held < self.depth):
            job, kind, position = heads[0]
            placement = board.fit(*kind)
            if placement is not None:
                self.begin(job, placement, at)
                board.occupied(placement)
                started.setdefault(kind, set()).add(job)
            elif board.held < self.depth:
                board.hold(*kind)
            waits = kinds[kind]
            if position + 1 < len(waits) and (placement is not None or board.held < self.depth):
                heapreplace(heads, (waits[position + 1], kind, position + 1))
            else:
                heappop(heads)
        for kind, gone in started.items():
            self._forget(kind, gone)

    def _forget(self, kind: Kind, gone: set[int]) -> None:
        self.kinds[kind] = [job for job in self.kinds[kind] if job not in gone]
        if not self.kinds[kind]:
            del self.kinds[kind]

    # When GPUs are ready

    def ready_from_running(self, node: int) -> Ready:
        ends: Ready = []
        for job in self.on_node[node]:
            known = self.running[job]
            ends += [known.until] * next(gpus for at, gpus in known.placement if at == node)
        return [0] * (self.nodes.size - len(ends)) + sorted(ends)

    def _refreshed(self) -> list[Ready]:
        for node in self._stale:
            up = self.nodes.up[node]
            self._ready[node] = self.ready_from_running(node) if up else [FOREVER] * self.nodes.size
        self._stale.clear()
        return self._ready

    def begin(self, job: int, placement: Placement, at: int) -> None:
        super().begin(job, placement, at)
        for node, _ in placement:
            if node not in self._stale:
                self._ready[node] = self.ready_from_running(node)

    def release(self, job: int, at: int) -> None:
        self._stale.update(node for node, _ in self.running[job].placement)
        super().release(job, at)

    def node_down(self, node: int, at: int) -> None:
        super().node_down(node, at)
        self._stale.add(node)

    def node_up(self, node: int, at: int) -> None:
        super().node_up(node, at)
        self._stale.add(node)


class Easy(Backfill):
    depth = 1


class Conservative(Backfill):
    depth = 50


class Board:
    """What one pass plans: which GPUs are held, and when the others are ready."""

    def __init__(self, scheduler: Backfill, running: list[Ready]) -> None:
        self._nodes = scheduler.nodes
        self.at = 0
        self._running = running  # when GPUs are ready but for holds
        self._ready = list(running)
        self._refused: list[Kind] = []  # the least that could not start: more of either cannot
        self._heaps: dict[int, list[tuple[int, int]]] = {}  # by GPUs on a node: when ready, node
        self._holds: dict[int, list[Hold]] = {}
        self.held = 0

    # Starting now

    def fit(self, gpus: int, duration: int) -> Placement | None:
        """Where the job can start now without delaying anyone who holds something."""
        nodes = self._nodes
        if gpus > nodes.total_free:
            return None
        for less, shorter in self._refused:
            if less <= gpus and shorter <= duration:
                return None
        placement = self._find(gpus, self.at + duration)
        if placement is None:
            self._refused.append((gpus, duration))
        return placement

    def _find(self, gpus: int, end: int) -> Placement | None:
        nodes = self._nodes
        if gpus <= nodes.size:
            node = self._fullest(gpus, end)
            return None if node is None else ((node, gpus),)
        whole, rest = divmod(gpus, nodes.size)
        found = [node for node in nodes.with_free(nodes.size) if self._is_open(node, nodes.size, end)]
        if len(found) < whole:
            return None
        placed = tuple((node, nodes.size) for node in found[:whole])
        if not rest:
            return placed
        last = self._freest(rest, end, found[:whole])
        return None if last is None else (*placed, (last, rest))

    def _fullest(self, gpus: int, end: int) -> int | None:
        for free in range(gpus, self._nodes.size + 1):
            for node in self._nodes.with_free(free):
                if self._is_open(node, gpus, end):
                    return node
        return None

    def _freest(self, gpus: int, end: int, without: list[int]) -> int | None:
        for free in range(self._nodes.size, gpus - 1, -1):
            for node in self._nodes.with_free(free):
                if node not in without and self._is_open(node, gpus, end):
                    return node
        return None

    def _is_open(self, node: int, gpus: int, end: int) -> bool:
        """Whether all who hold GPUs of the node still have them if these are taken from now until the end."""
        holds = self._holds.get(node, ())
        size, ends = self._nodes.size, self._running[node]
        for hold in holds:
            if hold.start < end:
                busy = size - bisect_left(ends, hold.start + 1)
                planned = sum(other.gpus for other in holds if other.start <= hold.start < other.end)
                if busy + planned + gpus > size:
                    return False
        return True

    def occupied(self, placement: Placement) -> None:
        """A job has just started there."""
        for node, _ in placement:
            ready = self._running[node]
            for hold in self._holds.get(node, ()):
                ready = sorted([*ready[hold.gpus :], *[hold.end] * hold.gpus])
            self._note(node, ready)

    # Holding for later

    def hold(self, gpus: int, duration: int) -> None:
        """Keep the nodes that are ready soonest, from the instant at which the last of them is."""
        self.held += 1
        size = self._nodes.size
        if gpus <= size:
            placed = [(node, gpus) for node in self._soonest(gpus, 1, ())]
        else:
            whole, rest = divmod(gpus, size)
            chosen = self._soonest(size, whole, ())
            placed = [(node, size) for node in chosen]
            placed += [(node, rest) for node in self._soonest(rest, 1, chosen)] if rest else []
        if sum(share for _, share in placed) < gpus:
            return  # not with the nodes that are in service
        start = max(self.at, *[self._ready[node][share - 1] for node, share in placed])
        for node, share in placed:
            self._holds.setdefault(node, []).append(Hold(start, start + duration, share))
            ready = self._ready[node][share:] + [start + duration] * share
            ready.sort()
            self._note(node, ready)

    def _soonest(self, share: int, count: int, without: list[int] | tuple[()]) -> list[int]:
        heap = self._heaps.get(share)
        if heap is None:
            heap = [(ready[share - 1], node) for node, ready in enumerate(self._ready)]
            heapify(heap)
            self._heaps[share] = heap
        found, kept = list[int](), list[tuple[int, int]]()
        while heap and len(found) < count:
            ready, node = heappop(heap)
            if self._ready[node][share - 1] != ready:
                continue
            if ready >= FOREVER:
                break
            kept.append((ready, node))
            if node not in without:
                found.append(node)
        for entry in kept:
            heappush(heap, entry)
        return found

    def _note(self, node: int, ready: Ready) -> None:
        before, self._ready[node] = self._ready[node], ready
        for share, heap in self._heaps.items():
            if ready[share - 1] != before[share - 1]:
                heappush(heap, (ready[share - 1], node))
