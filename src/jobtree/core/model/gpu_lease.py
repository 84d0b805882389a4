"""The lease as the core uses it: integers, slots as bit masks, one payer.

A lease never changes. When it loses its payer or a slot it closes, and the rest continues as a new lease.
"""

from collections.abc import Collection, Iterator

import msgspec

from jobtree.api.kinds import lease as wire
from jobtree.api.schema.object_meta import ObjectMeta
from jobtree.api.schema.quantities import (
    format_milli,
    format_slots,
    format_time,
    parse_milli,
    parse_slots,
    parse_time,
)

RunKey = tuple[str, str]  # namespace, name
EnvelopeKey = tuple[str, str]  # budget, envelope
Slots = tuple[tuple[str, int], ...]  # node and mask of its slots, in rank order
GroupRank = tuple[int, int]  # a group, and the position of a pod in it


class GpuLease(msgspec.Struct, frozen=True):
    name: str
    run_key: RunKey
    uid: str
    owner: str
    payer: EnvelopeKey
    payer_owner: str
    class_: wire.LeaseClass
    role: wire.Role
    group: int
    flavor: str
    slots: Slots
    gpus: int
    start: int
    rate: int  # thousandths
    reason: wire.OpenReason

    @property
    def charge(self) -> int:
        """The cost for its payer, in thousandths of a GPU."""
        return self.gpus * self.rate


def lease_name(run_name: str, uid: str, number: int) -> str:
    """Returns the name of a lease of a Run."""
    return f"{run_name[:200].rstrip('.')}-{uid[:8]}-{number}"


def lease_number(lease: GpuLease) -> int:
    """Returns the number in the name of a lease, counted per Run from 1."""
    number = lease.name.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


def count_slots(slots: Slots) -> int:
    return sum(mask.bit_count() for _, mask in slots)


def lowest_bits(mask: int, count: int) -> int:
    chosen = 0
    for _ in range(count):
        low = mask & -mask
        chosen |= low
        mask ^= low
    return chosen


def pods_of(slots: Slots, pod_size: int) -> Iterator[tuple[str, int]]:
    """Yields the node and mask of each pod of a lease, in rank order."""
    for node, mask in slots:
        rest = mask
        while rest:
            pod = lowest_bits(rest, min(pod_size, rest.bit_count()))
            yield node, pod
            rest ^= pod


def join_pods(pods: Collection[tuple[str, int]]) -> Slots:
    joined: dict[str, int] = {}
    for node, mask in pods:
        joined[node] = joined.get(node, 0) | mask
    return tuple(joined.items())


def lease_from_object(lease: wire.Lease) -> GpuLease:
    spec = lease.spec
    slots = tuple(parse_slots(spec.slots).items())
    return GpuLease(
        name=lease.metadata.name,
        run_key=(spec.run_ref.namespace, spec.run_ref.name),
        uid=spec.run_ref.uid,
        owner=spec.owner,
        payer=(spec.payer.budget, spec.payer.envelope),
        payer_owner=spec.payer.owner,
        class_=spec.class_,
        role=spec.role,
        group=spec.group,
        flavor=spec.flavor,
        slots=slots,
        gpus=count_slots(slots),
        start=parse_time(spec.start),
        rate=parse_milli(spec.rate),
        reason=spec.reason,
    )


def lease_to_object(lease: GpuLease) -> wire.Lease:
    budget, envelope = lease.payer
    namespace, name = lease.run_key
    return wire.Lease(
        metadata=ObjectMeta(name=lease.name),
        spec=wire.LeaseSpec(
            run_ref=wire.RunRef(namespace=namespace, name=name, uid=lease.uid),
            owner=lease.owner,
            payer=wire.Payer(owner=lease.payer_owner, budget=budget, envelope=envelope),
            class_=lease.class_,
            role=lease.role,
            group=lease.group,
            flavor=lease.flavor,
            slots=tuple(text for node, mask in lease.slots for text in format_slots(node, mask)),
            start=format_time(lease.start),
            rate=format_milli(lease.rate),
            reason=lease.reason,
        ),
    )


def closed_lease_object(lease: wire.Lease, end: int, reason: wire.ClosureReason) -> wire.Lease:
    """Returns the lease with its end."""
    return msgspec.structs.replace(
        lease, status=wire.LeaseStatus(end=format_time(end), closure_reason=reason)
    )
