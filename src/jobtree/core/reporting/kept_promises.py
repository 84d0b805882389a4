"""Judges promises whose date has passed (R5), from Reservations, their Runs and the leases of these.

A Run that started as promised and was stopped too soon is a slip of its Reservation. A manager that dies
before it records such a slip records it after its restart. ``judge_promises`` checks all of this again, from
the leases alone (I8).
"""

from collections.abc import Iterable, Iterator

import msgspec

from jobtree.api.kinds.lease import ClosureReason
from jobtree.api.kinds.reservation import Reservation, ReservationStatus, Slip
from jobtree.api.schema.quantities import MINUTE, format_time, parse_time
from jobtree.core.funding.conditional_promise import is_conditional
from jobtree.core.model.gpu_lease import GpuLease, RunKey
from jobtree.core.model.outcomes import RUN_END_CLOSURES
from jobtree.core.model.promise import MAX_SLIPS
from jobtree.core.reporting.invariants import Violation
from jobtree.core.reporting.reservation_codec import promise_from_reservation
from jobtree.core.runs.notice import kept_for_ms
from jobtree.core.runs.run_state import FINISHED, RunState
from jobtree.core.runs.run_tree import child_name
from jobtree.core.world.world import World

ON_TIME_MS = MINUTE  # a start is written a moment after its date, or later if the manager was down


def status_after_stop(world: World, reservation: Reservation) -> ReservationStatus | None:
    """Returns the status with a slip if the Run was stopped too soon after its promised start.

    None: it was not, or the slip is recorded already.
    """
    slips = (early_stop(world, run, reservation) for run in runs_of(world, reservation))
    slip = next((slip for slip in slips if slip is not None), None)
    before = reservation.status
    if slip is None or slip in before.slips:
        return None
    kept = before.slips if len(before.slips) < MAX_SLIPS else (before.slips[0], *before.slips[2:])
    return msgspec.structs.replace(before, slips=(*kept, slip))


def early_stop(world: World, run: RunState, reservation: Reservation) -> Slip | None:
    """Returns the slip of a Run that started as promised and was stopped too soon."""
    date = reservation.spec.earliest_start
    if reservation.status.state != "Activated" or date is None:
        return None
    due = parse_time(date)
    stop = world.run_history.last_stop(run.owner, run.uid, due)
    if stop is None or stop[0] >= due + kept_for_ms(world.policy, run.checkpoint_ms):
        return None
    if run.phase == "Running" and run.since is not None and run.since < stop[0]:
        return None  # it lost only a part of its leases
    return Slip(reason=stop[1], from_=date)


def runs_of(world: World, reservation: Reservation) -> Iterator[RunState]:
    """Yields the Run of a Reservation, or the stages that it starts together, if they still exist."""
    reference = reservation.spec.run_ref
    for stage in reservation.spec.members or ("",):
        name = child_name(reference.name, stage) if stage else reference.name
        run = world.runs.get((reservation.metadata.namespace, name))
        if run is not None and (stage or run.uid == reference.uid):
            yield run


def reservations_of(world: World, run: RunState) -> Iterator[RunKey]:
    """Yields namespace and name of the Reservations of a Run, the last first; its tree may hold them."""
    tree = world.run_graph.tree_of(run) if run.gang else None
    for number in range(run.reservations_made, 0, -1):
        yield run.key[0], f"{(tree or run).key[1]}-{number}"


class PastLease(msgspec.Struct, frozen=True):
    """A lease with its end and closure reason; None while it is open."""

    lease: GpuLease
    end: int | None
    reason: ClosureReason | None

    def covers(self, at: int) -> bool:
        return self.lease.start <= at and (self.end is None or at < self.end)


class PromiseCount(msgspec.Struct):
    """Promises of one confidence whose date has passed."""

    kept: int = 0
    broken: int = 0


class Judgement(msgspec.Struct):
    firm: PromiseCount
    conditional: PromiseCount
    violations: list[Violation]


def judge_promises(
    world: World, reservations: Iterable[Reservation], leases: Iterable[PastLease]
) -> Judgement:
    """Counts the promises whose Runs exist and whose leases are not archived.

    I8: a promise that was not kept has a slip.
    """
    by_uid: dict[str, list[PastLease]] = {}
    for lease in leases:
        if lease.lease.role != "Spare":
            by_uid.setdefault(lease.lease.uid, []).append(lease)
    result = Judgement(PromiseCount(), PromiseCount(), [])
    for reservation in reservations:
        for run in runs_of(world, reservation):
            judge(world, run, reservation, by_uid.get(run.uid, []), result)
    return result


def judge(
    world: World, run: RunState, reservation: Reservation, leases: list[PastLease], result: Judgement
) -> None:
    """Judges the promise to one Run once nothing can break it any more, unless it was withdrawn."""
    status, date, now = reservation.status, reservation.spec.earliest_start, world.now
    slips = [parse_time(slip.from_) for slip in status.slips if slip.from_]
    first = min([*slips, *([parse_time(date)] if date else [])], default=None)
    guard = kept_for_ms(world.policy, run.checkpoint_ms)
    if first is None or status.state == "Cancelled" or not first + guard <= now:
        return
    if first + world.policy.lease_retention_ms <= now:
        return  # its leases may be archived
    promise = promise_from_reservation(reservation, run, stage_in(reservation, run))
    count = result.conditional if is_conditional(world, promise) else result.firm
    missing = None if slips else what_broke(run, leases, first, first + guard, promise.width)
    if slips or missing is not None:
        count.broken += 1
    else:
        count.kept += 1
    if missing is not None and status.state == "Activated":
        name = "/".join((run.key[0], reservation.metadata.name))
        result.violations.append(
            Violation("I8", f"{name} was due at {format_time(first)}, {missing}, and no slip says so")
        )


def stage_in(reservation: Reservation, run: RunState) -> str:
    """Returns the stage of a Run in a Reservation of several; else nothing."""
    if not reservation.spec.members:
        return ""
    return run.key[1].removeprefix(f"{reservation.spec.run_ref.name}-")


def what_broke(run: RunState, leases: list[PastLease], due: int, until: int, width: int) -> str | None:
    """Says why a promise was not kept: its Run did not run as promised, or was stopped; None if it was."""
    if run.phase in FINISHED and all(lease.end is not None and lease.end <= due for lease in leases):
        return None
    starts = {due, *(lease.lease.start for lease in leases if due < lease.lease.start <= due + ON_TIME_MS)}
    paid = max(paid_width(leases, at) for at in starts)
    if paid < width:
        return f"its Run had {paid} of {width} paid GPUs"
    for lease in leases:
        end, reason = lease.end, lease.reason
        if end is None or not due <= end < until or reason in RUN_END_CLOSURES:
            continue
        if not any(other.covers(end) for other in leases):
            return f"its Run was stopped at {format_time(end)} ({reason})"
    return None


def paid_width(leases: Iterable[PastLease], at: int) -> int:
    return sum(lease.lease.gpus for lease in leases if lease.lease.role == "Active" and lease.covers(at))
