"""What is said of promises: how a Reservation ends, and who might have to go for one."""

from collections.abc import Callable, Iterator

from jobtree.api.kinds.reservation import ReservationState
from jobtree.api.kinds.run import Risk
from jobtree.api.schema.quantities import format_milli, format_time
from jobtree.core import Promise, RunKey, RunState, World, reservation_forecast

FINAL_STATES: dict[str, ReservationState] = {
    "Activate": "Activated",
    "Settle": "Activated",
    "Supersede": "Superseded",
    "Withdraw": "Cancelled",
}


def runs_at_risk(
    world: World, key_of: Callable[[str], RunKey], run: RunState, promise: Promise
) -> Iterator[tuple[RunKey, Risk]]:
    """Who might have to go for a promise, with what probability, and all stages that would go with it.

    ``key_of`` names a Run by its UID.
    """
    if promise.at is None:
        return
    at = format_time(promise.at)
    for uid, odds in sorted(reservation_forecast(world, run, promise).odds.items()):
        risk = Risk(reservation=promise.name, at=at, kill_probability=format_milli(odds))
        for other in world.run_graph.members(world.runs[key_of(uid)]):
            yield other.key, risk
