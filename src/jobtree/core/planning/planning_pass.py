"""One planning pass: from the world as it is to what must be done now.

The world is the same after a plan as before it: everything is tried on it and taken back. The order is
fixed. First what has happened (Runs that ended, were cancelled, lost a node) and what time has brought
(windows, hours, maxDuration), in the order of their instants; then edited budgets; then the queue, in
creation order, again and again until a pass changes nothing; then growth, with what is left.
"""

from collections import deque
from heapq import heappop, heappush
from operator import itemgetter

from jobtree.api.kinds.run import Run
from jobtree.core.funding.cover import payable_from
from jobtree.core.model.actions import Plan
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.outcomes import PLAIN_ENDS, ActionKind
from jobtree.core.model.promise import CreationOrder
from jobtree.core.model.reasons import Cause, Reason, Verdict
from jobtree.core.operations.payer_changes import (
    apply_budget_cuts,
    end_leases_of_envelope,
    end_leases_under_quota,
)
from jobtree.core.operations.trial import Trial
from jobtree.core.planning.activation import activate
from jobtree.core.planning.admission import admit
from jobtree.core.planning.admission_prefilter import AdmissionPrefilter
from jobtree.core.planning.elastic_width import Stalled, grow_runs, shrink_to
from jobtree.core.planning.pod_restart import drop_evicted_spares, restart
from jobtree.core.planning.promise_repair import repair_disturbed_promises, repair_promises
from jobtree.core.planning.pull_forward import pull_promises_forward
from jobtree.core.planning.recovery import pods_on_failed_nodes, recover
from jobtree.core.planning.stage_gang_admission import admit_gang, waits_in_gang
from jobtree.core.runs.run_state import FINISHED, RunState
from jobtree.core.runs.run_tree import children_of
from jobtree.core.runs.run_verdict import current_verdict
from jobtree.core.world.timers import TimerKind
from jobtree.core.world.upstream_runs import is_released, upstream_failure_at, waiting_verdict
from jobtree.core.world.world import World

EMPTY_PLAN = Plan()  # to do, to tell or to remember


def plan(world: World) -> Plan:
    """What to do now. Pure: the same world gives the same plan, and is left as it was."""
    if is_at_rest(world):
        return EMPTY_PLAN
    trial = Trial(world)
    attention = set(world.runs_to_check)
    try:
        return PlanningPass(trial).plan()
    finally:
        trial.rollback()
        world.runs_to_check = attention


def is_at_rest(world: World) -> bool:
    """Whether nothing happened, nothing is due and nobody need be asked: a pass would decide nothing."""
    happened = (
        world.runs_to_check
        or world.recheck_all_promises
        or world.edited_runs
        or world.nodes_to_cordon
        or world.budgets.edited_envelopes
    )
    return (
        not happened
        and all(
            (not flavor.growth_candidates or flavor.growth_checked_generation == flavor.reconsider_generation)
            and (not world.queue or flavor.queue_checked_generation == flavor.reconsider_generation)
            for flavor in world.fleet.flavors.values()
        )
        and world.timers.next_due(world.now) is None
    )


