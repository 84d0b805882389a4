"""The allocation of a Run: its open leases and its ranks, as its status holds them.

It is the commit point of a gang (SPEC section 10): all that a Lease object says of an open lease can be
read back from here, so leases and pods follow from it after a crash at any point.

A rank stays where it is for as long as its slots are the Run's. One that lost its slots gets those that came
in their place, and only where a Run becomes narrower do its highest ranks move down.
"""

from collections.abc import Iterable, Sequence

from jobtree.api.lease import Payer
from jobtree.api.quantities import (
    format_milli,
    format_slots,
    format_time,
    parse_milli,
    parse_slots,
    parse_time,
)
from jobtree.api.run import AllocatedLease, Allocation, Run
from jobtree.core.lease import Lease, count, pods_of

PodSlots = tuple[str, int]  # node and mask of one pod's slots


def rank_leases(leases: Iterable[Lease]) -> list[Lease]:
    """The leases of a Run's ranks, lowest rank first, as long as no rank had to move."""
    found = [lease for lease in leases if lease.role != "Spare"]
    return sorted(found, key=lambda lease: (lease.group, lease.start, lease.name))


def assign_ranks(before: Sequence[PodSlots], leases: Iterable[Lease], pod_size: int) -> tuple[PodSlots, ...]:
    """The slots of every rank of these leases, given where the ranks were before."""
    pods = [pod for lease in rank_leases(leases) for pod in pods_of(lease.slots, pod_size)]
    there = dict.fromkeys(pods)
    kept = [pod if pod in there else None for pod in before[: len(there)]]
    for pod in kept:
        there.pop(pod, None)  # type: ignore[arg-type]
    rest = iter(there)
    return (*(next(rest) if pod is None else pod for pod in kept), *rest)


def allocation_of(
    leases: Iterable[Lease], ranks: Iterable[PodSlots], since: int, pod_size: int
) -> Allocation:
    return Allocation(
        since=format_time(since),
        gpus_per_pod=pod_size,
        leases=tuple(_to_wire(lease) for lease in sorted(leases, key=lambda lease: lease.name)),
        ranks=tuple(format_rank(pod) for pod in ranks),
    )


def leases_of(run: Run) -> list[Lease]:
    """The open leases that a Run's allocation holds."""
    allocation = run.status.allocation
    return [] if allocation is None else [_from_wire(run, lease) for lease in allocation.leases]


def ranks_of(allocation: Allocation | None) -> tuple[PodSlots, ...]:
    return () if allocation is None else tuple(parse_rank(text) for text in allocation.ranks)


def format_rank(pod: PodSlots) -> str:
    """``gpu-a-01#0-1,3``: the slots of one pod."""
    node, mask = pod
    ranges = (text.rpartition("#")[2] for text in format_slots(node, mask))
    return f"{node}#{','.join(ranges)}"


def parse_rank(text: str) -> PodSlots:
    node, _, ranges = text.partition("#")
    ((_, mask),) = parse_slots([f"{node}#{part}" for part in ranges.split(",")]).items()
    return node, mask


def _to_wire(lease: Lease) -> AllocatedLease:
    budget, envelope = lease.payer
    return AllocatedLease(
        name=lease.name,
        group=lease.group,
        role=lease.role,
        class_=lease.class_,
        payer=Payer(owner=lease.payer_owner, budget=budget, envelope=envelope),
        slots=tuple(text for node, mask in lease.slots for text in format_slots(node, mask)),
        start=format_time(lease.start),
        rate=format_milli(lease.rate),
        reason=lease.reason,
    )


def _from_wire(run: Run, lease: AllocatedLease) -> Lease:
    slots = tuple(parse_slots(lease.slots).items())
    resources = run.spec.resources
    return Lease(
        name=lease.name,
        run=(run.metadata.namespace, run.metadata.name),
        uid=run.metadata.uid,
        owner=run.spec.owner,
        payer=(lease.payer.budget, lease.payer.envelope),
        payer_owner=lease.payer.owner,
        class_=lease.class_,
        role=lease.role,
        group=lease.group,
        flavor=(resources.gpu_type if resources else None) or "",
        slots=slots,
        gpus=count(slots),
        start=parse_time(lease.start),
        rate=parse_milli(lease.rate),
        reason=lease.reason,
    )
