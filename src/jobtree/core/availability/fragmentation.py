"""Bounds how many small pods fit without breaking up nodes that are promised to larger pods (R2, R6).

Promises are counted in GPUs per domain, but a pod of eight GPUs needs eight on one node. A Run with smaller
pods that starts earlier and does not end in time stays on a node that is free when it starts, not on one that
becomes free later. So of each node only those GPUs count that are left over beside whole larger pods, at
every instant at which such pods are promised to start. In addition, as many larger pods may be broken up as
no Run is promised.

No node is reserved: which nodes stay whole may change until the promise is due. Each larger pod size is
examined by itself, and every promise counts there as if it broke up nodes of its own.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

import msgspec

from jobtree.core.accounts.budget_timeline import CumulativeSum
from jobtree.core.model.promise import NO_DISRUPTION, Disruption

Release = tuple[str, int, tuple[int, int, int, int]]  # node, GPUs, and their release at each disruption


class PromisedPods(msgspec.Struct, frozen=True):
    """A promise as it counts in one domain for a Run with pods of a certain size.

    It counts in full, since the work that ends for it might have ended before anyway.
    """

    at: int
    end: int
    immune_until: int  # until when it cannot be drawn, at most its end
    pods: int  # in pods of that Run
    gpus: int
    size: int  # GPUs of its own pods


class NodeAvailability:
    """The GPUs that are free on each node at any future instant, if no promise counts."""

    def __init__(self, free: Mapping[str, int], releases: Sequence[Release]) -> None:
        self.nodes = tuple(free)
        self._free_now = [free[name] for name in self.nodes]
        self._releases = releases
        self._released_sums: dict[Disruption, list[tuple[list[int], list[int]]]] = {}
        self._free_gpus: dict[tuple[Disruption, int], list[int]] = {}
        self._remainders: dict[tuple[int, int], list[int]] = {}
        self._whole_pods: dict[tuple[int, int], int] = {}

    def whole_pods(self, size: int, instant: int) -> int:
        """Returns how many pods of that size fit at that instant."""
        cached = self._whole_pods.get((size, instant))
        if cached is None:
            pods = sum([gpus // size for gpus in self.free_gpus(NO_DISRUPTION, instant)])
            cached = self._whole_pods[size, instant] = pods
        return cached

    def remainder(self, size: int, instant: int) -> list[int]:
        """Returns the GPUs of each node that are left beside whole pods of that size at that instant."""
        cached = self._remainders.get((size, instant))
        if cached is None:
            gpus_by_node = self.free_gpus(NO_DISRUPTION, instant)
            cached = self._remainders[size, instant] = [gpus % size for gpus in gpus_by_node]
        return cached

    def gpus_beside_larger(self, size: int, at: int, starts: Iterable[int]) -> list[int]:
        """Returns, per node, the GPUs free at ``at`` that break up no pod of that size at these starts.

        Only free GPUs count, since it is not known on which nodes a lottery would end Runs.
        """
        remainders = [self.remainder(size, start) for start in starts]
        free_gpus = self.free_gpus(NO_DISRUPTION, at)
        return list(map(min, free_gpus, *remainders)) if remainders else free_gpus

    def free_gpus(self, disruption: Disruption, instant: int) -> list[int]:
        """Returns the GPUs that are free at that instant, in the order of the nodes."""
        cached = self._free_gpus.get((disruption, instant))
        if cached is None:
            pairs = zip(self._free_now, self._released_by_node(disruption), strict=True)
            cached = self._free_gpus[disruption, instant] = [
                max(0, free + sums[bisect_right(times, instant)]) for free, (times, sums) in pairs
            ]
        return cached

    def _released_by_node(self, disruption: Disruption) -> list[tuple[list[int], list[int]]]:
        """Returns, per node, the instants of releases and the sum of GPUs released up to each."""
        cached = self._released_sums.get(disruption)
        if cached is None:
            by_node: dict[str, list[tuple[int, int]]] = {name: [] for name in self.nodes}
            for node, gpus, releases in self._releases:
                by_node[node].append((releases[disruption], gpus))
            cached = []
            for name in self.nodes:
                released = sorted(by_node[name])
                sums = list(accumulate((gpus for _, gpus in released), initial=0))
                cached.append(([at for at, _ in released], sums))
            self._released_sums[disruption] = cached
        return cached


class LargerPodOverlap(msgspec.Struct, frozen=True):
    """Promises of one larger pod size that begin while a Run with smaller pods would run."""

    at: int  # the start of that Run
    size: int  # of its pods
    larger_size: int  # of the promised pods
    promised: Sequence[tuple[int, int]]  # each start of such a promise, and the whole pods promised then
    smaller_pods: int  # taken at ``at`` by promises with pods below the larger size, in pods of that Run

    def pods(self, availability: NodeAvailability, disruption: Disruption) -> int:
        """Returns how many pods the Run with smaller pods may have."""
        starts = (start for start, _ in self.promised)
        left_over = availability.gpus_beside_larger(self.larger_size, self.at, starts)
        unpromised = min(
            [availability.whole_pods(self.larger_size, start) - pods for start, pods in self.promised]
        )
        pods = sum([gpus // self.size for gpus in left_over])
        if unpromised > 0:
            pods += self._pods_in_broken_up(
                availability.free_gpus(disruption, self.at), left_over, unpromised
            )
        return pods - self.smaller_pods

    def _pods_in_broken_up(self, free_gpus: Sequence[int], left_over: Sequence[int], larger_pods: int) -> int:
        """Returns how many more pods fit if so many larger pods are broken up, those that give most first."""
        pods_in_larger = max(1, self.larger_size // self.size)
        whole, parts = 0, list[int]()
        for free, left in zip(free_gpus, left_over, strict=True):
            more, part = divmod(free // self.size - left // self.size, pods_in_larger)
            whole += more
            if part:
                parts.append(part)
        if whole >= larger_pods:
            return larger_pods * pods_in_larger
        return whole * pods_in_larger + sum(sorted(parts, reverse=True)[: larger_pods - whole])


class LargerPodPromises:
    """The promises of one larger pod size: when they start, and the whole pods that are promised then."""

    def __init__(self, size: int, availability: NodeAvailability, promises: Sequence[PromisedPods]) -> None:
        self._size, self._availability = size, availability
        self._count_by_start = Counter([promise.at for promise in promises if promise.size == size])
        self._starts = sorted(self._count_by_start)
        in_larger_pods = [(promise, -(-promise.gpus // size)) for promise in promises]
        begun = CumulativeSum((promise.at, pods) for promise, pods in in_larger_pods)
        ended = CumulativeSum((max(promise.at, promise.end), pods) for promise, pods in in_larger_pods)
        self._promised = [(at, begun.until(at) - ended.until(at)) for at in self._starts]
        self._of_smaller_pods = [promise for promise in promises if promise.size < size]

    def pods(
        self, disruption: Disruption, at: int, end: int, size: int, own: PromisedPods | None
    ) -> int | None:
        """Returns how many smaller pods a Run may have from ``at`` to ``end``; None: as many as fit.

        The promises limit it only if one of them starts in between. The Run's own promise does not limit it.
        """
        promised = self._promised[self._between(at, end)]
        smaller_pods = sum(
            -(-promise.gpus // size) for promise in self._of_smaller_pods if promise.at <= at < promise.end
        )
        if own is not None and promised:
            promised = list(self._without(own, promised))
            if own.size < self._size and own.at <= at < own.end:
                smaller_pods -= -(-own.gpus // size)
        if not promised:
            return None
        return LargerPodOverlap(at, size, self._size, promised, smaller_pods).pods(
            self._availability, disruption
        )

    def _without(self, own: PromisedPods, promised: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Yields the starts and the whole pods promised then, without one of the promises."""
        only_start = own.size == self._size and self._count_by_start[own.at] == 1
        own_pods = -(-own.gpus // self._size)
        for start, pods in promised:
            if not (only_start and start == own.at):
                yield start, pods - own_pods if own.at <= start < own.end else pods

    def _between(self, at: int, end: int) -> slice:
        return slice(bisect_right(self._starts, at), bisect_left(self._starts, end))

    def gpus_beside_larger(self, at: int, end: int) -> list[int]:
        """Returns, per node, the GPUs that break up no pod of this size promised to start in between."""
        return self._availability.gpus_beside_larger(self._size, at, self._starts[self._between(at, end)])


class FragmentationBound:
    """How many pods of one size fit beside the promises of all larger pod sizes in one domain."""

    def __init__(self, size: int, availability: NodeAvailability, promises: Sequence[PromisedPods]) -> None:
        self._size = size
        self._by_larger_size = [
            LargerPodPromises(larger_size, availability, promises)
            for larger_size in sorted({promise.size for promise in promises if promise.size > size})
        ]

    def pods(
        self, disruption: Disruption, at: int, end: int, most: int, own: PromisedPods | None = None
    ) -> int:
        """Returns how many pods, at most ``most``, a Run may have from ``at`` to ``end``.

        The Run's own promise does not limit it.
        """
        for promises in self._by_larger_size:
            pods = promises.pods(disruption, at, end, self._size, own)
            most = most if pods is None else min(most, pods)
        return most

    def gpus_beside_larger(self, at: int, end: int) -> list[int]:
        """Returns, per node, the GPUs that break up no larger pod of any size."""
        by_size = [promises.gpus_beside_larger(at, end) for promises in self._by_larger_size]
        return [min(gpus) for gpus in zip(*by_size, strict=True)]