class PlanningPass:
    """One pass: what happened, what is due and who waits, until nothing new has happened on the way."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.world = trial.world
        self.reported: dict[RunKey, Verdict] = {}
        self.refused: dict[RunKey, Verdict] = {}
        self.trees: set[RunKey] = set()
        self.cancelled: set[RunKey] = set()

    def plan(self) -> Plan:
        trial, world = self.trial, self.world
        settled: tuple[RunKey, ...] = ()
        begun = False
        while world.runs_to_check or not begun:
            begun = True
            self.process_events()
            process_timers(trial, world.now - 1)
            if world.runs_to_check:
                continue  # what came of what was due before this instant comes before what is due now
            process_timers(trial, world.now)
            apply_budget_cuts(trial)
            repair_promises(trial)
            refused, settled = admit_queue(trial)
            self.refused |= refused
        pull_promises_forward(trial)
        mark = trial.checkpoint()
        stalled, asked = grow_runs(trial)
        repair_disturbed_promises(trial)
        moved = trial.causes(mark)
        unasked = {world.runs[key].flavor for key in moved if world.runs[key].queued}
        said = {key: one for key, one in (self.reported | self.refused).items() if self._still(key, one)}
        settled = tuple(key for key in settled if key not in moved)
        return Plan(
            actions=tuple(trial.actions()),
            verdicts=changed_verdicts(world, trial.causes(), said, stalled),
            children=missing_children(world, self.trees),
            cordons=tuple(sorted(world.nodes_to_cordon)),
            growth_exhausted=asked,
            considered=settled,
            recheck_at={
                key: at for key in settled if (at := payable_from(world, world.runs[key])) is not None
            },
            queue_exhausted=tuple(name for name in sorted(world.fleet.flavors) if name not in unasked),
        )

    def _still(self, key: RunKey, verdict: Verdict) -> bool:
        """Whether the Run is still where it was when it was told so."""
        return self.world.runs[key].phase == verdict.phase

    def process_events(self) -> None:
        """Deal with what happened to Runs, after all that was due before it."""
        trial, world = self.trial, self.world
        noted = [world.runs[key] for key in world.runs_to_check if key in world.runs]
        world.runs_to_check = set()
        for run in sorted(noted, key=lambda run: (event_instant(world, run), run.creation_order)):
            process_timers(trial, event_instant(world, run) - 1)
            self.process_run(run)

    def process_run(self, run: RunState) -> None:
        trial, world = self.trial, self.world
        if run.cancelled:
            self.cancel(run)
        elif run.phase == "Running":
            process_running(trial, run)
        elif run.phase == "Waiting" and not release_run(trial, run):
            self.reported[run.key] = waiting_verdict(world, run)
        if run.is_tree:
            self.trees.add(run.key)
            finish_tree(trial, run)
        elif run.cpu_only and run.phase == "Pending" and not run.gang:
            trial.begin_action("Start", run, world.now, Cause(Reason.NO_GPUS))

    def cancel(self, run: RunState) -> None:
        """A Run goes, and with a tree all of it."""
        for one in (*self.world.run_graph.descendants(run), run):
            if one.key not in self.cancelled:
                self.cancelled.add(one.key)
                end_run(self.trial, one, "Cancel", self.world.now)


def release_run(trial: Trial, run: RunState) -> bool:
    """Let a Run queue once all that it waits for is done."""
    if not is_released(trial.world, run):
        return False
    trial.begin_action("Release", run, trial.world.now, Cause(Reason.RELEASED))
    return True


def finish_tree(trial: Trial, run: RunState) -> None:
    """A tree ends with its last stage: Completed if all of them are."""
    children = trial.world.run_graph.children(run)
    if run.phase in FINISHED or len(children) < len(run.run_object.spec.stages):
        return
    if any(child.cancelled for child in children):
        return  # somebody deleted the Run of a stage: it comes back
    if all(child.phase in FINISHED for child in children):
        failed = next((child.key[1] for child in children if child.phase == "Failed"), None)
        cause = Cause(Reason.COMPLETED) if failed is None else Cause(Reason.STAGE_FAILED, failed)
        trial.begin_action("Complete" if failed is None else "Fail", run, trial.world.now, cause)


def missing_children(world: World, trees: set[RunKey]) -> tuple[Run, ...]:
    """Stages whose Run is not there, or not as the tree wants it and not begun either."""
    found: list[Run] = []
    for key in sorted(trees):
        tree = world.runs[key]
        if tree.cancelled or tree.phase in FINISHED:
            continue
        for child in children_of(tree.run_object):
            known = world.runs.get((child.metadata.namespace, child.metadata.name))
            if known is None or (known.parent == key and outdated(known, child)):
                found.append(child)
    return tuple(found)


def outdated(known: RunState, wanted: Run) -> bool:
    begun = known.phase == "Running" or known.phase in FINISHED
    return not begun and not known.cancelled and known.run_object.spec != wanted.spec


def process_running(trial: Trial, run: RunState) -> None:
    """A running Run ended, lost nodes or pods, or was asked to be narrower."""
    world, shape = trial.world, run.shape
    if run.outcome is not None:
        end_run(trial, run, *run.outcome)
        return
    lost = pods_on_failed_nodes(world, run)
    if lost:
        nodes = ", ".join(sorted({node for pods in lost.values() for node, _ in pods}))
        recover(trial, run, lost, Cause(Reason.NODE_FAILURE, nodes), "NodeFailure")
    elif run.rank_losses:
        restart(trial, run)
    elif run.evicted_spare_nodes:
        drop_evicted_spares(trial, run)
    if shape is not None and shape.malleable and run.phase == "Running" and run.width > shape.desired:
        shrink_to(trial, run, shape.desired)


def event_instant(world: World, run: RunState) -> int:
    return run.outcome[1] if run.outcome is not None and not run.cancelled else world.now


def end_run(trial: Trial, run: RunState, kind: ActionKind, at: int) -> None:
    withdraw_promise(trial, run)
    end = PLAIN_ENDS[kind]
    trial.begin_action(kind, run, at, Cause(end.reason))
    for name in sorted(run.leases):
        trial.close(name, max(at, run.leases[name].start), end.closes[0])


def withdraw_promise(trial: Trial, run: RunState) -> None:
    """A Run that is finished or gone is promised nothing."""
    promise = run.promise
    if promise is not None:
        trial.begin_action(
            "Withdraw", run, trial.world.now, Cause(Reason.CANCELLED, promise.name), promise=promise
        )


def process_timers(trial: Trial, until: int) -> None:
    """Everything due up to that instant, at its own instant, in order."""
    world = trial.world
    while (due := world.timers.next_due(until)) is not None:
        at, (kind, first, second) = due
        if kind is TimerKind.ENVELOPE:
            end_leases_of_envelope(trial, world.budgets.envelopes[first, second], at)
        elif kind is TimerKind.QUOTA:
            end_leases_under_quota(trial, world.runs[first, second], at)
        elif kind is TimerKind.RUN:
            end_at_max_duration(trial, world.runs[first, second], at)
        elif kind is TimerKind.FOLLOW:
            fail_with_upstream(trial, world.runs[first, second], at)
        else:
            activate(trial, first_due_promise(world))


def first_due_promise(world: World) -> RunState:
    """Of the Runs whose promise is due now, the one that was due first, then the one promised first."""
    found = [
        (promise.at, promise.precedence, run)
        for run in world.runs.values()
        if (promise := run.promise) is not None
        and promise.at is not None
        and promise.at <= world.now
        and run.phase not in FINISHED
    ]
    return min(found, key=itemgetter(0, 1))[2]


def end_at_max_duration(trial: Trial, run: RunState, at: int) -> None:
    """A Run reached its maxDuration: it is Failed (F7)."""
    limit = run.run_object.spec.runtime.max_duration or ""
    withdraw_promise(trial, run)
    trial.begin_action("Fail", run, at, Cause(Reason.DURATION_EXCEEDED, limit))
    for name in sorted(run.leases):
        trial.close(name, max(at, run.leases[name].start), "Failed")


def fail_with_upstream(trial: Trial, run: RunState, at: int) -> None:
    """What a Run waits for failed, and it waits no longer, nor do those that would start with it (J1, J3)."""
    failure = upstream_failure_at(trial.world, run)
    assert failure is not None
    for member in trial.world.run_graph.members(run):
        if member.phase == "Waiting":
            trial.begin_action(
                "Fail", member, max(at, member.created), Cause(Reason.UPSTREAM_FAILED, failure[1])
            )


def admit_queue(trial: Trial) -> tuple[dict[RunKey, Verdict], tuple[RunKey, ...]]:
    """Give every Run in the queue its chance, oldest first, until nothing changes any more.

    Returns the verdicts on those refused, and all who need not be asked again until something changes.
    """
    world = trial.world
    refused: dict[RunKey, Verdict] = {}
    seen: dict[RunKey, int] = {}
    changed = True
    while changed:
        changed, turns, late = False, deque[CreationOrder](), list[CreationOrder]()
        if world.queue:
            chances = AdmissionPrefilter(world)
            world.run_queue.begin_round()
            turns.extend(world.run_queue.active_runs(chances.max_gpus_for))
        while turns or late:
            is_late = late and (not turns or late[0] < turns[0])
            order = heappop(late) if is_late else turns.popleft()
            run = world.runs[order[1:]]
            flavor = world.fleet.flavor(run.flavor)
            asked = (
                run.queued and seen.get(run.key, run.queue_checked_generation) != flavor.reconsider_generation
            )
            if not asked or not world.run_queue.is_active(order, chances.max_gpus_for):
                continue
            mark, verdict = trial.checkpoint(), None
            if waits_in_gang(run):
                verdict = admit_gang(trial, run)
            elif not chances.is_certainly_refused(run):
                verdict = admit(trial, run, chances)
            seen[run.key] = flavor.reconsider_generation
            if trial.checkpoint() != mark:
                changed, chances = True, AdmissionPrefilter(world)
                for one in world.run_queue.newly_active_runs(order, chances.max_gpus_for):
                    heappush(late, one)
            if verdict is not None:
                refused[run.key] = verdict
        mark = trial.checkpoint()
        process_timers(
            trial, world.now
        )  # what a declared Run commits can end an open-ended lease at once (C5)
        changed = changed or trial.checkpoint() != mark
    settled = tuple(key for key in sorted(seen) if world.runs[key].queued)
    return {key: verdict for key, verdict in refused.items() if world.runs[key].waiting}, settled


def changed_verdicts(
    world: World, causes: dict[RunKey, Cause], refused: dict[RunKey, Verdict], stalled: Stalled
) -> dict[RunKey, Verdict]:
    """Verdicts that differ from what each Run was told before."""
    verdicts: dict[RunKey, Verdict] = {}
    for key in sorted(causes.keys() | refused.keys() | stalled.keys()):
        run = world.runs[key]
        verdict = refused.get(key) or current_verdict(run, causes.get(key), stalled.get(key, ()))
        if verdict != run.verdict:
            verdicts[key] = verdict
    return verdicts
