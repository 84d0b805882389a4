"""Transitions: what an action does to the Run itself, tried or for good.

Each has an exact inverse: a plan tries actions on the world and takes them back. ``restore_state`` puts back
what the Run's ``progress`` was, and mends every index that depends on it. When an action is carried out for
good its leases go with it, and what is known of the past: how long leases lasted, which are closed, and when
Runs started.
"""

from typing import TYPE_CHECKING

from jobtree.core.model.actions import Action
from jobtree.core.model.gpu_lease import lease_number
from jobtree.core.model.outcomes import CLEARS_PROMISE, NEW_ATTEMPT_KINDS, PHASES, REQUEUES, SETS_PROMISE
from jobtree.core.runs.run_state import FINISHED, RunState, SavedRunState

if TYPE_CHECKING:
    from jobtree.core.world.world import World


def apply_transition(world: "World", run: RunState, action: Action) -> None:
    """Take the Run where the action leads."""
    phase = PHASES.get(action.kind, run.phase)
    if action.kind == "Reserve" and run.phase == "Pending":
        phase = "Reserved"
    if phase != run.phase:
        run.enter_phase(phase, action.at)
        if phase in FINISHED:
            world.run_lifecycle.recheck_dependents(run.key)
    run.begin_attempt(action)
    if action.kind == "Start":
        run.start(action.at, action.pod_size, provisional=action.provisional)
    elif action.kind in REQUEUES:
        run.requeue(lost_lottery=action.kind == "Preempt")
    elif action.kind in SETS_PROMISE or action.kind in CLEARS_PROMISE:
        world.promise_index.set(run, action.promise if action.kind in SETS_PROMISE else None)
        if action.kind in ("Activate", "Confirm") and run.provisional:
            run.end_provisional()
            world.fleet.invalidate_profiles_around(run.leases.values())
    if run.phase in FINISHED:
        run.end_provisional()
    reindex(world, run)


def undo_transition(world: "World", run: RunState, before: SavedRunState) -> None:
    """The inverse of transition."""
    provisional = run.provisional
    promise = run.restore_state(before)
    if run.promise is not promise:
        world.promise_index.set(run, promise, undo=True)
    if run.provisional != provisional:
        world.fleet.invalidate_profiles_around(run.leases.values())
    reindex(world, run)


def reindex(world: "World", run: RunState) -> None:
    """The Run stands elsewhere: so it does in the indexes."""
    if world.promise_index.update_provisional(run):
        world.open_leases.record_provisional(run)
    world.open_leases.record_interim(run)
    world.timers.schedule_run(run)
    world.run_queue.update(run)


def apply_action(world: "World", action: Action) -> None:
    """The whole action, its leases too, for good."""
    run = world.runs[action.run_key]
    apply_transition(world, run, action)
    if action.kind == "Start":
        world.start_calibration.record_start(action.run_key, action.at)
    elif action.kind in REQUEUES:
        world.start_calibration.undo_start(action.run_key, action.at)
    for closing in action.closes:
        lease = world.open_leases.close(closing.lease, closing.at).lease
        world.run_history.close(lease, closing.at, closing.reason)
        world.lease_intake.closed.add(closing.lease)
    for lease in action.opens:
        world.open_leases.open(lease)
        run.raise_leases_opened(lease_number(lease))
    if action.closes or action.opens or action.kind in ("Start", "Restart"):
        run.count_decision()
        world.run_queue.leases_changed(run)
    if action.kind in NEW_ATTEMPT_KINDS or run.phase != "Running":
        run.clear_rank_losses()
    if action.closes:
        run.clear_evicted_spare_nodes()
    if action.kind == "Start" or action.kind in CLEARS_PROMISE:
        world.run_queue.schedule_recall(run, settled=action.kind == "Confirm")
        world.run_queue.update_growth(run)  # on sufferance it could not grow
    if action.kind == "Cancel":
        world.run_lifecycle.drop(action.run_key)
