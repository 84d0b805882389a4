"""One planning pass: from the world as it is to what must be done now.

The world is the same after a plan as before it: everything is tried on it and taken back. The order is
fixed. First what has happened (Runs that ended, were cancelled or lost a node) and what time has brought
(windows, hours, maxDuration), in the order of their instants; then edited budgets; then the queue, in
creation order, again and again until a pass changes nothing; then growth, with what is left.
"""

from operator import itemgetter

from jobtree.api.lease import ClosureReason
from jobtree.core.actions import ActionKind, Plan
from jobtree.core.activate import activate
from jobtree.core.admit import consider
from jobtree.core.alarms import Due
from jobtree.core.elastic import Stalled, grow_runs, shrink_to
from jobtree.core.lease import RunKey
from jobtree.core.reasons import Reason, Verdict, Why
from jobtree.core.recover import on_failed_nodes, recover
from jobtree.core.reserve import broken, renew
from jobtree.core.restart import restart
from jobtree.core.runs import FINISHED, RunState
from jobtree.core.settle import settle_cuts, settle_envelope
from jobtree.core.trial import Trial
from jobtree.core.verdicts import verdict_on
from jobtree.core.world import World


def plan(world: World) -> Plan:
    """What to do now. Pure: the same world gives the same plan, and is left as it was."""
    trial = Trial(world)
    try:
        note_events(trial)
        pass_time(trial, world.now)
        settle_cuts(trial)
        mend_promises(trial)
        refused, settled = serve_queue(trial)
        stalled, asked = grow_runs(trial)
        mend_disturbed(trial)
        verdicts = changed_verdicts(world, trial.causes(), refused, stalled)
        return Plan(tuple(trial.actions()), verdicts, tuple(sorted(world.cordons)), asked, settled)
    finally:
        trial.rollback()


def note_events(trial: Trial) -> None:
    """Deal with what happened to Runs, after all that was due before it."""
    world = trial.world
    noted = [world.runs[key] for key in world.attention if key in world.runs]
    for state in sorted(noted, key=lambda state: (noted_at(world, state), state.order)):
        pass_time(trial, noted_at(world, state) - 1)
        if state.cancelled:
            end_run(trial, state, "Cancel", world.now)
        elif state.phase == "Running":
            note_event(trial, state)


def note_event(trial: Trial, state: RunState) -> None:
    """A running Run ended, lost nodes or pods, or was asked to be narrower."""
    world, shape = trial.world, state.shape
    if state.outcome is not None:
        end_run(trial, state, *state.outcome)
        return
    lost = on_failed_nodes(world, state)
    if lost:
        nodes = ", ".join(sorted({node for pods in lost.values() for node, _ in pods}))
        recover(trial, state, lost, Why(Reason.NODE_FAILURE, nodes), "NodeFailure")
    elif state.mishaps:
        restart(trial, state)
    if shape is not None and shape.malleable and state.phase == "Running" and state.width > shape.desired:
        shrink_to(trial, state, shape.desired)


def noted_at(world: World, state: RunState) -> int:
    return state.outcome[1] if state.outcome is not None and not state.cancelled else world.now


ENDINGS: dict[ActionKind, tuple[Reason, ClosureReason]] = {
    "Complete": (Reason.COMPLETED, "Completed"),
    "Fail": (Reason.FAILED, "Failed"),
    "Cancel": (Reason.CANCELLED, "Cancelled"),
}


def end_run(trial: Trial, state: RunState, kind: ActionKind, at: int) -> None:
    reason, closure = ENDINGS[kind]
    withdraw(trial, state)
    trial.act(kind, state, at, Why(reason))
    for name in sorted(state.leases):
        trial.close(name, max(at, state.leases[name].start), closure)


def withdraw(trial: Trial, state: RunState) -> None:
    """A Run that is finished or gone is promised nothing."""
    promise = state.promise
    if promise is not None:
        trial.act("Withdraw", state, trial.world.now, Why(Reason.CANCELLED, promise.name), promise=promise)


