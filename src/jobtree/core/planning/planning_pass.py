"""Runs one planning pass: from the world to the plan of what must be done now.

The world is the same after a pass as before it: everything is tried on it and rolled back. The order is
fixed. First come events (Runs that ended, were cancelled or lost a node) and timers (windows, hours,
maxDuration), in the order of their instants; then edited Budgets; then the queue, in creation order, again
and again until nothing changes; then growth.
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
from jobtree.core.operations.promise_changes import stop_keeping_budget
from jobtree.core.operations.trial import Trial
from jobtree.core.planning.activation import activate
from jobtree.core.planning.admission import admit
from jobtree.core.planning.admission_prefilter import AdmissionPrefilter
from jobtree.core.planning.elastic_width import Stalled, grow_runs, shrink_to
from jobtree.core.planning.pod_restart import drop_evicted_spares, restart
from jobtree.core.planning.promise_repair import repair_disturbed_promises, repair_promises
from jobtree.core.planning.pull_forward import pull_promises_forward
from jobtree.core.planning.recovery import pods_on_failed_nodes, recover
from jobtree.core.planning.refused_pods import leave_refusers
from jobtree.core.planning.stage_gang_admission import admit_gang, waits_in_gang
from jobtree.core.runs.run_state import FINISHED, RunState
from jobtree.core.runs.run_tree import children_of
from jobtree.core.runs.run_verdict import current_verdict, is_reported_refused
from jobtree.core.world.timers import TimerKind
from jobtree.core.world.upstream_runs import is_released, upstream_failure_at, waiting_verdict
from jobtree.core.world.world import World

EMPTY_PLAN = Plan()


def plan(world: World) -> Plan:
    """What to do now. The same world gives the same plan, and is left as it was."""
    if is_at_rest(world):
        return EMPTY_PLAN
    trial = Trial(world)
    runs_to_check = set(world.runs_to_check)
    world.run_queue.begin_pass()
    try:
        return PlanningPass(trial).plan()
    finally:
        trial.rollback()
        world.run_queue.end_pass()
        world.runs_to_check.clear()
        world.runs_to_check.update(runs_to_check)


def is_at_rest(world: World) -> bool:
    """Whether a pass would decide nothing: nothing happened, nothing is due, no Run is to be reconsidered."""
    happened = (
        world.runs_to_check
        or world.recheck_all_promises
        or world.promises_to_check
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
    """One pass: events, timers and the queue, until they cause no new events."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.world = trial.world
        self.reported: dict[RunKey, Verdict] = {}
        self.refused: dict[RunKey, Verdict] = {}
        self.trees: set[RunKey] = set()
        self.rechecked: set[RunKey] = set()  # Runs whose pods are refused, or not any more
        self.cancelled: set[RunKey] = set()

    def plan(self) -> Plan:
        trial, world = self.trial, self.world
        considered: tuple[RunKey, ...] = ()
        begun = False
        while world.runs_to_check or not begun:
            begun = True
            self.process_events()
            process_timers(trial, world.now - 1)
            if world.runs_to_check:
                continue  # consequences of earlier timers come before the timers of this instant
            process_timers(trial, world.now)
            apply_budget_cuts(trial)
            repair_promises(trial)
            refused, considered = admit_queue(trial)
            self.refused |= refused
        pull_promises_forward(trial)
        checkpoint = trial.checkpoint()
        stalled, flavors_checked = grow_runs(trial)
        repair_disturbed_promises(trial)
        causes = trial.causes(checkpoint)
        flavors_with_news = {world.runs[key].flavor for key in causes if world.runs[key].queued}
        verdicts = {
            key: verdict
            for key, verdict in (self.reported | self.refused).items()
            if self._has_phase(key, verdict)
        }
        considered = tuple(key for key in considered if key not in causes)
        return Plan(
            actions=tuple(trial.actions()),
            verdicts=changed_verdicts(world, self._causes(), verdicts, stalled),
            children=missing_children(world, self.trees),
            cordons=tuple(filter(world.node_lifecycle.has_failed, sorted(world.nodes_to_cordon))),
            growth_exhausted=flavors_checked,
            considered=considered,
            recheck_at={
                key: at for key in considered if (at := payable_from(world, world.runs[key])) is not None
            },
            queue_exhausted=tuple(
                name for name in sorted(world.fleet.flavors) if name not in flavors_with_news
            ),
        )

    def _causes(self) -> dict[RunKey, Cause | None]:
        """The cause of the last action on each Run, and running Runs whose verdicts may have changed."""
        rechecked = {key: None for key in self.rechecked if self.world.runs[key].phase == "Running"}
        return {**rechecked, **self.trial.causes()}

    def _has_phase(self, key: RunKey, verdict: Verdict) -> bool:
        """Whether the Run still has the phase of the verdict."""
        return self.world.runs[key].phase == verdict.phase

    def process_events(self) -> None:
        """Handles what happened to Runs, each after the timers that were due before it."""
        trial, world = self.trial, self.world
        runs = [world.runs[key] for key in world.runs_to_check if key in world.runs]
        world.runs_to_check.clear()
        for run in sorted(runs, key=lambda run: (event_instant(world, run), run.creation_order)):
            process_timers(trial, event_instant(world, run) - 1)
            self.process_run(run)

    def process_run(self, run: RunState) -> None:
        trial, world = self.trial, self.world
        if run.cancelled:
            self.cancel(run)
        elif run.phase == "Running":
            process_running(trial, run)
            if run.refusals or is_reported_refused(run):
                self.rechecked.add(run.key)
        elif run.phase == "Waiting" and not release_run(trial, run):
            self.reported[run.key] = waiting_verdict(world.run_graph, run)
        if run.is_tree:
            self.trees.add(run.key)
            finish_tree(trial, run)
        elif run.cpu_only and run.phase == "Pending" and not run.gang:
            trial.begin_action("Start", run, world.now, Cause(Reason.NO_GPUS))

    def cancel(self, run: RunState) -> None:
        """Ends a Run that was deleted, and with a tree all of its stages."""
        for descendant in (*self.world.run_graph.descendants(run), run):
            if descendant.key not in self.cancelled:
                self.cancelled.add(descendant.key)
                end_run(self.trial, descendant, "Cancel", self.world.now)


