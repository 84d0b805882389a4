"""One planning pass: from the world as it is to what must be done now.

The world is the same after a plan as before it: everything is tried on it and taken back. The order is
fixed. First what has happened (Runs that ended, were cancelled, lost a node) and what time has brought
(windows, hours, maxDuration), in the order of their instants; then edited budgets; then the queue, in
creation order, again and again until a pass changes nothing; then growth, with what is left.
"""

from collections import deque
from heapq import heappop, heappush
from operator import itemgetter

from jobtree.api.kinds.lease import ClosureReason
from jobtree.api.kinds.run import Run
from jobtree.core.funding.cover import affordable_from
from jobtree.core.model.actions import ActionKind, Plan
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.promise import Order
from jobtree.core.model.reasons import Reason, Verdict, Why
from jobtree.core.operations.payer_changes import settle_cuts, settle_envelope, settle_quota
from jobtree.core.operations.trial import Trial
from jobtree.core.planning.activation import activate
from jobtree.core.planning.admission import consider
from jobtree.core.planning.admission_prefilter import Chances
from jobtree.core.planning.elastic_width import Stalled, grow_runs, shrink_to
from jobtree.core.planning.pod_restart import part_with_evicted, restart
from jobtree.core.planning.promise_repair import mend_disturbed, mend_promises
from jobtree.core.planning.pull_forward import bring_forward
from jobtree.core.planning.recovery import on_failed_nodes, recover
from jobtree.core.planning.stage_gang_admission import in_gang, start_together
from jobtree.core.runs.run_state import FINISHED, RunState
from jobtree.core.runs.run_tree import children_of
from jobtree.core.runs.run_verdict import verdict_on
from jobtree.core.world.timers import Due
from jobtree.core.world.upstream_runs import gives_up_at, released, waits_for
from jobtree.core.world.world import World

NOTHING = Plan()  # to do, to tell or to remember


def plan(world: World) -> Plan:
    """What to do now. Pure: the same world gives the same plan, and is left as it was."""
    if at_rest(world):
        return NOTHING
    trial = Trial(world)
    attention = set(world.attention)
    try:
        return Pass(trial).plan()
    finally:
        trial.rollback()
        world.attention = attention


def at_rest(world: World) -> bool:
    """Whether nothing happened, nothing is due and nobody need be asked: a pass would decide nothing."""
    happened = world.attention or world.shaken or world.edited or world.cordons or world.ledger.amended
    return (
        not happened
        and all(
            (not flavor.eager or flavor.asked == flavor.gains)
            and (not world.queue or flavor.served == flavor.gains)
            for flavor in world.fleet.flavors.values()
        )
        and world.alarms.due(world.now) is None
    )


