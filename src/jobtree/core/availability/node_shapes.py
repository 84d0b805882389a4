"""How many pods of one size are lost on nodes to pods of a size that does not divide it: a misfit (R2).

A pod of 4 GPUs takes half of a pod of 8, wherever it is. A pod of 6 on a node of 8 takes both pods of 4. So
pods of such sizes are counted by node shape: by the GPUs that are free on each node. A lottery may free these
nodes or those, so the count assumes that the misfits start where most pods are lost.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from itertools import combinations

PodsBySize = Mapping[int, int]


def is_misfit(size: int, other: int) -> bool:
    """Whether neither size divides the other."""
    return bool(size % other and other % size)


def has_misfits(sizes: Iterable[int]) -> bool:
    """Whether two of these sizes are misfits."""
    distinct = sorted(set(sizes))
    return any(is_misfit(size, other) for size, other in combinations(distinct, 2))


class NodeShapes:
    """The nodes of a domain at one instant, by the GPUs that are free and the GPUs that misfits may take.

    Misfits that start by lottery may take more than what is free, and free GPUs among it.
    """

    def __init__(self, free_gpus: Iterable[int], takeable_gpus: Iterable[int]) -> None:
        shapes = zip(free_gpus, takeable_gpus, strict=True)
        self._nodes_by_shape = Counter((free, takeable) for free, takeable in shapes if free)

    def pods(self, size: int) -> int:
        """Returns how many pods of that size fit."""
        return sum([free // size * nodes for (free, _), nodes in self._nodes_by_shape.items()])

    def most_lost(self, size: int, misfits: PodsBySize) -> int:
        """Returns how many pods of that size are lost at most to these pods, wherever they start.

        What a node has left over beside its pods of ``size`` lessens the loss once. So it is credited to the
        pods of one size only: to those that gain most by it.
        """
        if not misfits:
            return 0
        separately = self._lost_separately(size, misfits)
        gain = max(separately[other] - self._most_lost_to(size, other, misfits[other]) for other in misfits)
        return min(self.pods(size), sum(separately.values()) - gain)

    def most_lost_one_by_one(self, size: int, misfits: PodsBySize) -> int:
        """Returns how many are lost at most if nothing is known of the nodes but their size."""
        return sum(self._lost_separately(size, misfits).values())

    def _lost_separately(self, size: int, misfits: PodsBySize) -> dict[int, int]:
        """Returns how many are lost at most to each other size, if each of its pods starts by itself."""
        biggest = max((free for free, _ in self._nodes_by_shape), default=0)
        return {other: pods * most_lost_to_one(biggest, other, size) for other, pods in misfits.items()}

    def _most_lost_to(self, size: int, other: int, pods: int) -> int:
        """Returns how many are lost at most to so many pods of one other size."""
        steps = [
            (Fraction(lost, taken), taken, nodes)
            for (free, takeable), nodes in self._nodes_by_shape.items()
            for taken, lost in loss_steps(free, takeable // other, other, size)
        ]
        total = Fraction(0)
        for ratio, taken, nodes in sorted(steps, reverse=True):
            count = min(pods, taken * nodes)
            total += ratio * count
            pods -= count
        return int(total)


def pods_lost(free: int, gpus: int, size: int) -> int:
    """Returns how many pods of a size no longer fit on a node when so many of its GPUs are taken."""
    return free // size - max(0, free - gpus) // size


@lru_cache(maxsize=4_096)
def most_lost_to_one(biggest: int, other: int, size: int) -> int:
    """Returns how many pods of a size one other pod takes at most; no node has more than ``biggest`` free."""
    return max((pods_lost(free, other, size) for free in range(1, biggest + 1)), default=0)


@lru_cache(maxsize=4_096)
def loss_steps(free: int, most: int, other: int, size: int) -> tuple[tuple[int, int], ...]:
    """Returns the most pods of a size that a node loses as up to ``most`` pods of another size start there.

    Each step has pods of the other size and the pods lost to them, the most per pod first: the concave hull
    of the loss. So the most that several nodes lose is found step by step.
    """
    losses = [pods_lost(free, pods * other, size) for pods in range(most + 1)]
    steps: list[tuple[int, int]] = []
    at = 0
    while at + 1 < len(losses):
        best = max(
            range(at + 1, len(losses)), key=lambda to: (Fraction(losses[to] - losses[at], to - at), to)
        )
        steps.append((best - at, losses[best] - losses[at]))
        at = best
    return tuple(step for step in steps if step[1])
