"""Places: every pod that a Run must have, and where.

A rank has one placement; so has every standby pod of a spare. While unpaid work uses a spare's slots, its
standby pod asks for no GPUs: the kubelet counts them (F1).
"""

from collections.abc import Callable, Iterator

import msgspec

from jobtree.core import RunState, lease_number, pods_of

SpareInUse = Callable[[str, int], bool]  # whether unpaid work uses slots of this node


class PodPlacement(msgspec.Struct, frozen=True):
    """One pod. ``part`` names it among its Run's pods, ``host`` among its hostnames.

    ``rank`` is -1 where it takes no part.
    """

    part: str
    node: str
    gpus: int  # that it asks for
    group: int
    rank: int = -1
    group_rank: int = 0

    @property
    def is_rank(self) -> bool:
        return self.rank >= 0

    def is_at(self, node: str) -> bool:
        """Whether a pod on that node is where it should be; without GPUs the cluster's scheduler chooses."""
        return self.node in ("", node)

    @property
    def host(self) -> str:
        return f"{self.group}-{self.group_rank}"


class PodSet(msgspec.Struct, frozen=True):
    """All pods of a Run in its present attempt."""

    attempt: int
    pod_size: int
    placements: tuple[PodPlacement, ...]
    ranks: int = 0  # counted once: every pod is told how many they are

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "ranks", sum(placement.is_rank for placement in self.placements))

    @property
    def first(self) -> PodPlacement:
        """Rank 0."""
        return self.placements[0]


NO_PODS = PodSet(0, 0, ())


def pod_set(run: RunState, lent: SpareInUse) -> PodSet:
    """The pods that follow from what a Run holds; none where it does not run."""
    if run.phase != "Running" or not run.rank_slots:
        return NO_PODS
    return PodSet(run.attempt, run.pod_size, (*rank_placements(run), *standby_placements(run, lent)))


def rank_placements(run: RunState) -> Iterator[PodPlacement]:
    for rank, ((group, placement), (node, mask)) in enumerate(run.rank_slots.items()):
        yield PodPlacement(
            f"{group}-{placement}-{run.attempt}", node, mask.bit_count(), group, rank, placement
        )


def standby_placements(run: RunState, lent: SpareInUse) -> Iterator[PodPlacement]:
    """Standby pods are named after their lease: they stay as they are through attempts."""
    for lease in sorted(run.leases.values(), key=lambda lease: lease.name):
        if lease.role != "Spare":
            continue
        for number, (node, mask) in enumerate(pods_of(lease.slots, run.pod_size)):
            idle = lent(node, mask)
            part = f"spare-{lease_number(lease)}-{number}" + ("-idle" if idle else "")
            yield PodPlacement(part, node, 0 if idle else mask.bit_count(), lease.group)
