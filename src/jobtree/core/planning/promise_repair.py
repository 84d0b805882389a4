"""Mending: promises that may be broken are looked at again, oldest first (R5).

After lost nodes or cut budgets all of them, else those that a pass has touched: the others hold, so a world
read anew from its objects, where all are looked at, plans the same. What a Run holds on sufferance counts
until its own promise is due.
"""

from jobtree.core.model.reasons import Cause, Reason
from jobtree.core.operations.promise_changes import broken_reason_and_certainty, replace_payers
from jobtree.core.operations.reclaim import requeue
from jobtree.core.operations.stage_gang_promise import search_again_for_gang
from jobtree.core.operations.trial import Trial
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.world import World


def repair_promises(trial: Trial) -> None:
    """Before anybody starts: what edits, lost nodes and whatever was due have done to promises."""
    world, disturbed = trial.world, trial.disturbed_runs()
    for run in (
        runs_by_promise_order(world) if world.recheck_all_promises or world.edited_runs or disturbed else ()
    ):
        if run.key in world.edited_runs and run.waiting:
            search_again_for_gang(trial, run, Reason.EDITED)
        elif not (world.recheck_all_promises or run.key in disturbed) or not repair_promise(trial, run):
            continue
        disturbed = trial.disturbed_runs()


def repair_disturbed_promises(trial: Trial) -> None:
    """Promises that starts of this very pass crowded out: counting is by GPUs, placing is by nodes."""
    world, disturbed = trial.world, trial.disturbed_runs()
    for run in runs_by_promise_order(world) if disturbed else ():
        if run.key in disturbed and repair_promise(trial, run):
            disturbed = trial.disturbed_runs()


def repair_promise(trial: Trial, run: RunState) -> bool:
    """Move a promise that cannot be kept as it stands, for what broke it; or let others pay for it."""
    found, surely_paid = broken_reason_and_certainty(trial.world, run)
    if found is None:
        return not surely_paid and replace_payers(trial, run)
    if run.is_partly_opportunistic:
        search_again_as_if_released(trial, run, found)
    else:
        search_again_for_gang(trial, run, found)
    return True


def search_again_as_if_released(trial: Trial, run: RunState, reason: Reason) -> None:
    """Promise another start to a Run that holds a part of it, as if it had given that back."""
    world, mark = trial.world, trial.checkpoint()
    requeue(trial, run, world.now, Cause(Reason.RECLAIMED), "Reclaimed")
    search_again_for_gang(trial, run, reason)
    after = run.promise
    trial.rollback(mark)
    assert after is not None
    trial.begin_action("Move", run, world.now, Cause(reason, after.name), promise=after)


def runs_by_promise_order(world: World) -> list[RunState]:
    """Runs with a promise, in the order in which the promises were made."""
    return [world.runs[order[1:]] for _, _, order in world.promise_order]
