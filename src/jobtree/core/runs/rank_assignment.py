"""Seats: which pod of a Run is which rank, and stays it.

A seat is a group and a place in it; hostnames are made of it. Leases come and go (another payer, a swap, a
shrink); a pod that keeps its slots keeps its seat, and a pod on new slots takes the first seat that is free
in its group. So a rank that is swapped to a spare keeps its number, its hostname and its group.
"""

from jobtree.api.schema.quantities import format_slots, parse_slots
from jobtree.core.model.gpu_lease import GpuLease, lease_number, pods_of
from jobtree.core.runs.run_state import GroupRank, PodSlots, RankSlots, RunState


def ranks_in_order(run: RunState) -> dict[GroupRank, tuple[str, PodSlots]]:
    """Every rank of the Run as its leases stand: its lease and its pod, in the order of ranks."""
    present: dict[tuple[int, PodSlots], str] = {}
    for lease in sorted(run.leases.values(), key=_by_age):
        if lease.role != "Spare":
            for pod in pods_of(lease.slots, run.pod_size or 1):
                present[lease.group, pod] = lease.name
    found: dict[GroupRank, tuple[str, PodSlots]] = {}
    for seat, pod in run.rank_slots.items():
        name = present.pop((seat[0], pod), None)
        if name is not None:
            found[seat] = (name, pod)
    index: dict[int, int] = {}
    for (group, pod), name in present.items():
        place = index.get(group, 0)
        while (group, place) in found:
            place += 1
        found[group, place] = (name, pod)
        index[group] = place + 1
    return dict(sorted(found.items()))


def _by_age(lease: GpuLease) -> tuple[int, int]:
    return (lease.group, lease_number(lease))


def reassign_ranks(run: RunState) -> None:
    """Leases opened or closed: seats follow. Pods without GPUs have a seat and no slots."""
    resources = run.run_object.spec.resources
    if run.cpu_only and resources is not None:
        run.assign_ranks({(0, place): ("", 0) for place in range(resources.pods or 1)})
        return
    run.assign_ranks({seat: pod for seat, (_, pod) in ranks_in_order(run).items()})


def rank_of(run: RunState, seat: GroupRank) -> int:
    """The number of a rank: ranks count from 0, without gaps, in the order of their seats."""
    return sum(other < seat for other in run.rank_slots)


def encode_ranks(seats: RankSlots) -> tuple[str, ...]:
    return tuple(
        f"{group}/{place} {'+'.join(format_slots(node, mask))}"
        for (group, place), (node, mask) in seats.items()
    )


def decode_ranks(written: tuple[str, ...]) -> RankSlots:
    """The seats as a status tells them; what cannot be read is left out, and seated again."""
    seats: RankSlots = {}
    for text in written:
        try:
            where, _, slots = text.partition(" ")
            group, _, place = where.partition("/")
            ((node, mask),) = parse_slots(tuple(slots.split("+"))).items()
            seats[int(group), int(place)] = (node, mask)
        except ValueError:
            continue
    return dict(sorted(seats.items()))


def restore_ranks(run: RunState) -> None:
    """Assigns the ranks as the status has them to pods that have none yet; leases may arrive one by one."""
    assigned = set(run.rank_slots.values())
    from_status = decode_ranks(run.run_object.status.ranks)
    missing = {rank: pod for rank, pod in from_status.items() if pod not in assigned}
    run.assign_ranks(missing | run.rank_slots)