def release_run(trial: Trial, run: RunState) -> bool:
    """Lets a Run queue once every Run that it waits for is Completed."""
    if not is_released(trial.world.run_graph, run):
        return False
    trial.begin_action("Release", run, trial.world.now, Cause(Reason.RELEASED))
    return True


def finish_tree(trial: Trial, run: RunState) -> None:
    """Ends a tree with its last stage: it is Completed if all stages are."""
    children = trial.world.run_graph.children(run)
    if run.phase in FINISHED or len(children) < len(run.run_object.spec.stages):
        return
    if any(child.cancelled for child in children):
        return  # a user deleted the Run of a stage: it is created again
    if all(child.phase in FINISHED for child in children):
        failed = next((child.key[1] for child in children if child.phase == "Failed"), None)
        cause = Cause(Reason.COMPLETED) if failed is None else Cause(Reason.STAGE_FAILED, failed)
        trial.begin_action("Complete" if failed is None else "Fail", run, trial.world.now, cause)


def missing_children(world: World, trees: set[RunKey]) -> tuple[Run, ...]:
    """Child Runs that a tree asks for and that are absent, or differ from its stage and have not begun."""
    children: list[Run] = []
    for key in sorted(trees):
        tree = world.runs[key]
        if tree.cancelled or tree.phase in FINISHED:
            continue
        for child in children_of(tree.run_object):
            existing = world.runs.get((child.metadata.namespace, child.metadata.name))
            if existing is None or (existing.parent == key and outdated(existing, child)):
                children.append(child)
    return tuple(children)


def outdated(existing: RunState, child: Run) -> bool:
    begun = existing.phase == "Running" or existing.phase in FINISHED
    return not begun and not existing.cancelled and existing.run_object.spec != child.spec


def process_running(trial: Trial, run: RunState) -> None:
    """Handles what happened to a running Run: it ended, lost nodes or pods, or is to be narrower."""
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
    if run.phase == "Running":
        leave_refusers(trial, run)
    if shape is not None and shape.malleable and run.phase == "Running" and run.width > shape.desired:
        shrink_to(trial, run, shape.desired)


def event_instant(world: World, run: RunState) -> int:
    return run.outcome[1] if run.outcome is not None and not run.cancelled else world.now


def end_run(trial: Trial, run: RunState, kind: ActionKind, at: int) -> None:
    promise = run.promise
    if kind == "Complete" and promise is not None:  # it has finished by its date: that is kept
        cause = Cause(Reason.FINISHED, promise.name)
        trial.begin_action("Supersede", run, trial.world.now, cause, promise=promise)
    withdraw_promise(trial, run, Reason.CANCELLED if kind == "Cancel" else Reason.FINISHED)
    end = PLAIN_ENDS[kind]
    trial.begin_action(kind, run, at, Cause(end.reason))
    for name in sorted(run.leases):
        trial.close(name, max(at, run.leases[name].start), end.closes[0])


