"""Wholes: room on nodes that larger pods are promised, and how much of it smaller ones may have (R2, R6).

Promises are counted in GPUs per domain, but a pod of eight needs eight on one node. Whoever comes before it
with a smaller pod, and stays, stands on a node that has room when it comes, not on any that will have some
by then. So of each node only that room counts which is left over beside whole larger pods at every instant
at which some are promised to start; and as many larger pods as nobody is promised may be broken up.

No node is held for anybody: which ones stay whole may change until the day. Each size of pod larger than
one's own is looked at by itself, and every promise counts there as if it broke up nodes of its own.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

import msgspec

from jobtree.core.accounts.budget_timeline import CumulativeSum
from jobtree.core.model.promise import NO_DISRUPTION, Disruption

Release = tuple[str, int, tuple[int, int, int]]  # node, GPUs, and when each level could have them


class PromisedPods(msgspec.Struct, frozen=True):
    """A promise as it counts in one domain: from when, until when, and how many pods of the one who looks.

    It counts in full: whoever gives way to it might have been gone later anyway.
    """

    at: int
    end: int
    firm_until: int
    pods: int
    gpus: int
    size: int  # GPUs of its own pods


class NodeAvailability:
    """GPUs free on each node at any coming instant, promises apart."""

    def __init__(self, free: Mapping[str, int], releases: Sequence[Release]) -> None:
        self.nodes = tuple(free)
        self._free = [free[name] for name in self.nodes]
        self._releases = releases
        self._flows: dict[Disruption, list[tuple[list[int], list[int]]]] = {}
        self._known: dict[tuple[Disruption, int], list[int]] = {}
        self._rests: dict[tuple[int, int], list[int]] = {}
        self._wholes: dict[tuple[int, int], int] = {}

    def whole_pods(self, size: int, instant: int) -> int:
        """Whole pods of that size that will be free then."""
        known = self._wholes.get((size, instant))
        if known is None:
            found = sum([room // size for room in self.at(NO_DISRUPTION, instant)])
            known = self._wholes[size, instant] = found
        return known

    def remainder(self, size: int, instant: int) -> list[int]:
        """What will be free then on each node beside whole pods of that size."""
        known = self._rests.get((size, instant))
        if known is None:
            known = self._rests[size, instant] = [room % size for room in self.at(NO_DISRUPTION, instant)]
        return known

    def beside(self, size: int, at: int, starts: Iterable[int]) -> list[int]:
        """Per node, GPUs that take no whole pod of that size from any that is promised to start then.

        Only what is free counts: a draw ends whom it hits, on whatever node, and stops at the first place.
        """
        rests = [self.remainder(size, start) for start in starts]
        return list(map(min, self.at(NO_DISRUPTION, at), *rests)) if rests else self.at(NO_DISRUPTION, at)

    def at(self, disruption: Disruption, instant: int) -> list[int]:
        """In the order of the nodes."""
        known = self._known.get((disruption, instant))
        if known is None:
            pairs = zip(self._free, self._flow(disruption), strict=True)
            known = self._known[disruption, instant] = [
                max(0, free + sums[bisect_right(times, instant)]) for free, (times, sums) in pairs
            ]
        return known

    def _flow(self, disruption: Disruption) -> list[tuple[list[int], list[int]]]:
        """Per node, instants and what has come free up to each."""
        known = self._flows.get(disruption)
        if known is None:
            by_node: dict[str, list[tuple[int, int]]] = {name: [] for name in self.nodes}
            for node, gpus, releases in self._releases:
                by_node[node].append((releases[disruption], gpus))
            known = []
            for name in self.nodes:
                found = sorted(by_node[name])
                sums = list(accumulate((gpus for _, gpus in found), initial=0))
                known.append(([at for at, _ in found], sums))
            self._flows[disruption] = known
        return known


class LargerPodInterval(msgspec.Struct, frozen=True):
    """Promises of one larger size of pod that begin while somebody with smaller ones would run."""

    at: int  # from when it would
    size: int  # of its pods
    above: int  # of the larger ones
    taken: Sequence[tuple[int, int]]  # when they begin, and whole pods of theirs that promises take up then
    below: int  # pods of its own size that other smaller ones take up when it comes

    def pods(self, rooms: NodeAvailability, disruption: Disruption) -> int:
        """Pods of the smaller size that it may have."""
        beside = rooms.beside(self.above, self.at, (start for start, _ in self.taken))
        spare = min([rooms.whole_pods(self.above, start) - pods for start, pods in self.taken])
        found = sum([gpus // self.size for gpus in beside])
        if spare > 0:
            found += self._broken_up(rooms.at(disruption, self.at), beside, spare)
        return found - self.below

    def _broken_up(self, rooms: Sequence[int], beside: Sequence[int], spare: int) -> int:
        """Pods that fit where so many larger ones are broken up, those first that give most."""
        each = max(1, self.above // self.size)
        whole, parts = 0, list[int]()
        for room, left in zip(rooms, beside, strict=True):
            more, part = divmod(room // self.size - left // self.size, each)
            whole += more
            if part:
                parts.append(part)
        if whole >= spare:
            return spare * each
        return whole * each + sum(sorted(parts, reverse=True)[: spare - whole])


class LargerPodPromises:
    """Promises of one larger size of pod: when they start, and what they leave of whole ones then."""

    def __init__(self, size: int, rooms: NodeAvailability, occupants: Sequence[PromisedPods]) -> None:
        self._size, self._rooms = size, rooms
        self._beginning = Counter([one.at for one in occupants if one.size == size])
        self._starts = sorted(self._beginning)
        whole = [(one, -(-one.gpus // size)) for one in occupants]  # as those who want larger pods count them
        begun = CumulativeSum((one.at, pods) for one, pods in whole)
        ended = CumulativeSum((max(one.at, one.end), pods) for one, pods in whole)
        self._taken = [(at, begun.until(at) - ended.until(at)) for at in self._starts]
        self._below = [one for one in occupants if one.size < size]

    def pods(
        self, disruption: Disruption, at: int, end: int, size: int, mine: PromisedPods | None
    ) -> int | None:
        """Pods of the smaller size that somebody may have from ``at`` to ``end``; None: it meets none."""
        taken = self._taken[self._within(at, end)]
        below = sum(-(-one.gpus // size) for one in self._below if one.at <= at < one.end)
        if mine is not None and taken:
            taken = list(self._without(mine, taken))
            if mine.size < self._size and mine.at <= at < mine.end:
                below -= -(-mine.gpus // size)
        if not taken:
            return None
        return LargerPodInterval(at, size, self._size, taken, below).pods(self._rooms, disruption)

    def _without(self, mine: PromisedPods, taken: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """The same if one of all these promises were not there."""
        alone = mine.size == self._size and self._beginning[mine.at] == 1
        whole = -(-mine.gpus // self._size)
        for start, pods in taken:
            if not (alone and start == mine.at):
                yield start, pods - whole if mine.at <= start < mine.end else pods

    def _within(self, at: int, end: int) -> slice:
        return slice(bisect_right(self._starts, at), bisect_left(self._starts, end))

    def beside(self, at: int, end: int) -> list[int]:
        """Per node, GPUs that take no whole larger pod from any that is promised to start in between."""
        return self._rooms.beside(self._size, at, self._starts[self._within(at, end)])


class FragmentationBound:
    """All larger sizes that are promised in one domain, as somebody with smaller pods sees them."""

    def __init__(self, size: int, rooms: NodeAvailability, occupants: Sequence[PromisedPods]) -> None:
        self._size = size
        self._larger = [
            LargerPodPromises(above, rooms, occupants)
            for above in sorted({one.size for one in occupants if one.size > size})
        ]

    def pods(
        self, disruption: Disruption, at: int, end: int, most: int, mine: PromisedPods | None = None
    ) -> int:
        """How many of these pods somebody may have from ``at`` to ``end``; its own promise is no obstacle."""
        for one in self._larger:
            found = one.pods(disruption, at, end, self._size, mine)
            most = most if found is None else min(most, found)
        return most

    def beside(self, at: int, end: int) -> list[int]:
        """Per node, GPUs that break up no larger pod of any size."""
        found = [one.beside(at, end) for one in self._larger]
        return [min(gpus) for gpus in zip(*found, strict=True)]
