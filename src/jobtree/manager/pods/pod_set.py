"""Derives the pods that a Run must have, and their nodes, from its leases.

Each rank has one pod, and so has each standby of a spare. A standby pod asks for no GPUs: a spare costs less
than a rank, and opportunistic work may use its slots (F1). The rank that is swapped in has a pod of its own.
"""

from collections.abc import Iterator

import msgspec

from jobtree.core import RunState, lease_number, pods_of


class PodPlacement(msgspec.Struct, frozen=True):
    """One pod. ``part`` names it among its Run's pods, ``host`` among its hostnames.

    ``rank`` is -1 for a standby.
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
        """Whether a pod on that node is right; a pod without GPUs may be on any node."""
        return self.node in ("", node)

    @property
    def host(self) -> str:
        return f"{self.group}-{self.group_rank}"


class PodSet(msgspec.Struct, frozen=True):
    """All pods of a Run in its present attempt."""

    attempt: int
    pod_size: int
    placements: tuple[PodPlacement, ...]
    ranks: int = 0  # their number, counted once because every pod needs it

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "ranks", sum(placement.is_rank for placement in self.placements))

    @property
    def first(self) -> PodPlacement:
        """Rank 0."""
        return self.placements[0]


NO_PODS = PodSet(0, 0, ())


def pod_set(run: RunState) -> PodSet:
    """Returns the pods that a Run must have; none if it does not run."""
    if run.phase != "Running" or not run.rank_slots:
        return NO_PODS
    return PodSet(run.attempt, run.pod_size, (*rank_placements(run), *standby_placements(run)))


def rank_placements(run: RunState) -> Iterator[PodPlacement]:
    for rank, ((group, group_rank), (node, mask)) in enumerate(run.rank_slots.items()):
        part = f"{group}-{group_rank}-{run.attempt}"
        yield PodPlacement(part, node, mask.bit_count(), group, rank, group_rank)


def standby_placements(run: RunState) -> Iterator[PodPlacement]:
    """Standby pods are named after their lease, because they stay through attempts."""
    for lease in sorted(run.leases.values(), key=lambda lease: lease.name):
        if lease.role != "Spare":
            continue
        for number, (node, _) in enumerate(pods_of(lease.slots, run.pod_size)):
            yield PodPlacement(f"spare-{lease_number(lease)}-{number}", node, 0, lease.group)
