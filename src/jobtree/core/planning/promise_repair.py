"""Moves promises that can no longer be kept, in the order in which they were made (R5).

The promises on nodes and envelopes that changed are checked, and those that a pass has disturbed: the others
can be kept, so a world that is loaded again and checks all of them plans the same. What an interim
Run uses counts until its own promise is due.
"""

from jobtree.core.model.reasons import Cause, Reason
from jobtree.core.operations.promise_changes import broken_reason_and_certainty, replace_payers
from jobtree.core.operations.reclaim import end_if_in_the_way, requeue
from jobtree.core.operations.stage_gang_promise import search_again_for_gang
from jobtree.core.operations.trial import Trial
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.world import World


def repair_promises(trial: Trial) -> None:
    """Repairs promises before any Run starts: after edits, lost nodes and timers."""
    world, disturbed = trial.world, trial.disturbed_runs()
    changed = world.promises_to_check
    checks_any = world.recheck_all_promises or world.edited_runs or changed or disturbed
    for run in runs_by_promise_order(world) if checks_any else ():
        is_checked = world.recheck_all_promises or run.key in changed or run.key in disturbed
        if run.key in world.edited_runs and run.waiting:
            search_again_for_gang(trial, run, Reason.EDITED)
        elif not is_checked or not repair_promise(trial, run):
            continue
        disturbed = trial.disturbed_runs()


def repair_disturbed_promises(trial: Trial) -> None:
    """Repairs promises that starts of this pass crowded out: promises count GPUs, starts take nodes."""
    world, disturbed = trial.world, trial.disturbed_runs()
    for run in runs_by_promise_order(world) if disturbed else ():
        if run.key in disturbed and repair_promise(trial, run):
            disturbed = trial.disturbed_runs()


def repair_promise(trial: Trial, run: RunState) -> bool:
    """Moves a promise that cannot be kept, with the reason, or changes its payers; returns whether it did."""
    reason, surely_paid = broken_reason_and_certainty(trial.world, run)
    if reason is None and (surely_paid or not replace_payers(trial, run)):
        return False
    if reason is not None and run.is_partly_opportunistic:
        search_again_as_if_released(trial, run, reason)
        return True
    if reason is not None:
        search_again_for_gang(trial, run, reason)
    end_if_in_the_way(trial, run)
    return True


def search_again_as_if_released(trial: Trial, run: RunState, reason: Reason) -> None:
    """Promises another start to a partly opportunistic Run, as if it had released what it uses."""
    world, checkpoint = trial.world, trial.checkpoint()
    requeue(trial, run, world.now, Cause(Reason.RECLAIMED), "Reclaimed")
    search_again_for_gang(trial, run, reason)
    after = run.promise
    trial.rollback(checkpoint)
    assert after is not None
    trial.begin_action("Move", run, world.now, Cause(reason, after.name), promise=after)


def runs_by_promise_order(world: World) -> list[RunState]:
    """Runs with a promise, in the order in which the promises hold."""
    return [world.runs[creation_order[1:]] for _, _, creation_order in world.promise_order]
