"""The instants at which something happened, as they are written on objects.

A planning clock must not be earlier than the latest of them, or leases would end before they began. Instants
that lie in the future by intention, such as promised starts, are left out.
"""

from collections.abc import Iterable, Iterator

from jobtree.api.kinds.lease import Lease
from jobtree.api.kinds.reservation import Reservation
from jobtree.api.kinds.run import Allocation, Decided, Ending, Run
from jobtree.api.schema.quantities import parse_time


def latest_instant(leases: Iterable[Lease], runs: Iterable[Run], reservations: Iterable[Reservation]) -> int:
    """Returns the latest instant that is written on these objects, in ms; 0 if there is none."""
    texts = (
        *(text for lease in leases for text in (lease.spec.start, lease.status.end)),
        *(text for run in runs for text in _of_run(run)),
        *(text for reservation in reservations for text in _of_reservation(reservation)),
    )
    return max((parse_time(text) for text in set(texts) if text), default=0)


def _of_run(run: Run) -> Iterator[str | None]:
    status = run.status
    yield status.changed_at
    yield from (condition.last_transition_time for condition in status.conditions)
    yield from _of_leases(status.allocation, status.closing)
    for decided in status.decided:
        yield from _of_decision(decided)


def _of_reservation(reservation: Reservation) -> Iterator[str | None]:
    status = reservation.status
    yield status.terms.made if status.terms else None
    for decided in status.decided:
        yield from _of_decision(decided)


def _of_decision(decided: Decided) -> Iterator[str | None]:
    yield from (decided.since, decided.changed_at)
    yield from _of_leases(decided.allocation, decided.closing)


def _of_leases(allocation: Allocation | None, closing: tuple[Ending, ...]) -> Iterator[str | None]:
    if allocation is not None:
        yield from (lease.start for lease in allocation.leases)
    yield from (ending.end for ending in closing)
