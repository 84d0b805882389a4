"""The allocation of a Run: its open leases, as its status holds them.

It is the commit point of a gang (specification section 10). It holds everything that a Lease object says of
an open lease, so leases and pods can be restored from it after a crash at any point.
"""

from jobtree.api.kinds.lease import Payer
from jobtree.api.kinds.run import AllocatedLease, Allocation, Run
from jobtree.api.schema.quantities import (
    format_milli,
    format_slots,
    format_time,
    parse_milli,
    parse_slots,
    parse_time,
)
from jobtree.core.model.gpu_lease import GpuLease, count_slots
from jobtree.core.runs.run_state import RunState


def build_allocation(run: RunState) -> Allocation | None:
    """Returns the allocation of a Run that runs; None of any other."""
    if run.phase != "Running" or run.since is None:
        return None
    return Allocation(
        since=format_time(run.since),
        promised_start=None if run.promised_start is None else format_time(run.promised_start),
        not_drawn_at=None if run.not_drawn_at is None else format_time(run.not_drawn_at),
        gpus_per_pod=run.pod_size,
        leases=tuple(
            allocated_lease(lease) for lease in sorted(run.leases.values(), key=lambda lease: lease.name)
        ),
    )


def leases_in_allocation(run_object: Run) -> list[GpuLease]:
    """Returns the open leases that the allocation of a Run holds."""
    allocation = run_object.status.allocation
    return (
        []
        if allocation is None
        else [lease_from_allocation(run_object, lease) for lease in allocation.leases]
    )


def allocated_lease(lease: GpuLease) -> AllocatedLease:
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


def lease_from_allocation(run_object: Run, lease: AllocatedLease) -> GpuLease:
    slots = tuple(parse_slots(lease.slots).items())
    resources = run_object.spec.resources
    return GpuLease(
        name=lease.name,
        run_key=(run_object.metadata.namespace, run_object.metadata.name),
        uid=run_object.metadata.uid,
        owner=run_object.spec.owner,
        payer=(lease.payer.budget, lease.payer.envelope),
        payer_owner=lease.payer.owner,
        class_=lease.class_,
        role=lease.role,
        group=lease.group,
        flavor=(resources.gpu_type if resources else None) or "",
        slots=slots,
        gpus=count_slots(slots),
        start=parse_time(lease.start),
        rate=parse_milli(lease.rate),
        reason=lease.reason,
    )
