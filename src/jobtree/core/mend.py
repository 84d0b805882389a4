"""Mending: promises that may be broken are looked at again, oldest first (R5).

After lost nodes or cut budgets all of them, else those that a pass has touched: the others hold, so a world
read anew from its objects, where all are looked at, plans the same. A Run on sufferance that holds a part of
what it is promised is judged as if it had given that back: so it is when its promise is due.
"""

from operator import itemgetter

from jobtree.core.giveway import requeue
from jobtree.core.jointly import look_again
from jobtree.core.reasons import Reason, Why
from jobtree.core.reserve import broken, refund
from jobtree.core.runs import RunState
from jobtree.core.trial import Trial
from jobtree.core.world import World


def mend_promises(trial: Trial) -> None:
    """Before anybody starts: what edits, lost nodes and whatever was due have done to promises."""
    world, disturbed = trial.world, trial.disturbed()
    for state in promised(world) if world.shaken or world.edited or disturbed else ():
        if state.key in world.edited and state.waiting:
            look_again(trial, state, Reason.EDITED)
        elif not (world.shaken or state.key in disturbed) or not mend(trial, state, refunds=True):
            continue
        disturbed = trial.disturbed()


def mend_disturbed(trial: Trial) -> None:
    """Promises that starts of this very pass crowded out: counting is by GPUs, placing is by nodes."""
    world, disturbed = trial.world, trial.disturbed()
    for state in promised(world) if disturbed else ():
        if state.key in disturbed and mend(trial, state, refunds=False):
            disturbed = trial.disturbed()


def mend(trial: Trial, state: RunState, *, refunds: bool) -> bool:
    """Move a promise that cannot be kept as it stands, for what broke it; or let others pay for it."""
    world, mark = trial.world, trial.mark()
    partly = state.half_paid
    if partly:
        requeue(trial, state, world.now, Why(Reason.RECLAIMED), "Reclaimed")
    found = broken(world, state)
    if found is not None:
        look_again(trial, state, found)
    mended = found is not None or (refunds and refund(trial, state))
    if partly:
        after = state.promise
        trial.rollback(mark)
        if mended and after is not None:
            trial.act("Move", state, world.now, Why(found or Reason.FUNDING_LOST, after.name), promise=after)
    return mended


def promised(world: World) -> list[RunState]:
    """Runs with a promise, in the order in which the promises were made."""
    found = [(state.promise.rank, state) for state in world.runs.values() if state.promise is not None]
    return [state for _, state in sorted(found, key=itemgetter(0))]