def withdraw_promise(trial: Trial, run: RunState, reason: Reason = Reason.FINISHED) -> None:
    """Withdraws the promise of a Run that is finished or deleted."""
    promise = run.promise
    if promise is not None:
        trial.begin_action("Withdraw", run, trial.world.now, Cause(reason, promise.name), promise=promise)


def process_timers(trial: Trial, until: int) -> None:
    """Handles everything due up to that instant, in order, each at its own instant."""
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
        elif kind is TimerKind.IDLE:
            stop_keeping_budget(trial, world.runs[first, second], at)
        else:
            activate(trial, first_due_promise(world))


def first_due_promise(world: World) -> RunState:
    """The Run whose promise was due first; of several, the one that was promised first."""
    due = []
    for precedence in world.promise_order:
        run = world.runs[precedence[2][1:]]
        at = None if run.promise is None or run.phase in FINISHED else run.promise.at
        if at is not None and at <= world.now:
            due.append((at, precedence, run))
    return min(due, key=itemgetter(0, 1))[2]


def end_at_max_duration(trial: Trial, run: RunState, at: int) -> None:
    """Fails a Run that reached its maxDuration (F7)."""
    limit = run.run_object.spec.runtime.max_duration or ""
    withdraw_promise(trial, run)
    trial.begin_action("Fail", run, at, Cause(Reason.DURATION_EXCEEDED, limit))
    for name in sorted(run.leases):
        trial.close(name, max(at, run.leases[name].start), "Failed")


def fail_with_upstream(trial: Trial, run: RunState, at: int) -> None:
    """Fails a Run that waits for a failed one, and its gang (J1, J3)."""
    failure = upstream_failure_at(trial.world.run_graph, run)
    assert failure is not None
    for member in trial.world.run_graph.members(run):
        if member.phase == "Waiting":
            trial.begin_action(
                "Fail", member, max(at, member.created), Cause(Reason.UPSTREAM_FAILED, failure[1])
            )


def admit_queue(trial: Trial) -> tuple[dict[RunKey, Verdict], tuple[RunKey, ...]]:
    """Considers every Run in the queue, oldest first, until nothing changes any more.

    Returns the verdicts of the Runs that were refused, and all Runs that need not be considered again until
    something changes.
    """
    world = trial.world
    refused: dict[RunKey, Verdict] = {}
    considered_generations: dict[RunKey, int] = {}  # of its flavor, when each Run was considered
    changed = True
    while changed:
        changed, orders, late_orders = False, deque[CreationOrder](), list[CreationOrder]()
        if world.queue:
            prefilter = AdmissionPrefilter(world)
            world.run_queue.begin_round(world.policy.promise_depth)
            orders.extend(world.run_queue.active_runs(prefilter.max_gpus_for))
        while orders or late_orders:
            is_late = late_orders and (not orders or late_orders[0] < orders[0])
            creation_order = heappop(late_orders) if is_late else orders.popleft()
            run = world.runs[creation_order[1:]]
            flavor = world.fleet.flavor(run.flavor)
            generation = considered_generations.get(run.key, run.queue_checked_generation)
            has_news = run.queued and generation != flavor.reconsider_generation
            if not has_news or not world.run_queue.is_active(creation_order, prefilter.max_gpus_for):
                continue
            checkpoint, verdict = trial.checkpoint(), None
            if waits_in_gang(run):
                verdict = admit_gang(trial, run)
            elif not prefilter.is_certainly_refused(run):
                verdict = admit(trial, run, prefilter)
            considered_generations[run.key] = flavor.reconsider_generation
            if trial.checkpoint() != checkpoint:
                changed, prefilter = True, AdmissionPrefilter(world)
                for next_order in world.run_queue.newly_active_runs(creation_order, prefilter.max_gpus_for):
                    heappush(late_orders, next_order)
            if verdict is not None:
                refused[run.key] = verdict
        checkpoint = trial.checkpoint()
        # The hours that a start commits can end an open-ended lease at once (C5).
        process_timers(trial, world.now)
        changed = changed or trial.checkpoint() != checkpoint
    considered = tuple(key for key in sorted(considered_generations) if world.runs[key].queued)
    return {key: verdict for key, verdict in refused.items() if world.runs[key].waiting}, considered


def changed_verdicts(
    world: World, causes: dict[RunKey, Cause | None], refused: dict[RunKey, Verdict], stalled: Stalled
) -> dict[RunKey, Verdict]:
    """Verdicts that differ from the last one of the Run."""
    verdicts: dict[RunKey, Verdict] = {}
    for key in sorted(causes.keys() | refused.keys() | stalled.keys()):
        run = world.runs[key]
        verdict = refused.get(key) or current_verdict(run, causes.get(key), stalled.get(key, ()))
        if verdict != run.verdict:
            verdicts[key] = verdict
    return verdicts