class Pass:
    """One pass: what happened, what is due and who waits, until nothing new has happened on the way."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.world = trial.world
        self.told: dict[RunKey, Verdict] = {}
        self.refused: dict[RunKey, Verdict] = {}
        self.trees: set[RunKey] = set()
        self.cancelled: set[RunKey] = set()

    def plan(self) -> Plan:
        trial, world = self.trial, self.world
        settled: tuple[RunKey, ...] = ()
        begun = False
        while world.attention or not begun:
            begun = True
            self.note_events()
            pass_time(trial, world.now - 1)
            if world.attention:
                continue  # what came of what was due before this instant comes before what is due now
            pass_time(trial, world.now)
            settle_cuts(trial)
            mend_promises(trial)
            refused, settled = serve_queue(trial)
            self.refused |= refused
        bring_forward(trial)
        mark = trial.mark()
        stalled, asked = grow_runs(trial)
        mend_disturbed(trial)
        moved = trial.causes(mark)
        unasked = {world.runs[key].flavor for key in moved if world.runs[key].queued}
        said = {key: one for key, one in (self.told | self.refused).items() if self._still(key, one)}
        settled = tuple(key for key in settled if key not in moved)
        return Plan(
            actions=tuple(trial.actions()),
            verdicts=changed_verdicts(world, trial.causes(), said, stalled),
            children=missing_children(world, self.trees),
            cordons=tuple(sorted(world.cordons)),
            asked=asked,
            settled=settled,
            payable_at={
                key: at for key in settled if (at := affordable_from(world, world.runs[key])) is not None
            },
            served=tuple(name for name in sorted(world.fleet.flavors) if name not in unasked),
        )

    def _still(self, key: RunKey, verdict: Verdict) -> bool:
        """Whether the Run is still where it was when it was told so."""
        return self.world.runs[key].phase == verdict.phase

    def note_events(self) -> None:
        """Deal with what happened to Runs, after all that was due before it."""
        trial, world = self.trial, self.world
        noted = [world.runs[key] for key in world.attention if key in world.runs]
        world.attention = set()
        for state in sorted(noted, key=lambda state: (noted_at(world, state), state.order)):
            pass_time(trial, noted_at(world, state) - 1)
            self.note(state)

    def note(self, state: RunState) -> None:
        trial, world = self.trial, self.world
        if state.cancelled:
            self.cancel(state)
        elif state.phase == "Running":
            note_event(trial, state)
        elif state.phase == "Waiting" and not release(trial, state):
            self.told[state.key] = waits_for(world, state)
        if state.is_tree:
            self.trees.add(state.key)
            finish_tree(trial, state)
        elif state.cpu_only and state.phase == "Pending" and not state.gang:
            trial.act("Start", state, world.now, Why(Reason.NO_GPUS))

    def cancel(self, state: RunState) -> None:
        """A Run goes, and with a tree all of it."""
        for one in (*self.world.kin.below(state), state):
            if one.key not in self.cancelled:
                self.cancelled.add(one.key)
                end_run(self.trial, one, "Cancel", self.world.now)


def release(trial: Trial, state: RunState) -> bool:
    """Let a Run queue once all that it waits for is done."""
    if not released(trial.world, state):
        return False
    trial.act("Release", state, trial.world.now, Why(Reason.RELEASED))
    return True


def finish_tree(trial: Trial, state: RunState) -> None:
    """A tree ends with its last stage: Completed if all of them are."""
    children = trial.world.kin.children(state)
    if state.phase in FINISHED or len(children) < len(state.run.spec.stages):
        return
    if any(child.cancelled for child in children):
        return  # somebody deleted the Run of a stage: it comes back
    if all(child.phase in FINISHED for child in children):
        failed = next((child.key[1] for child in children if child.phase == "Failed"), None)
        cause = Why(Reason.COMPLETED) if failed is None else Why(Reason.STAGE_FAILED, failed)
        trial.act("Complete" if failed is None else "Fail", state, trial.world.now, cause)


def missing_children(world: World, trees: set[RunKey]) -> tuple[Run, ...]:
    """Stages whose Run is not there, or not as the tree wants it and not begun either."""
    found: list[Run] = []
    for key in sorted(trees):
        tree = world.runs[key]
        if tree.cancelled or tree.phase in FINISHED:
            continue
        for child in children_of(tree.run):
            known = world.runs.get((child.metadata.namespace, child.metadata.name))
            if known is None or (known.parent == key and outdated(known, child)):
                found.append(child)
    return tuple(found)


def outdated(known: RunState, wanted: Run) -> bool:
    begun = known.phase == "Running" or known.phase in FINISHED
    return not begun and not known.cancelled and known.run.spec != wanted.spec


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
    elif state.evicted:
        part_with_evicted(trial, state)
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


def pass_time(trial: Trial, until: int) -> None:
    """Everything due up to that instant, at its own instant, in order."""
    world = trial.world
    while (due := world.alarms.due(until)) is not None:
        at, (kind, first, second) = due
        if kind is Due.ENVELOPE:
            settle_envelope(trial, world.ledger.envelopes[first, second], at)
        elif kind is Due.QUOTA:
            settle_quota(trial, world.runs[first, second], at)
        elif kind is Due.RUN:
            expire(trial, world.runs[first, second], at)
        elif kind is Due.FOLLOW:
            fail_with_upstream(trial, world.runs[first, second], at)
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


def fail_with_upstream(trial: Trial, state: RunState, at: int) -> None:
    """What a Run waits for failed, and it waits no longer, nor do those that would start with it (J1, J3)."""
    failure = gives_up_at(trial.world, state)
    assert failure is not None
    for member in trial.world.kin.members(state):
        if member.phase == "Waiting":
            trial.act("Fail", member, max(at, member.created), Why(Reason.UPSTREAM_FAILED, failure[1]))


def serve_queue(trial: Trial) -> tuple[dict[RunKey, Verdict], tuple[RunKey, ...]]:
    """Give every Run in the queue its chance, oldest first, until nothing changes any more.

    Returns the verdicts on those refused, and all who need not be asked again until something changes.
    """
    world = trial.world
    refused: dict[RunKey, Verdict] = {}
    seen: dict[RunKey, int] = {}
    changed = True
    while changed:
        changed, turns, late = False, deque[Order](), list[Order]()
        if world.queue:
            chances = Chances(world)
            world.line.begin_round()
            turns.extend(world.line.to_ask(chances.most))
        while turns or late:
            is_late = late and (not turns or late[0] < turns[0])
            order = heappop(late) if is_late else turns.popleft()
            state = world.runs[order[1:]]
            flavor = world.fleet.flavor(state.flavor)
            asked = state.queued and seen.get(state.key, state.seen) != flavor.gains
            if not asked or not world.line.still_asked(order, chances.most):
                continue
            mark, verdict = trial.mark(), None
            if in_gang(state):
                verdict = start_together(trial, state)
            elif not chances.none(state):
                verdict = consider(trial, state, chances)
            seen[state.key] = flavor.gains
            if trial.mark() != mark:
                changed, chances = True, Chances(world)
                for one in world.line.to_ask_too(order, chances.most):
                    heappush(late, one)
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
