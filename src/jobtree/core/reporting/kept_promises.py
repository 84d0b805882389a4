"""Finds promises whose Run started as promised and was stopped too soon (R5).

All that decides is in the Reservation, its Runs and their closed leases. So a manager that dies before it
records such a slip records it after its restart.
"""

from collections.abc import Iterator

import msgspec

from jobtree.api.kinds.reservation import Reservation, ReservationStatus, Slip
from jobtree.api.schema.quantities import parse_time
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.promise import MAX_SLIPS
from jobtree.core.runs.notice import kept_for_ms
from jobtree.core.runs.run_state import RunState
from jobtree.core.runs.run_tree import child_name
from jobtree.core.world.world import World


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
