"""Assigns the pods of a Run to its ranks; a pod keeps its rank as long as it keeps its slots.

A group rank is a group and a position in it; the hostname of a pod is made of both. Leases close and others
open (another payer, a swap, a shrink). A pod that keeps its slots keeps its group rank, and a pod on new
slots takes the first free position of its group. So a rank that is swapped to a spare keeps its number, its
hostname and its group.
"""

from jobtree.api.schema.quantities import format_slots, parse_slots
from jobtree.core.model.gpu_lease import GpuLease, GroupRank, lease_number, pods_of
from jobtree.core.runs.run_state import PodSlots, RankSlots, RunState


def ranks_in_order(run: RunState) -> dict[GroupRank, tuple[str, PodSlots]]:
    """Returns the lease and the pod of each rank by the present leases of the Run, in the order of ranks."""
    unassigned: dict[tuple[int, PodSlots], str] = {}  # lease names by group and pod
    for lease in sorted(run.leases.values(), key=_by_age):
        if lease.role != "Spare":
            for pod in pods_of(lease.slots, run.pod_size or 1):
                unassigned[lease.group, pod] = lease.name
    ranks: dict[GroupRank, tuple[str, PodSlots]] = {}
    for group_rank, pod in run.rank_slots.items():
        name = unassigned.pop((group_rank[0], pod), None)
        if name is not None:
            ranks[group_rank] = (name, pod)
    next_positions: dict[int, int] = {}  # by group
    for (group, pod), name in unassigned.items():
        position = next_positions.get(group, 0)
        while (group, position) in ranks:
            position += 1
        ranks[group, position] = (name, pod)
        next_positions[group] = position + 1
    return dict(sorted(ranks.items()))


def _by_age(lease: GpuLease) -> tuple[int, int]:
    return (lease.group, lease_number(lease))


def reassign_ranks(run: RunState) -> None:
    """Updates the ranks after leases opened or closed; pods without GPUs have a rank and no slots."""
    resources = run.run_object.spec.resources
    if run.cpu_only and resources is not None:
        run.assign_ranks({(0, position): ("", 0) for position in range(resources.pods or 1)})
        return
    run.assign_ranks({group_rank: pod for group_rank, (_, pod) in ranks_in_order(run).items()})


def rank_of(run: RunState, group_rank: GroupRank) -> int:
    """Returns the number of a rank; ranks count from 0, without gaps, in the order of their group ranks."""
    return sum(other < group_rank for other in run.rank_slots)


def encode_ranks(rank_slots: RankSlots) -> tuple[str, ...]:
    """Returns the ranks as a status holds them, such as ``0/1 gpu-a-01#4-7``: group, position, slots."""
    return tuple(
        f"{group}/{position} {'+'.join(format_slots(node, mask))}"
        for (group, position), (node, mask) in rank_slots.items()
    )


def decode_ranks(entries: tuple[str, ...]) -> RankSlots:
    """Returns the ranks that a status holds, without the entries that cannot be read."""
    rank_slots: RankSlots = {}
    for entry in entries:
        try:
            group_rank, _, slots = entry.partition(" ")
            group, _, position = group_rank.partition("/")
            ((node, mask),) = parse_slots(tuple(slots.split("+"))).items()
            rank_slots[int(group), int(position)] = (node, mask)
        except ValueError:
            continue  # its pod is assigned a rank again
    return dict(sorted(rank_slots.items()))


def restore_ranks(run: RunState) -> None:
    """Assigns the ranks as the status has them to pods that have none yet; leases may arrive one by one."""
    assigned = set(run.rank_slots.values())
    from_status = decode_ranks(run.run_object.status.ranks)
    missing = {rank: pod for rank, pod in from_status.items() if pod not in assigned}
    run.assign_ranks(missing | run.rank_slots)