def mend_promises(trial: Trial) -> None:
    """Look again at promises that may be broken, oldest first.

    All after lost nodes or cut budgets, else those of edited Runs and those that this pass has touched so
    far: the others hold, so a world read anew from its objects, where all are looked at, plans the same.
    """
    world, disturbed = trial.world, trial.disturbed()
    for state in promised(world) if world.shaken or world.edited or disturbed else ():
        if state.key in world.edited and state.waiting:
            renew(trial, state, Reason.EDITED)
        elif (world.shaken or state.key in disturbed) and (reason := broken(world, state)) is not None:
            renew(trial, state, reason)
        else:
            continue
        disturbed = trial.disturbed()


def mend_disturbed(trial: Trial) -> None:
    """Promises that starts of this very pass crowded out: counting is by GPUs, placing is by nodes."""
    world, disturbed = trial.world, trial.disturbed()
    for state in promised(world) if disturbed else ():
        if state.key in disturbed and state.waiting and broken(world, state) is not None:
            renew(trial, state, Reason.CROWDED_OUT)


def promised(world: World) -> list[RunState]:
    """Runs with a promise, in the order in which the promises were made."""
    found = [(state.promise.rank, state) for state in world.runs.values() if state.promise is not None]
    return [state for _, state in sorted(found, key=itemgetter(0))]


def pass_time(trial: Trial, until: int) -> None:
    """Everything due up to that instant, at its own instant, in order."""
    world = trial.world
    while (due := world.alarms.due(until)) is not None:
        at, (kind, first, second) = due
        if kind is Due.ENVELOPE:
            settle_envelope(trial, world.ledger.envelopes[first, second], at)
        elif kind is Due.RUN:
            expire(trial, world.runs[first, second], at)
        else:
            activate(trial, first_due(world))


def first_due(world: World) -> RunState:
    """Of the Runs whose promise is due now, the one that was due first, then the one promised first."""
    found = [
        (promise.at, promise.rank, state)
        for state in world.runs.values()
        if (promise := state.promise) is not None
        and promise.at is not None
        and promise.at <= world.now
        and state.phase not in FINISHED
    ]
    return min(found, key=itemgetter(0, 1))[2]


def expire(trial: Trial, state: RunState, at: int) -> None:
    """A Run reached its maxDuration: it is Failed (F7)."""
    limit = state.run.spec.runtime.max_duration or ""
    withdraw(trial, state)
    trial.act("Fail", state, at, Why(Reason.DURATION_EXCEEDED, limit))
    for name in sorted(state.leases):
        trial.close(name, max(at, state.leases[name].start), "Failed")


def serve_queue(trial: Trial) -> tuple[dict[RunKey, Verdict], tuple[RunKey, ...]]:
    """Give every Run in the queue its chance, oldest first, until nothing changes any more.

    Returns the verdicts on those refused, and all who need not be asked again until something changes.
    """
    world = trial.world
    refused: dict[RunKey, Verdict] = {}
    seen: dict[RunKey, int] = {}
    changed = True
    while changed:
        changed = False
        for order in list(world.queue):
            state = world.runs[order[1:]]
            flavor = world.fleet.flavor(state.flavor)
            if not state.queued or seen.get(state.key, state.seen) == flavor.gains:
                continue
            mark = trial.mark()
            verdict = consider(trial, state)
            seen[state.key] = flavor.gains
            changed = changed or trial.mark() != mark
            if verdict is not None:
                refused[state.key] = verdict
        mark = trial.mark()
        pass_time(trial, world.now)  # what a declared Run commits can end an open-ended lease at once (C5)
        changed = changed or trial.mark() != mark
    settled = tuple(key for key in sorted(seen) if world.runs[key].queued)
    return {key: verdict for key, verdict in refused.items() if world.runs[key].waiting}, settled


def changed_verdicts(
    world: World, causes: dict[RunKey, Why], refused: dict[RunKey, Verdict], stalled: Stalled
) -> dict[RunKey, Verdict]:
    """Verdicts that differ from what each Run was told before."""
    verdicts: dict[RunKey, Verdict] = {}
    for key in sorted(causes.keys() | refused.keys() | stalled.keys()):
        state = world.runs[key]
        verdict = refused.get(key) or verdict_on(state, causes.get(key), stalled.get(key, ()))
        if verdict != state.verdict:
            verdicts[key] = verdict
    return verdicts
