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
from collections.abc import Iterator, Sequence

import msgspec

from jobtree.core.accounts.budget_timeline import CumulativeSum
from jobtree.core.availability.misfit_pods import PromisedPods
from jobtree.core.availability.node_availability import NodeAvailability
from jobtree.core.model.promise import Disruption


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
