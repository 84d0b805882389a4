"""The allocation of a Run: its open leases, as its status holds them.

It is the commit point of a gang (specification section 10). It holds everything that a Lease object says of
an open lease, so leases and pods can be restored from it after a crash at any point.

A Run with many leases has them in a short form (H2): the terms that leases share once, and for each lease its
number, its terms, its group and its slots. Leases with other names, or with many slot ranges, keep the long
form. The same holds for closed leases whose Lease objects may still have to be updated.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import msgspec

from jobtree.api.kinds.lease import Payer
from jobtree.api.kinds.run import (
    MAX_ENTRY_LENGTH,
    AllocatedLease,
    Allocation,
    AllocationTerms,
    EndedLeases,
    Ending,
    Run,
)
from jobtree.api.schema.quantities import (
    format_milli,
    format_slots,
    format_time,
    parse_milli,
    parse_slots,
    parse_time,
)
from jobtree.core.model.gpu_lease import GpuLease, count_slots, lease_name, lease_number
from jobtree.core.runs.run_state import RunState

FEW_LEASES = 512  # so many are always in the long form


def build_allocation(run: RunState) -> Allocation | None:
    """Returns the allocation of a Run that runs; None of any other."""
    if run.phase != "Running" or run.since is None:
        return None
    in_order = sorted(run.leases.values(), key=lambda lease: lease.name)
    short = {} if len(in_order) <= FEW_LEASES else short_entries(in_order)
    terms = tuple(dict.fromkeys(terms_of(lease) for lease in in_order if lease.name in short))
    positions = {term: position for position, term in enumerate(terms)}
    return Allocation(
        since=format_time(run.since),
        promised_start=None if run.promised_start is None else format_time(run.promised_start),
        not_drawn_at=None if run.not_drawn_at is None else format_time(run.not_drawn_at),
        gpus_per_pod=run.pod_size,
        leases=tuple(allocated_lease(lease) for lease in in_order if lease.name not in short),
        terms=terms,
        entries=tuple(
            f"{lease_number(lease)} {positions[terms_of(lease)]} {short[lease.name]}"
            for lease in in_order
            if lease.name in short
        ),
    )


def short_entries(leases: Sequence[GpuLease]) -> dict[str, str]:
    """Returns the group and the slots of each lease that has a short form, by its name."""
    entries = {}
    for lease in leases:
        text = f"{lease.group} {','.join(slot_texts(lease))}"
        if has_usual_name(lease) and len(text) < MAX_ENTRY_LENGTH - 16:
            entries[lease.name] = text
    return entries


def has_usual_name(lease: GpuLease) -> bool:
    return lease.name == lease_name(lease.run_key[1], lease.uid, lease_number(lease))


def terms_of(lease: GpuLease) -> AllocationTerms:
    return AllocationTerms(
        role=lease.role,
        class_=lease.class_,
        payer=payer_of(lease),
        start=format_time(lease.start),
        rate=format_milli(lease.rate),
        reason=lease.reason,
    )


def payer_of(lease: GpuLease) -> Payer:
    budget, envelope = lease.payer
    return Payer(owner=lease.payer_owner, budget=budget, envelope=envelope)


def slot_texts(lease: GpuLease) -> tuple[str, ...]:
    return tuple(text for node, mask in lease.slots for text in format_slots(node, mask))


def leases_in_allocation(run_object: Run) -> list[GpuLease]:
    """Returns the open leases that the allocation of a Run holds."""
    allocation = run_object.status.allocation
    if allocation is None:
        return []
    return [
        lease_from_allocation(run_object, lease)
        for lease in (*allocation.leases, *long_forms(run_object, allocation))
    ]


def long_forms(run_object: Run, allocation: Allocation) -> Iterator[AllocatedLease]:
    """Yields the leases of an allocation that are in the short form."""
    metadata = run_object.metadata
    for entry in allocation.entries:
        number, position, group, slots = entry.split(" ")
        terms = allocation.terms[int(position)]
        yield AllocatedLease(
            name=lease_name(metadata.name, metadata.uid, int(number)),
            group=int(group),
            slots=tuple(slots.split(",")),
            **{field: getattr(terms, field) for field in AllocationTerms.__struct_fields__},
        )


def allocated_lease(lease: GpuLease) -> AllocatedLease:
    return AllocatedLease(
        name=lease.name,
        group=lease.group,
        role=lease.role,
        class_=lease.class_,
        payer=payer_of(lease),
        slots=slot_texts(lease),
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


# Closed leases whose Lease objects may still have to be updated


class Endings(msgspec.Struct, frozen=True):
    """Closed leases in the long form and in the short one."""

    closing: tuple[Ending, ...] = ()
    ended: tuple[EndedLeases, ...] = ()


def build_endings(run_object: Run, endings: Sequence[Ending]) -> Endings:
    if len(endings) <= FEW_LEASES:
        return Endings(tuple(endings))
    prefix = lease_name(run_object.metadata.name, run_object.metadata.uid, 0)[:-1]
    numbers: dict[tuple[str, str], list[int]] = {}
    long: list[Ending] = []
    for ending in endings:
        number = ending.lease.removeprefix(prefix)
        if ending.whole is None and number != ending.lease and number.isdecimal():
            numbers.setdefault((ending.end, ending.reason), []).append(int(number))
        else:
            long.append(ending)
    by_end = sorted(numbers)
    ended = [
        msgspec.convert(
            {"end": end, "reason": reason, "numbers": number_ranges(numbers[end, reason])}, EndedLeases
        )
        for end, reason in by_end
    ]
    return Endings(tuple(long), tuple(ended))


def number_ranges(numbers: Iterable[int]) -> list[str]:
    """Returns the ranges that hold exactly these numbers, such as 1-3 and 7."""
    ranges = []
    for _, pairs in groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0]):
        together = [number for _, number in pairs]
        ranges.append(str(together[0]) if len(together) == 1 else f"{together[0]}-{together[-1]}")
    return ranges


def endings_in_status(run_object: Run) -> list[Ending]:
    """Returns the closed leases that the status of a Run holds, all in the long form."""
    metadata, status = run_object.metadata, run_object.status
    endings = list(status.closing)
    for ended in status.ended:
        for numbers in ended.numbers:
            first, _, last = numbers.partition("-")
            endings += [
                Ending(
                    lease=lease_name(metadata.name, metadata.uid, number), end=ended.end, reason=ended.reason
                )
                for number in range(int(first), int(last or first) + 1)
            ]
    return endings
