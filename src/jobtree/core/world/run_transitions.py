"""Transitions: what an action does to the Run itself, tried or for good.

Each has an exact inverse: a plan tries actions on the world and takes them back. ``restore`` puts back what
the Run's ``progress`` was, and mends every index that depends on it. When an action is carried out for good
its leases go with it, and what is known of the past: how long leases lasted, which are closed, and when Runs
started.
"""

from typing import TYPE_CHECKING

from jobtree.api.kinds.run import Phase
from jobtree.api.schema.quantities import MINUTE, SECOND
from jobtree.core.model.actions import Action
from jobtree.core.model.gpu_lease import number_of
from jobtree.core.runs.run_state import FINISHED, Progress, RunState

FIRST_PAUSE = 10 * SECOND
LONGEST_PAUSE = 10 * MINUTE
RESIZES = frozenset({"Start", "Grow", "Shrink", "Recover", "Restart"})


def backoff(restarts: int) -> int:
    """How long the pods wait before they start again, after so many failures."""
    return min(FIRST_PAUSE << min(restarts - 1, 16), LONGEST_PAUSE) if restarts else 0


def begin_attempt(state: RunState, action: Action) -> None:
    """Count the attempt that an action begins, and say when its pods may start."""
    if action.kind not in RESIZES:
        return
    keeps = state.shape is not None and state.shape.rendezvous
    if action.kind in ("Start", "Restart") or (not keeps and action.at > state.changed_at):
        state.attempt += 1
        state.restarts += action.counts
        state.resume_at = action.at + (backoff(state.restarts) if action.counts else 0)
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
PROMISING = ("Reserve", "Move")
UNPROMISING = ("Activate", "Supersede", "Withdraw", "Settle")


def transition(world: "World", state: RunState, action: Action) -> None:
    """Take the Run where the action leads."""
    phase = PHASES.get(action.kind, state.phase)
    if action.kind == "Reserve" and state.phase == "Pending":
        phase = "Reserved"
    if phase != state.phase:
        state.phase, state.phase_at = phase, action.at
        if phase in FINISHED:
            world.roster.notify(state.key)
    begin_attempt(state, action)
    if action.kind == "Start":
        state.since, state.pod_size, state.provisional = action.at, action.pod_size, action.provisional
    elif action.kind in ("Requeue", "Preempt"):
        state.since, state.pod_size, state.provisional = None, 0, False
        state.lost += action.kind == "Preempt"
        if state.promise is not None:
            state.phase = "Reserved"
    elif action.kind in (*PROMISING, *UNPROMISING):
        world.promised.set(state, action.promise if action.kind in PROMISING else None)
        if action.kind in ("Activate", "Settle") and state.provisional:
            state.provisional = False
            world.fleet.forget_around(state.leases.values())
    if state.phase in FINISHED:
        state.provisional = False
    look_again(world, state)


def restore(world: "World", state: RunState, before: Progress) -> None:
    """The inverse of transition."""
    promise, provisional = state.promise, state.provisional
    state.restore(before)
    if state.promise is not promise:
        now, state.promise = state.promise, promise
        world.promised.set(state, now, undo=True)
    if state.provisional != provisional:
        world.fleet.forget_around(state.leases.values())
    look_again(world, state)


def look_again(world: "World", state: RunState) -> None:
    """The Run stands elsewhere: so it does in the indexes."""
    if world.promised.note_provisional(state):
        world.holdings.note_yields(state)
    world.holdings.note_lapses(state)
    world.alarms.watch_run(state)
    world.line.place(state)


def carry_out(world: "World", action: Action) -> None:
    """The whole action, its leases too, for good."""
    state = world.runs[action.run]
    transition(world, state, action)
    if action.kind == "Start":
        world.experience.begin(action.run, action.at)
    elif action.kind in ("Requeue", "Preempt"):
        world.experience.take_back(action.run, action.at)
    for closing in action.closes:
        lease = world.holdings.close(closing.lease, closing.at).lease
        world.history.close(lease, closing.at, closing.reason)
        world.intake.closed.add(closing.lease)
    for lease in action.opens:
        world.holdings.open(lease)
        state.opened = max(state.opened, number_of(lease))
    if action.closes or action.opens or action.kind in ("Start", "Restart"):
        state.revision += 1
        world.line.follow_leases(state)
    if action.kind in RESIZES or state.phase != "Running":
        state.mishaps.clear()
    if action.closes:
        state.evicted.clear()
    if action.kind in ("Start", *UNPROMISING):
        world.line.note_kept(state, settled=action.kind == "Settle")
        world.line.note_wishes(state)  # on sufferance it could not grow
    if action.kind == "Cancel":
        world.roster.drop(action.run)
