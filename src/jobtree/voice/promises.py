"""What is said of promises: how a Reservation ends, and who might have to go for one."""

from jobtree.api.quantities import format_milli, format_time
from jobtree.api.reservation import ReservationState
from jobtree.api.run import Risk
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


def risks_of(world: World, state: RunState, promise: Promise) -> list[tuple[str, Risk]]:
    """Who might have to go for a promise, by UID, and with what probability."""
    if promise.at is None:
        return []
    at = format_time(promise.at)
    return [
        (uid, Risk(reservation=promise.name, at=at, kill_probability=format_milli(odds)))
        for uid, odds in sorted(outcome_of(world, state, promise).odds.items())
    ]
