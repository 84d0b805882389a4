"""Mending: promises that may be broken are looked at again, oldest first (R5).

After lost nodes or cut budgets all of them, else those that a pass has touched: the others hold, so a world
read anew from its objects, where all are looked at, plans the same. What a Run holds on sufferance counts
until its own promise is due.
"""

from jobtree.core.model.reasons import Reason, Why
from jobtree.core.operations.promise_changes import flaw, refund
from jobtree.core.operations.reclaim import requeue
from jobtree.core.operations.stage_gang_promise import look_again
from jobtree.core.operations.trial import Trial
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.world import World


def mend_promises(trial: Trial) -> None:
    """Before anybody starts: what edits, lost nodes and whatever was due have done to promises."""
    world, disturbed = trial.world, trial.disturbed()
    for state in promised(world) if world.shaken or world.edited or disturbed else ():
        if state.key in world.edited and state.waiting:
            look_again(trial, state, Reason.EDITED)
        elif not (world.shaken or state.key in disturbed) or not mend(trial, state):
            continue
        disturbed = trial.disturbed()


def mend_disturbed(trial: Trial) -> None:
    """Promises that starts of this very pass crowded out: counting is by GPUs, placing is by nodes."""
    world, disturbed = trial.world, trial.disturbed()
    for state in promised(world) if disturbed else ():
        if state.key in disturbed and mend(trial, state):
            disturbed = trial.disturbed()


def mend(trial: Trial, state: RunState) -> bool:
    """Move a promise that cannot be kept as it stands, for what broke it; or let others pay for it."""
    found, surely_paid = flaw(trial.world, state)
    if found is None:
        return not surely_paid and refund(trial, state)
    if state.half_paid:
        look_again_from_outside(trial, state, found)
    else:
        look_again(trial, state, found)
    return True


def look_again_from_outside(trial: Trial, state: RunState, reason: Reason) -> None:
    """Promise another start to a Run that holds a part of it, as if it had given that back."""
    world, mark = trial.world, trial.mark()
    requeue(trial, state, world.now, Why(Reason.RECLAIMED), "Reclaimed")
    look_again(trial, state, reason)
    after = state.promise
    trial.rollback(mark)
    assert after is not None
    trial.act("Move", state, world.now, Why(reason, after.name), promise=after)


def promised(world: World) -> list[RunState]:
    """Runs with a promise, in the order in which the promises were made."""
    return [world.runs[order[1:]] for _, _, order in world.ranks]
