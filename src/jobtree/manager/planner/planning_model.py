"""The planning model: the world of this cluster, and what one turn of the control loop writes.

Only one thread uses it at a time, and that thread does not talk to the API server. A turn takes in what
changed, plans until nothing is left to do, and returns a write set. If a write is refused, the control loop
loads the model again from all objects of the cluster.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec

from jobtree.api.kinds.lease import Lease as WireLease
from jobtree.api.kinds.run import Run, RunStatus
from jobtree.api.schema.quantities import parse_time
from jobtree.core import (
    Action,
    Plan,
    RunKey,
    RunState,
    Violation,
    World,
    budget_status_is_ahead,
    build_endings,
    check_invariants,
    lease_from_object,
    run_status,
    run_status_is_ahead,
    run_to_rest,
)
from jobtree.manager.cluster_view import Changes
from jobtree.manager.decisions.decision_log import decision_logs, run_gone_log
from jobtree.manager.decisions.lease_objects import LeaseObjects
from jobtree.manager.decisions.pod_outcomes import PodOutcome
from jobtree.manager.decisions.write_set import (
    DecisionLog,
    DecisionWrites,
    EventNote,
    RunWrite,
    UnreservedRun,
    WriteSet,
)
from jobtree.manager.metrics import FORECAST, PLAN, Measure
from jobtree.manager.planner.cluster_intake import ClusterIntake, decision_of, run_key
from jobtree.manager.planner.desired_pods import PodSetTracker
from jobtree.manager.planner.event_notes import event_notes
from jobtree.manager.planner.held_runs import HeldRuns
from jobtree.manager.planner.status_updates import StatusPublisher

CHECK_EVERY_MS = 30_000


@dataclass
class PlannedWrites:
    """All that the plans of one turn ask for."""

    batches: list[DecisionWrites]
    event_notes: list[EventNote] = field(default_factory=list)
    cordons: set[str] = field(default_factory=set)
    children: dict[RunKey, Run] = field(default_factory=dict)
    acted: bool = False  # whether a plan had actions, or decisions were written again


@dataclass
class AppliedRuns:
    """The Runs of a decision; in order, those of them that lose leases and those that get some."""

    runs: dict[RunKey, RunState] = field(default_factory=dict)
    lost: dict[RunKey, None] = field(default_factory=dict)
    gained: dict[RunKey, None] = field(default_factory=dict)


class PlanningModel:
    def __init__(self, lottery_key: bytes, check_every_ms: int = CHECK_EVERY_MS) -> None:
        self._key = lottery_key
        self._check_every_ms = check_every_ms
        self._checked_at = 0
        self._build(0)

    def _build(self, now: int) -> None:
        self.world = World(now=now)
        self.world.lottery_key = self._key
        self.lease_objects = LeaseObjects(self.world)
        self.intake = ClusterIntake(self.world, self.lease_objects)
        self.status_publisher = StatusPublisher(self.world, self.intake)
        self.pod_set_tracker = PodSetTracker(self.world)
        self._held_runs = HeldRuns(self.world, self.intake)
        self._decision_logs: list[DecisionLog] = []  # of this turn, that no batch commits

    def load(self, everything: Changes, now: int, ahead: int = 0) -> list[Violation]:
        """Builds the world again from all objects of the cluster.

        ``ahead`` is by how much ``now`` is ahead of the clocks that write conditions of nodes, in ms.
        """
        self._build(now)
        self.intake.clock_ahead = ahead
        for budget in everything.budgets:
            if budget.after is not None:
                self.status_publisher.set_budget_status(budget.after.value)
        violations = self.intake.apply_changes(everything)
        self.world.forget_archived_except(self.lease_objects.existing)
        self.lease_objects.forget_missing()
        self.world.recheck_limits()
        self.pod_set_tracker.mark_all_changed()
        return violations

    def take_turn(
        self, changes: Changes, outcomes: Iterable[PodOutcome], now: int, ahead: int = 0
    ) -> WriteSet:
        """Takes in what happened, plans, and returns all that is to be written.

        At most ``MAX_ROUNDS`` plans are made; the next turn does what is left then.
        """
        self.intake.clock_ahead = ahead
        self.world.advance_clock(now)
        began = time.perf_counter()
        violations = self._take_in(changes, outcomes)
        planned = self._plan_to_rest()
        planned_at = time.perf_counter()
        status_writes = self.status_publisher.refresh(at_rest=not planned.acted)
        reservation_writes = status_writes.reservation_writes
        measures = [Measure(PLAN, value=planned_at - began)]
        if reservation_writes.checked_promises:
            measures.append(Measure(FORECAST, value=time.perf_counter() - planned_at))
        logs, self._decision_logs = self._decision_logs, []
        held_nodes = self.world.node_lifecycle.held_nodes()
        return WriteSet(
            batches=tuple(planned.batches),
            leases=self.lease_objects.pending_writes(),
            reservations=reservation_writes.reservations,
            reservations_to_delete=reservation_writes.abandoned,
            reservations_to_keep=reservation_writes.proofs,
            statuses=status_writes.statuses,
            budgets=status_writes.budgets,
            event_notes=(
                *planned.event_notes,
                *status_writes.event_notes,
                *self._held_runs.event_notes(held_nodes),
            ),
            cordons=tuple(sorted(planned.cordons)),
            failed_nodes=self.world.node_lifecycle.failed_nodes(),
            held_nodes=held_nodes,
            children=tuple(planned.children.values()),
            desired_pods=self.pod_set_tracker.refresh(
                self.intake.runs, reservation_writes.warned, self.status_publisher.reservations.risks
            ),
            runs_without_finalizer=tuple(
                run_object
                for uid, run_object in self.intake.runs_leaving.items()
                if not self.lease_objects.closing(uid)
            ),
            violations=(*violations, *self._check(acted=planned.acted)),
            logs=tuple(logs),
            measures=tuple(measures),
            beacon_rounds=self.beacon_rounds(),
            wake_at=earliest(self.world.timers.next_instant(), self.status_publisher.refresh_due_at()),
        )

    def _take_in(self, changes: Changes, outcomes: Iterable[PodOutcome]) -> list[Violation]:
        violations = self.intake.apply_changes(changes)
        self.pod_set_tracker.handle_changes(changes.runs)
        self._decision_logs += (run_gone_log(lease) for lease in self.lease_objects.leases_without_run)
        self.lease_objects.leases_without_run.clear()
        for outcome in outcomes:
            outcome.apply_to(self.world)
        return violations

    def _check(self, *, acted: bool) -> list[Violation]:
        """Checks the invariants after turns that decided something, at most once per period."""
        if not acted or self.world.now < self._checked_at + self._check_every_ms:
            return []
        self._checked_at = self.world.now
        return check_invariants(self.world, self.lease_objects.replay)

    def beacon_rounds(self) -> tuple[tuple[str, int], ...]:
        """Beacon name and round of every coming draw."""
        if self.world.policy.beacon is None:
            return ()
        promises = [run.promise for run in self.world.runs.values() if run.promise is not None]
        return tuple(sorted({promise.beacon for promise in promises if promise.beacon is not None}))

    def retry(self, run_object: Run) -> None:
        """Has the next turn write again what was refused of this Run: its status, or its stages."""
        key = run_key(run_object)
        self.status_publisher.mark_unwritten(run_object.metadata.uid, key)
        if key in self.world.runs:
            self.world.runs_to_check.add(key)

    # Leases that leave for the archive

    def carry_leases(self, leases: Iterable[WireLease]) -> list[str]:
        """Adds archived leases to the carried usage of their Budgets and Runs; returns their names.

        Leases that are not returned have to wait until the status of their Run can be written.
        """
        names = []
        for lease_object in leases:
            lease = lease_from_object(lease_object)
            if self._can_write_status(lease.uid) and self.world.can_archive(lease):
                self.world.carry_lease(lease, parse_time(lease_object.status.end or ""))
                self.status_publisher.mark_budget_changed(lease.payer[0])
                self.status_publisher.mark_changed(lease.run_key)
                names.append(lease.name)
        return names

    def _can_write_status(self, uid: str) -> bool:
        """Whether a Run is gone, or its status can be written: not while it is being deleted."""
        run_object = self.intake.runs.get(uid)
        run = self.world.runs.get(run_key(run_object)) if run_object is not None else None
        return run_object is None or (run is not None and run.uid == uid and not run.cancelled)

    def status_is_ahead(self, changes: Changes) -> bool:
        """Whether another manager has archived leases that this model still counts by themselves."""
        budgets = [change.after.value for change in changes.budgets if change.before and change.after]
        run_objects = [change.after.value for change in changes.runs if change.before and change.after]
        return any(budget_status_is_ahead(self.world.budgets, budget) for budget in budgets) or any(
            run.uid == run_object.metadata.uid and run_status_is_ahead(run, run_object.status.carried)
            for run_object in run_objects
            if (run := self.world.runs.get(run_key(run_object))) is not None
        )

    # Applying plans to the world

    def _plan_to_rest(self) -> PlannedWrites:
        """Plans until nothing is left to do. The API server creates the Runs of stages after the turn."""
        planned = PlannedWrites(self._redo_decisions())
        planned.acted = bool(planned.batches)

        def apply(decided: Plan) -> None:
            planned.event_notes += event_notes(self.world, self.intake, decided.actions)
            planned.batches += self._apply_plan(decided)
            planned.cordons.update(decided.cordons)
            planned.children.update({run_key(child): child for child in decided.children})
            planned.acted = planned.acted or bool(decided.actions)

        run_to_rest(self.world, apply, creates_children=False)
        return planned

    def _redo_decisions(self) -> list[DecisionWrites]:
        """Writes decisions again that a Reservation holds and that some Runs do not hold yet."""
        run_keys, self.intake.runs_to_redo = self.intake.runs_to_redo, []
        runs = [self.world.runs[key] for key in run_keys if key in self.world.runs]
        writes = [self._write_of(run) for run in runs]
        releases = tuple(write for write in writes if write.status.allocation is None)
        acquisitions = tuple(write for write in writes if write.status.allocation is not None)
        return [DecisionWrites(moves=(*releases, *acquisitions))] if writes else []

    def _apply_plan(self, decided: Plan) -> list[DecisionWrites]:
        for key, verdict in decided.verdicts.items():
            if key in self.world.runs:
                self.world.runs[key].record_verdict(verdict)
                self.status_publisher.mark_changed(key)
        self.world.begin_plan(decided)
        batches = [self._apply_decision(segment) for segment in decisions_in(decided.actions)]
        self.world.finish_plan(decided)
        return [batch for batch in batches if batch != DecisionWrites()]

    def _apply_decision(self, actions: list[Action]) -> DecisionWrites:
        """Applies the actions of one decision, and returns the writes that commit it, with their logs."""
        logs = decision_logs(self.world, actions)
        applied = AppliedRuns()
        for action in actions:
            self._apply_action(action, applied)
        runs, lost, gained = applied.runs, applied.lost, applied.gained
        writes = {
            key: self._write_of(runs[key])
            for key in (*lost, *gained)
            if runs[key].uid in self.intake.runs  # else it is gone, and nothing can be written to it
        }
        resolution = self.status_publisher.reservations.resolution(
            actions, [decision_of(write.run, write.status) for write in writes.values()]
        )
        if resolution is not None:
            all_logs = tuple(log for logs_of_run in logs.values() for log in logs_of_run)
            resolution, logs = msgspec.structs.replace(resolution, decision_logs=all_logs), {}
        trees = self._trees(runs, [key for key in gained if key not in lost], writes, logs)
        for key in writes.keys() & logs.keys():
            writes[key] = msgspec.structs.replace(writes[key], decision_logs=logs.pop(key))
        self._decision_logs += (log for logs_of_run in logs.values() for log in logs_of_run)
        return DecisionWrites(
            unreserved=self._unreserved_runs(actions, runs) if resolution is None else (),
            resolution=resolution,
            trees=trees,
            releases=tuple(write for key, write in writes.items() if key not in gained),
            moves=tuple(writes[key] for key in gained if key in lost and key in writes),
            acquisitions=tuple(writes[key] for key in gained if key not in lost and key in writes),
        )

    def _unreserved_runs(
        self, actions: list[Action], runs: dict[RunKey, RunState]
    ) -> tuple[UnreservedRun, ...]:
        """Returns the Runs of a resolution without a Reservation, and the tree of a gang of stages."""
        unreserved: dict[str, UnreservedRun] = {}
        for action in actions:
            if action.record is None or action.promise is None:
                continue
            run = runs[action.run_key]
            tree = self.world.runs.get(run.parent) if run.parent and len(run.gang) > 1 else None
            for left_out in (run, tree):
                run_object = self.intake.runs.get(left_out.uid) if left_out is not None else None
                if run_object is not None:
                    unreserved[run_object.metadata.uid] = UnreservedRun(run_object, action.promise.name)
        return tuple(unreserved.values())

    def _mark_promised_budgets(self, run: RunState) -> None:
        """Has the statuses of Budgets written of which a promise to the Run keeps a part."""
        for (budget, _), _ in run.promise.funding if run.promise is not None else ():
            self.status_publisher.mark_budget_changed(budget)

    def _apply_action(self, action: Action, applied: AppliedRuns) -> None:
        key = action.run_key
        run = applied.runs[key] = self.world.runs[key]
        if action.kind == "Restart":  # no lease changes, but the number of the next attempt must be written
            applied.lost[key] = applied.gained[key] = None
        elif action.kind == "Start":  # perhaps without a lease
            applied.gained[key] = None
        for closing in action.closes:
            lease = self.world.posted_leases[closing.lease].lease
            self.lease_objects.close(lease, closing)
            self.status_publisher.mark_budget_changed(lease.payer[0])
            applied.lost[key] = None
        self._mark_promised_budgets(run)
        self.world.apply(action)
        self._mark_promised_budgets(run)
        for lease in action.opens:
            self.lease_objects.open(lease)
            self.status_publisher.mark_budget_changed(lease.payer[0])
            applied.gained.pop(key, None)
            applied.gained[key] = None
        self.status_publisher.mark_changed(key)
        self.status_publisher.reservations.record_action(action)
        self.pod_set_tracker.mark_changed(action)
        if self.world.runs.get(key) is not run:
            self.intake.forget_run(run)

    def _trees(
        self,
        runs: dict[RunKey, RunState],
        starting: list[RunKey],
        writes: dict[RunKey, RunWrite],
        logs: dict[RunKey, tuple[DecisionLog, ...]],
    ) -> tuple[RunWrite, ...]:
        """The writes to trees whose stages start together: a tree holds the decisions for all of them (J3).

        The logs of these stages move to the write of their tree.
        """
        together: dict[RunKey, list[RunWrite]] = {}
        tree_logs: dict[RunKey, tuple[DecisionLog, ...]] = {}
        for key in starting:
            tree = runs[key].parent
            if tree is not None and len(runs[key].gang) > 1:
                together.setdefault(tree, []).append(writes[key])
                tree_logs[tree] = (*tree_logs.get(tree, ()), *logs.pop(key, ()))
        tree_writes = []
        for key, stages in together.items():
            write = self._write_of(self.world.runs[key])
            decided = tuple(decision_of(stage.run, stage.status) for stage in stages)
            status = msgspec.structs.replace(write.status, decided=decided)
            tree_writes.append(msgspec.structs.replace(write, status=status, decision_logs=tree_logs[key]))
        return tuple(tree_writes)

    def _write_of(self, run: RunState) -> RunWrite:
        run_object = self.intake.runs.get(run.uid, run.run_object)
        status = self._status_of(run)
        self.status_publisher.set_run_status(run.uid, status)
        return RunWrite(run_object, status, starts=bool(run.leases))

    def _status_of(self, run: RunState) -> RunStatus:
        closing = self.lease_objects.closing(run.uid)
        if self.world.runs.get(run.key) is run:
            return run_status(self.world, run, self.status_publisher.known_risks_of(run), closing)
        endings = build_endings(run.run_object, closing)
        return msgspec.structs.replace(  # the Run is gone from the world: only its leases change
            run.run_object.status,
            allocation=None,
            closing=endings.closing,
            ended=endings.ended,
            revision=run.revision,
        )


def earliest(*instants: int | None) -> int | None:
    return min((at for at in instants if at is not None), default=None)


def decisions_in(actions: Sequence[Action]) -> list[list[Action]]:
    """The actions of a plan, cut after every resolution: each decision has a commit point of its own."""
    ends = {
        action.promise.name: index
        for index, action in enumerate(actions)
        if action.record is not None and action.promise is not None
    }
    cuts = sorted({index + 1 for index in ends.values()} | {len(actions)})
    return [list(actions[start:end]) for start, end in pairwise((0, *cuts)) if end > start]
