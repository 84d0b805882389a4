"""Wholes: room on nodes that larger pods are promised, and how much of it smaller ones may have (R2, R6).

Promises are counted in GPUs per domain, but a pod of eight needs eight on one node. Whoever comes before it
with a smaller pod, and stays, stands on a node that has room when it comes, not on any that will have some
by then. So of each node only that room counts which is left over beside whole larger pods at every instant
at which some are promised to start; and as many larger pods as nobody is promised may be broken up.

No node is held for anybody: which ones stay whole may change until the day. Each size of pod larger than
one's own is looked at by itself, and every promise counts there as if it broke up nodes of its own.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate

import msgspec

from jobtree.core.flow import Flow
from jobtree.core.promise import FREE, Level

Release = tuple[str, int, tuple[int, int, int]]  # node, GPUs, and when each level could have them


class Occupant(msgspec.Struct, frozen=True):
    """A promise as it counts in one domain: from when, until when, and how many pods of the one who looks.

    It counts in full: whoever gives way to it might have been gone later anyway.
    """

    at: int
    end: int
    firm_until: int
    pods: int
    gpus: int
    size: int  # GPUs of its own pods


class Rooms:
    """GPUs free on each node at any coming instant, promises apart."""

    def __init__(self, free: Mapping[str, int], releases: Sequence[Release]) -> None:
        self.nodes = tuple(free)
        self._free = [free[name] for name in self.nodes]
        self._releases = releases
        self._flows: dict[Level, list[tuple[list[int], list[int]]]] = {}
        self._known: dict[tuple[Level, int], list[int]] = {}

    def at(self, level: Level, instant: int) -> list[int]:
        """In the order of the nodes."""
        known = self._known.get((level, instant))
        if known is None:
            pairs = zip(self._free, self._flow(level), strict=True)
            known = self._known[level, instant] = [
                max(0, free + sums[bisect_right(times, instant)]) for free, (times, sums) in pairs
            ]
        return known

    def _flow(self, level: Level) -> list[tuple[list[int], list[int]]]:
        """Per node, instants and what has come free up to each."""
        known = self._flows.get(level)
        if known is None:
            by_node: dict[str, list[tuple[int, int]]] = {name: [] for name in self.nodes}
            for node, gpus, releases in self._releases:
                by_node[node].append((releases[level], gpus))
            known = []
            for name in self.nodes:
                found = sorted(by_node[name])
                sums = list(accumulate((gpus for _, gpus in found), initial=0))
                known.append(([at for at, _ in found], sums))
            self._flows[level] = known
        return known


class Larger:
    """Promises of one larger size of pod: when they start, and what they leave of whole ones then."""

    def __init__(self, size: int, rooms: Rooms, occupants: Sequence[Occupant]) -> None:
        self._size, self._rooms = size, rooms
        self.starts = sorted({one.at for one in occupants if one.size == size})
        whole = [(one, -(-one.gpus // size)) for one in occupants]  # as those who want larger pods count them
        begun = Flow((one.at, pods) for one, pods in whole)
        ended = Flow((max(one.at, one.end), pods) for one, pods in whole)
        self._spare = [
            sum(room // size for room in rooms.at(FREE, at)) - begun.until(at) + ended.until(at)
            for at in self.starts
        ]
        self._below = [one for one in occupants if one.size < size]

    def pods(self, level: Level, at: int, end: int, size: int) -> int | None:
        """Pods of the smaller size that somebody may have from ``at`` to ``end``; None: it meets none."""
        part = slice(bisect_right(self.starts, at), bisect_left(self.starts, end))
        if part.start >= part.stop:
            return None
        beside = self.beside(at, end)
        found = sum(gpus // size for gpus in beside)
        found += self._broken_up(self._rooms.at(level, at), beside, size, max(0, min(self._spare[part])))
        return found - sum(-(-one.gpus // size) for one in self._below if one.at <= at < one.end)

    def beside(self, at: int, end: int) -> list[int]:
        """Per node, GPUs that take no whole larger pod from any that is promised to start in between.

        Only what is free counts: a draw ends whom it hits, on whatever node, and stops at the first place.
        """
        found = self._rooms.at(FREE, at)
        for start in self.starts[bisect_right(self.starts, at) : bisect_left(self.starts, end)]:
            then = self._rooms.at(FREE, start)
            found = [min(least, free % self._size) for least, free in zip(found, then, strict=True)]
        return found

    def _broken_up(self, rooms: Sequence[int], beside: Sequence[int], size: int, spare: int) -> int:
        """Pods that fit where so many larger ones are broken up, those first that give most."""
        each = max(1, self._size // size)
        lumps: list[int] = []
        for room, left in zip(rooms, beside, strict=True):
            more = room // size - left // size
            lumps += [min(each, more - taken) for taken in range(0, more, each)]
        return sum(sorted(lumps, reverse=True)[:spare])


class Wholes:
    """All larger sizes that are promised in one domain, as somebody with smaller pods sees them."""

    def __init__(self, size: int, rooms: Rooms, occupants: Sequence[Occupant]) -> None:
        self._size = size
        self._larger = [
            Larger(above, rooms, occupants)
            for above in sorted({one.size for one in occupants if one.size > size})
        ]

    def pods(self, level: Level, at: int, end: int, most: int) -> int:
        """How many of these pods somebody may have from ``at`` to ``end``."""
        for one in self._larger:
            found = one.pods(level, at, end, self._size)
            most = most if found is None else min(most, found)
        return most

    def beside(self, at: int, end: int) -> list[int]:
        """Per node, GPUs that break up no larger pod of any size."""
        found = [one.beside(at, end) for one in self._larger]
        return [min(gpus) for gpus in zip(*found, strict=True)]
