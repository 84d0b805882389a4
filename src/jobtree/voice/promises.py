"""What is said of promises: how a Reservation ends, and who might have to go for one."""

from collections.abc import Callable, Iterator

from jobtree.api.quantities import format_milli, format_time
from jobtree.api.reservation import ReservationState
from jobtree.api.run import Risk
from jobtree.core.lease import RunKey
from jobtree.core.promise import Promise
from jobtree.core.reservations import outcome_of
from jobtree.core.runs import RunState
from jobtree.core.world import World

ENDS: dict[str, ReservationState] = {
    "Activate": "Activated",
    "Settle": "Activated",
    "Supersede": "Superseded",
    "Withdraw": "Cancelled",
}


def threatened_by(
    world: World, key_of: Callable[[str], RunKey], state: RunState, promise: Promise
) -> Iterator[tuple[RunKey, Risk]]:
    """Who might have to go for a promise, with what probability, and all stages that would go with it.

    ``key_of`` names a Run by its UID.
    """
    if promise.at is None:
        return
    at = format_time(promise.at)
    for uid, odds in sorted(outcome_of(world, state, promise).odds.items()):
        risk = Risk(reservation=promise.name, at=at, kill_probability=format_milli(odds))
        for other in world.kin.members(world.runs[key_of(uid)]):
            yield other.key, risk
