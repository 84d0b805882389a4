"""Transitions: what an action does to the Run itself, tried or for good.

Each has an exact inverse: a plan tries actions on the world and takes them back. ``restore_state`` puts back
what the Run's ``progress`` was, and mends every index that depends on it. When an action is carried out for
good its leases go with it, and what is known of the past: how long leases lasted, which are closed, and when
Runs started.
"""

from typing import TYPE_CHECKING

from jobtree.api.kinds.run import Phase
from jobtree.api.schema.quantities import MINUTE, SECOND
from jobtree.core.model.actions import Action
from jobtree.core.model.gpu_lease import lease_number
from jobtree.core.runs.run_state import FINISHED, RunState, SavedRunState

MIN_RESTART_DELAY = 10 * SECOND
MAX_RESTART_DELAY = 10 * MINUTE
NEW_ATTEMPT_KINDS = frozenset({"Start", "Grow", "Shrink", "Recover", "Restart"})


def restart_delay(restarts: int) -> int:
    """How long the pods wait before they start again, after so many failures."""
    return min(MIN_RESTART_DELAY << min(restarts - 1, 16), MAX_RESTART_DELAY) if restarts else 0


def begin_attempt(state: RunState, action: Action) -> None:
    """Count the attempt that an action begins, and say when its pods may start."""
    if action.kind not in NEW_ATTEMPT_KINDS:
        return
    keeps = state.shape is not None and state.shape.rendezvous
    if action.kind in ("Start", "Restart") or (not keeps and action.at > state.changed_at):
        state.attempt += 1
        state.restarts += action.counts_as_restart
        state.resume_at = action.at + (restart_delay(state.restarts) if action.counts_as_restart else 0)
    state.changed_at = action.at


if TYPE_CHECKING:
    from jobtree.core.world.world import World

PHASES: dict[str, Phase] = {
    "Release": "Pending",
    "Start": "Running",
    "Requeue": "Pending",
    "Preempt": "Pending",
    "Complete": "Completed",
    "Fail": "Failed",
    "Cancel": "Failed",
}
SETS_PROMISE = ("Reserve", "Move")
CLEARS_PROMISE = ("Activate", "Supersede", "Withdraw", "Settle")


def apply_transition(world: "World", state: RunState, action: Action) -> None:
    """Take the Run where the action leads."""
    phase = PHASES.get(action.kind, state.phase)
    if action.kind == "Reserve" and state.phase == "Pending":
        phase = "Reserved"
    if phase != state.phase:
        state.phase, state.phase_at = phase, action.at
        if phase in FINISHED:
            world.run_lifecycle.recheck_dependents(state.key)
    begin_attempt(state, action)
    if action.kind == "Start":
        state.since, state.pod_size, state.provisional = action.at, action.pod_size, action.provisional
    elif action.kind in ("Requeue", "Preempt"):
        state.since, state.pod_size, state.provisional = None, 0, False
        state.lotteries_lost += action.kind == "Preempt"
        if state.promise is not None:
            state.phase = "Reserved"
    elif action.kind in (*SETS_PROMISE, *CLEARS_PROMISE):
        world.promise_index.set(state, action.promise if action.kind in SETS_PROMISE else None)
        if action.kind in ("Activate", "Settle") and state.provisional:
            state.provisional = False
            world.fleet.invalidate_profiles_around(state.leases.values())
    if state.phase in FINISHED:
        state.provisional = False
    reindex(world, state)


def undo_transition(world: "World", state: RunState, before: SavedRunState) -> None:
    """The inverse of transition."""
    promise, provisional = state.promise, state.provisional
    state.restore_state(before)
    if state.promise is not promise:
        now, state.promise = state.promise, promise
        world.promise_index.set(state, now, undo=True)
    if state.provisional != provisional:
        world.fleet.invalidate_profiles_around(state.leases.values())
    reindex(world, state)


def reindex(world: "World", state: RunState) -> None:
    """The Run stands elsewhere: so it does in the indexes."""
    if world.promise_index.update_provisional(state):
        world.open_leases.record_provisional(state)
    world.open_leases.record_interim(state)
    world.timers.schedule_run(state)
    world.run_queue.update(state)


def apply_action(world: "World", action: Action) -> None:
    """The whole action, its leases too, for good."""
    state = world.runs[action.run]
    apply_transition(world, state, action)
    if action.kind == "Start":
        world.start_calibration.record_start(action.run, action.at)
    elif action.kind in ("Requeue", "Preempt"):
        world.start_calibration.undo_start(action.run, action.at)
    for closing in action.closes:
        lease = world.open_leases.close(closing.lease, closing.at).lease
        world.run_history.close(lease, closing.at, closing.reason)
        world.lease_intake.closed.add(closing.lease)
    for lease in action.opens:
        world.open_leases.open(lease)
        state.leases_opened = max(state.leases_opened, lease_number(lease))
    if action.closes or action.opens or action.kind in ("Start", "Restart"):
        state.revision += 1
        world.run_queue.leases_changed(state)
    if action.kind in NEW_ATTEMPT_KINDS or state.phase != "Running":
        state.rank_losses.clear()
    if action.closes:
        state.evicted_spare_nodes.clear()
    if action.kind in ("Start", *CLEARS_PROMISE):
        world.run_queue.schedule_recall(state, settled=action.kind == "Settle")
        world.run_queue.update_growth(state)  # on sufferance it could not grow
    if action.kind == "Cancel":
        world.run_lifecycle.drop(action.run)
