"""Counts promises whose pod sizes do not divide each other: misfits (R2).

A promise is counted when it starts, in its own pods: beside all that was promised to start earlier and will
still run. So it fits, wherever the others were placed.
"""

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush

import msgspec

from jobtree.core.availability.node_availability import NodeAvailability
from jobtree.core.availability.node_shapes import PodsBySize, is_misfit
from jobtree.core.model.promise import LOTTERY, NO_DISRUPTION, RECALL, Disruption, Precedence

ANY_DISRUPTION = frozenset({LOTTERY, RECALL})


class PromisedPods(msgspec.Struct, frozen=True):
    """A promise as it counts in one domain.

    It counts in full, since the work that ends for it might have ended before anyway.
    """

    at: int
    end: int
    immune_until: int  # until when it cannot be drawn, at most its end
    gpus: int
    size: int  # GPUs of its pods
    disruption: Disruption
    precedence: Precedence

    @property
    def pods(self) -> int:
        """How many pods of its own size it has."""
        return self.gpus // self.size

    def until(self, disruption: Disruption) -> int:
        """Until when its GPUs cannot be taken with that disruption."""
        return max(self.at, self.immune_until if disruption == LOTTERY else self.end)

    def pods_of(self, size: int) -> int:
        """How many pods of a size it takes that divides its own or is a multiple of it."""
        return -(-self.gpus // size)


class PodsBeside(msgspec.Struct, frozen=True):
    """A promise and what runs beside it when it starts: what starts earlier and has not ended."""

    promise: PromisedPods
    fitting: int  # pods of its size that these take, if their size is no misfit
    misfits: PodsBySize
    misfits_take: frozenset[Disruption]  # what the misfits take from others

    def room(
        self, availability: NodeAvailability, disruption: Disruption, more: PodsBySize | None = None
    ) -> int:
        """Returns how many pods of its size are left for others, also beside more misfits; may be negative.

        It is not known on which nodes ``more`` start, nor by which disruption.
        """
        size, misfits = self.promise.size, self.misfits if more is None else {**self.misfits, **more}
        takes = self.misfits_take if more is None else ANY_DISRUPTION
        shapes = availability.shapes(disruption, takes, self.promise.at)
        return shapes.pods(size) - shapes.most_lost(size, misfits) - self.fitting - self.promise.pods

    def most_pods(self, availability: NodeAvailability, size: int, most: int) -> int:
        """Returns how many pods of that size, at most ``most``, may start earlier and still run then."""
        if not is_misfit(size, self.promise.size):
            return min(most, max(0, self.room(availability, NO_DISRUPTION)) * self.promise.size // size)
        already, low, high = self.misfits.get(size, 0), 0, most
        while low < high:
            middle = (low + high + 1) // 2
            if self.room(availability, NO_DISRUPTION, {size: already + middle}) >= 0:
                low = middle
            else:
                high = middle - 1
        return low


def pods_beside(promised: Iterable[PromisedPods], disruption: Disruption) -> Iterator[PodsBeside]:
    """Yields each promise with what runs beside it when it starts; of one instant, the first made first.

    What that disruption may take does not run any more.
    """
    ordered = sorted(promised, key=lambda promise: (promise.at, promise.precedence))
    sizes = {promise.size for promise in ordered}
    fitting = dict.fromkeys(sizes, 0)
    pods: dict[tuple[int, Disruption], int] = {}
    running: list[tuple[int, int, PromisedPods]] = []

    def count(promise: PromisedPods, sign: int) -> None:
        key = (promise.size, promise.disruption)
        pods[key] = pods.get(key, 0) + sign * promise.pods
        for size in sizes:
            if not is_misfit(size, promise.size):
                fitting[size] += sign * promise.pods_of(size)

    for number, promise in enumerate(ordered):
        while running and running[0][0] <= promise.at:
            count(heappop(running)[2], -1)
        misfits: dict[int, int] = {}
        takes: set[Disruption] = set()
        for (size, taken), number_of_pods in pods.items():
            if number_of_pods and is_misfit(size, promise.size):
                misfits[size] = misfits.get(size, 0) + number_of_pods
                takes.add(taken)
        yield PodsBeside(promise, fitting[promise.size], misfits, frozenset(takes))
        heappush(running, (promise.until(disruption), number, promise))
        count(promise, 1)


def pods_by_size(promised: Iterable[PromisedPods]) -> dict[int, int]:
    """Returns the pods of these promises by their size."""
    pods: dict[int, int] = {}
    for promise in promised:
        pods[promise.size] = pods.get(promise.size, 0) + promise.pods
    return pods


class MisfitBound:
    """How many pods of one size may start where promises of misfits count."""

    def __init__(self, size: int, availability: NodeAvailability, promised: Sequence[PromisedPods]) -> None:
        self._size, self._availability, self._promised = size, availability, promised
        self._misfits = [promise for promise in promised if is_misfit(size, promise.size)]
        self._affected: dict[PromisedPods | None, list[PodsBeside]] = {}  # by own promise

    def lost_at(self, disruption: Disruption, at: int, own: PromisedPods | None) -> int:
        """Returns how many pods are lost at most to the misfits that run at that instant."""
        running = [
            promise
            for promise in self._misfits
            if promise.at <= at < promise.until(disruption) and promise != own
        ]
        return self._lost_to(running, disruption, at)

    def lost_before(self, at: int, precedence: Precedence) -> int:
        """Returns the same for the misfits that start before a promise of that instant and precedence."""
        running = [
            promise
            for promise in self._misfits
            if at < promise.end and (promise.at, promise.precedence) < (at, precedence)
        ]
        return self._lost_to(running, NO_DISRUPTION, at)

    def lost_in_peace(self, at: int, since: int, own: PromisedPods | None) -> int:
        """Returns a bound of the same for a lottery that draws only whom one at ``since`` could not."""
        running = [
            promise
            for promise in self._misfits
            if promise.at <= at
            and promise.end > since
            and not since < promise.immune_until <= at
            and promise != own
        ]
        shapes = self._availability.shapes(LOTTERY, ANY_DISRUPTION, at)
        return shapes.most_lost_one_by_one(self._size, pods_by_size(running))

    def _lost_to(self, misfits: Sequence[PromisedPods], disruption: Disruption, at: int) -> int:
        if not misfits:
            return 0
        takes = frozenset(promise.disruption for promise in misfits)
        return self._availability.shapes(disruption, takes, at).most_lost(self._size, pods_by_size(misfits))

    def pods(self, at: int, end: int, most: int, own: PromisedPods | None) -> int:
        """Returns how many pods may run from ``at`` to ``end`` so that promises that start then still fit."""
        for beside in self._affected_without(own):
            if at < beside.promise.at < end:
                most = beside.most_pods(self._availability, self._size, most)
        return most

    def _affected_without(self, own: PromisedPods | None) -> list[PodsBeside]:
        """Returns the promises that misfits are beside, or whose pods are misfits."""
        cached = self._affected.get(own)
        if cached is None:
            others = [promise for promise in self._promised if promise != own]
            cached = self._affected[own] = [
                beside
                for beside in pods_beside(others, NO_DISRUPTION)
                if beside.misfits or is_misfit(self._size, beside.promise.size)
            ]
        return cached
