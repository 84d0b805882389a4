"""Checks which fields of an object may change.

The owner of a Run never changes. While a Run is running, only the desired width and a lower ``maxDuration``
may change. The spec of a Lease never changes, and a Lease is closed once. Only the date and the intended
slice of a Reservation may change.
"""

from collections.abc import Iterator

import msgspec

from jobtree.api.kinds.budget import Budget
from jobtree.api.kinds.lease import Lease
from jobtree.api.kinds.reservation import Reservation
from jobtree.api.kinds.run import Run
from jobtree.api.kinds.run_cel_rules import RUNNING_RULE
from jobtree.api.schema.object_meta import Wire, wire_name
from jobtree.api.schema.packed_template import unpack
from jobtree.api.schema.problems import ABSENT, Problem, shown
from jobtree.api.schema.quantities import parse_duration

MOVABLE = ("spec.earliestStart", "spec.intendedSlice")
DESIRED = "spec.malleable.desiredTotalGPUs"
MAX_DURATION = "spec.runtime.maxDuration"


def validate_update(
    old: Budget | Run | Reservation | Lease, new: Budget | Run | Reservation | Lease
) -> list[Problem]:
    """Returns the changes between two versions of an object that are not allowed."""
    match old, new:
        case Run(), Run():
            return list(_run_changes(old, new))
        case Lease(), Lease():
            return list(_lease_changes(old, new))
        case Reservation(), Reservation():
            return list(_reservation_changes(old, new))
    return []


def is_running(run: Run) -> bool:
    """Whether a Run has leases: from its commit point until it is finished."""
    status = run.status
    return status.phase == "Running" or (
        status.allocation is not None and status.phase not in ("Completed", "Failed")
    )


def _run_changes(old: Run, new: Run) -> Iterator[Problem]:
    if old.spec.owner != new.spec.owner:
        yield Problem("spec.owner", new.spec.owner, f"owner never changes (it is {old.spec.owner})")
    if not is_running(old):
        return
    for field, before, after in _changes("spec", old.spec, new.spec):
        if field in ("spec.owner", DESIRED) or (field == MAX_DURATION and _is_no_higher(before, after)):
            continue
        yield Problem(field, _present(after), f"{RUNNING_RULE} (it was {_shown(before)})")


def _is_no_higher(before: object, after: object) -> bool:
    """Whether a limit did not rise. No limit is the highest; the same limit may be written differently."""
    if not isinstance(after, str):
        return False
    return not isinstance(before, str) or parse_duration(after) <= parse_duration(before)


def _lease_changes(old: Lease, new: Lease) -> Iterator[Problem]:
    for field, before, after in _changes("spec", old.spec, new.spec):
        yield Problem(field, _present(after), f"a Lease's spec never changes (it is {_shown(before)})")
    for field, before, after in _changes("status", old.status, new.status):
        if before is not None:
            yield Problem(field, _present(after), f"is written once (it is {_shown(before)})")


def _reservation_changes(old: Reservation, new: Reservation) -> Iterator[Problem]:
    for field, before, after in _changes("spec", old.spec, new.spec):
        if not field.startswith(MOVABLE):
            rule = "only earliestStart and intendedSlice of a Reservation may change"
            yield Problem(field, _present(after), f"{rule} (it is {_shown(before)})")


def _changes(path: str, old: Wire, new: Wire) -> Iterator[tuple[str, object, object]]:
    """Yields the fields that differ, nested ones where both sides have a struct."""
    for field in old.__struct_fields__:
        before, after = getattr(old, field), getattr(new, field)
        where = f"{path}.{wire_name(field)}"
        if isinstance(before, Wire) and isinstance(after, Wire):
            yield from _changes(where, before, after)
        elif before != after:
            yield where, before, after


def _present(value: object) -> object:
    return ABSENT if value is None else msgspec.to_builtins(value, enc_hook=unpack)


def _shown(value: object) -> str:
    return "absent" if value is None else shown(msgspec.to_builtins(value, enc_hook=unpack))
