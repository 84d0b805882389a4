"""Checks open and closed leases: none ends before it starts, and those of a slot do not overlap (I1, I6)."""

from collections.abc import Iterable, Iterator
from itertools import pairwise

from jobtree.core.accounts.envelope_accounts import FOREVER
from jobtree.core.model.gpu_lease import GpuLease
from jobtree.core.reporting.invariants import Violation

Period = tuple[int, int, str]  # start, end, and name of the lease


def check_lease_history(leases: Iterable[tuple[GpuLease, int | None]]) -> list[Violation]:
    """Checks leases with their ends; an open lease has None."""
    backwards: list[Violation] = []
    periods: dict[tuple[str, int, bool], list[Period]] = {}  # by node, slot, and whether a spare holds it
    for lease, end in leases:
        if end is not None and end < lease.start:
            backwards.append(Violation("I6", f"{lease.name} ends {lease.start - end} ms before it starts"))
        for node, mask in lease.slots:
            for slot in range(mask.bit_length()):
                if mask >> slot & 1:
                    period = (lease.start, FOREVER if end is None else end, lease.name)
                    periods.setdefault((node, slot, lease.role == "Spare"), []).append(period)
    return [*backwards, *overlaps(periods)]


def overlaps(periods: dict[tuple[str, int, bool], list[Period]]) -> Iterator[Violation]:
    """Yields a violation for each pair of leases that overlap; a spare may share with opportunistic work."""
    reported: set[tuple[str, str]] = set()
    for (node, slot, _), of_slot in sorted(periods.items()):
        lasting = sorted(period for period in of_slot if period[0] < period[1])
        for (_, end, first), (start, _, second) in pairwise(lasting):
            if start < end and (first, second) not in reported:
                reported.add((first, second))
                yield Violation("I1", f"{first} and {second} overlap on slot {node}#{slot}")
