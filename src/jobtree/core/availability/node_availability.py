"""The GPUs that are free on each node of a domain at any future instant."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from jobtree.core.availability.node_shapes import NodeShapes
from jobtree.core.model.promise import NO_DISRUPTION, Disruption

Release = tuple[str, int, tuple[int, int, int, int]]  # node, GPUs, and their release at each disruption


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
        self._shapes: dict[tuple[Disruption, frozenset[Disruption], int], NodeShapes] = {}

    def shapes(self, disruption: Disruption, takes: frozenset[Disruption], instant: int) -> NodeShapes:
        """Returns the nodes by what is free on each at that instant, and by what misfits may take there."""
        key = (disruption, takes, instant)
        cached = self._shapes.get(key)
        if cached is None:
            free = takeable = self.free_gpus(disruption, instant)
            for other in sorted(takes):
                takeable = list(map(max, takeable, self.free_gpus(other, instant)))
            cached = self._shapes[key] = NodeShapes(free, takeable)
        return cached

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
