"""The model: the world of this cluster, and the steps that follow from it.

Used by one thread at a time, and never by one that talks to the server: it takes in what changed, plans
until nothing is left to do, and answers with a step. If any of that cannot be written, the model is built
anew from the cluster and plans again.
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
from jobtree.manager.decisions.write_set import DecisionLog, DecisionWrites, EventNote, RunWrite, WriteSet
from jobtree.manager.metrics import FORECAST, PLAN, Measure
from jobtree.manager.planner.cluster_intake import ClusterIntake, decision_of, run_key
from jobtree.manager.planner.desired_pods import PodSetTracker
from jobtree.manager.planner.event_notes import event_notes
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


class PlanningModel:
    def __init__(self, lottery_key: bytes, check_every_ms: int = CHECK_EVERY_MS) -> None:
        self._key = lottery_key
        self._check_every_ms = check_every_ms
        self._checked_at = 0
        self._build(0)

    def _build(self, now: int) -> None:
        self.world = World(now=now)
        self.world.lottery_key = self._key
        self.book = LeaseObjects(self.world)
        self.intake = ClusterIntake(self.world, self.book)
        self.telling = StatusPublisher(self.world, self.intake)
        self.casting = PodSetTracker(self.world)
        self._deeds: list[DecisionLog] = []  # of this step, that no batch commits

    def load(self, everything: Changes, now: int) -> list[Violation]:
        """Build the world anew from all there is."""
        self._build(now)
        for budget in everything.budgets:
            if budget.after is not None:
                self.telling.set_budget_status(budget.after.value)
        violations = self.intake.apply_changes(everything)
        self.world.forget_archived_except(self.book.existing)
        self.book.forget_missing()
        self._record_cuts()
        self.casting.touch_all()
        return violations

    def _record_cuts(self) -> None:
        """Budgets may have been cut while nobody watched: settle what exceeds them (C10)."""
        ledger = self.world.budgets
        ledger.edited_envelopes.update(ledger.envelopes)
        for envelope in ledger.envelopes.values():
            accounts = (envelope.account, envelope.lending_account, *(cap.account for cap in envelope.caps))
            if any(
                account.max_use is not None and account.closed_usage > account.max_use for account in accounts
            ):
                envelope.amended_at = self.world.now

    def take_turn(self, changes: Changes, news: Iterable[PodOutcome], now: int) -> WriteSet:
        """Takes in what happened, and decides all that follows.

        At most ``MAX_ROUNDS`` plans are made; the next turn does what is left then.
        """
        self.world.advance_clock(now)
        began = time.perf_counter()
        violations = self.intake.apply_changes(changes)
        self.casting.handle_changes(changes.runs)
        self._deeds += (run_gone_log(lease) for lease in self.book.leases_without_run)
        self.book.leases_without_run.clear()
        for one in news:
            one.apply_to(self.world)
        planned = self._plan_to_rest()
        planned_at = time.perf_counter()
        told = self.telling.refresh(at_rest=not planned.acted)
        measures = [Measure(PLAN, value=planned_at - began)]
        if told.foretold.told:
            measures.append(Measure(FORECAST, value=time.perf_counter() - planned_at))
        deeds, self._deeds = self._deeds, []
        threats = self.telling.reservations.risks
        return WriteSet(
            batches=tuple(planned.batches),
            leases=self.book.pending_writes(),
            reservations=told.foretold.reservations,
            reservations_to_delete=told.foretold.abandoned,
            reservations_to_keep=told.foretold.proofs,
            statuses=told.statuses,
            budgets=told.budgets,
            notes=(*planned.event_notes, *told.notes),
            cordons=tuple(sorted(planned.cordons)),
            children=tuple(planned.children.values()),
            desired_pods=self.casting.refresh(self.intake.runs, told.foretold.warned, threats),
            runs_without_finalizer=tuple(
                run for uid, run in self.intake.runs_leaving.items() if not self.book.closing(uid)
            ),
            violations=(*violations, *self._check(planned.acted)),
            logs=tuple(deeds),
            measures=tuple(measures),
            beacon_rounds=self.beacon_rounds(),
            wake_at=earliest(self.world.timers.next_instant(), self.telling.refresh_due_at()),
        )

    # Leases that leave for the archive

    def carry_leases(self, leases: Iterable[WireLease]) -> list[str]:
        """These are in the archive: their Budgets and Runs carry them from now on, and say so.

        The names of those that can be carried; others must wait until their Budget or Run can say so.
        """
        aside = []
        for wire in leases:
            lease = lease_from_object(wire)
            if self._can_write_status(lease.uid) and self.world.can_archive(lease):
                self.world.carry_lease(lease, parse_time(wire.status.end or ""))
                self.telling.mark_budget_changed(lease.payer[0])
                self.telling.mark_changed(lease.run_key)
                aside.append(lease.name)
        return aside

    def _can_write_status(self, uid: str) -> bool:
        """Whether a Run is gone altogether, or there to have its status written; not while it is deleted."""
        run = self.intake.runs.get(uid)
        state = self.world.runs.get(run_key(run)) if run is not None else None
        return run is None or (state is not None and state.uid == uid and not state.cancelled)

    def status_is_ahead(self, changes: Changes) -> bool:
        """Whether another manager has set leases aside that this model still counts by themselves."""
        budgets = [one.after.value for one in changes.budgets if one.before and one.after]
        runs = [one.after.value for one in changes.runs if one.before and one.after]
        return any(budget_status_is_ahead(self.world.budgets, budget) for budget in budgets) or any(
            state.uid == run.metadata.uid and run_status_is_ahead(state, run.status.carried)
            for run in runs
            if (state := self.world.runs.get(run_key(run))) is not None
        )

    def beacon_rounds(self) -> tuple[tuple[str, int], ...]:
        """Of the beacon, that promises are drawn with."""
        if self.world.policy.beacon is None:
            return ()
        promises = [run.promise for run in self.world.runs.values() if run.promise is not None]
        return tuple(sorted({one.beacon for one in promises if one.beacon is not None}))

    def _check(self, acted: bool) -> list[Violation]:  # noqa: FBT001
        """The invariants, of a world at rest, now and then."""
        if not acted or self.world.now < self._checked_at + self._check_every_ms:
            return []
        self._checked_at = self.world.now
        return check_invariants(self.world, self.book.replay)

    # Applying plans to the world

    def _plan_to_rest(self) -> PlannedWrites:
        """Plans until nothing is left to do; the API server creates the Runs of stages later."""
        planned = PlannedWrites(self._redo_decisions())
        planned.acted = bool(planned.batches)

        def apply(decided: Plan) -> None:
            planned.event_notes += event_notes(self.world, self.intake, decided.actions)
            planned.batches += self._commit(decided)
            planned.cordons.update(decided.cordons)
            planned.children.update({run_key(child): child for child in decided.children})
            planned.acted = planned.acted or bool(decided.actions)

        run_to_rest(self.world, apply, creates_children=False)
        return planned

    def _redo_decisions(self) -> list[DecisionWrites]:
        """Decisions that a Reservation holds and the Runs do not say yet: as they were decided."""
        keys, self.intake.runs_to_redo = self.intake.runs_to_redo, []
        runs = [self.world.runs[key] for key in keys if key in self.world.runs]
        writes = [self._write_of(run) for run in runs]
        gives = tuple(write for write in writes if write.status.allocation is None)
        gets = tuple(write for write in writes if write.status.allocation is not None)
        return [DecisionWrites(moves=(*gives, *gets))] if writes else []

    def _commit(self, decided: Plan) -> list[DecisionWrites]:
        for key, verdict in decided.verdicts.items():
            if key in self.world.runs:
                self.world.runs[key].record_verdict(verdict)
                self.telling.mark_changed(key)
        self.world.begin_plan(decided)
        batches = [self._apply_decision(segment) for segment in decisions_in(decided.actions)]
        self.world.finish_plan(decided)
        return [batch for batch in batches if batch != DecisionWrites()]

    def _apply_decision(self, actions: list[Action]) -> DecisionWrites:
        lost: dict[RunKey, None] = {}
        gained: dict[RunKey, None] = {}
        runs: dict[RunKey, RunState] = {}
        deeds = decision_logs(self.world, actions)
        for action in actions:
            runs[action.run_key] = self.world.runs[action.run_key]
            if action.kind == "Restart":  # no lease changes, yet the next attempt must not be forgotten
                lost[action.run_key] = gained[action.run_key] = None
            elif action.kind == "Start":  # perhaps without a lease
                gained[action.run_key] = None
            for closing in action.closes:
                lease = self.world.posted_leases[closing.lease].lease
                self.book.close(lease, closing)
                self.telling.mark_budget_changed(lease.payer[0])
                lost[action.run_key] = None
            self.world.apply(action)
            for lease in action.opens:
                self.book.open(lease)
                self.telling.mark_budget_changed(lease.payer[0])
                gained.pop(action.run_key, None)
                gained[action.run_key] = None
            self.telling.mark_changed(action.run_key)
            self.telling.reservations.record_action(action)
            self.casting.mark_changed(action)
            if self.world.runs.get(action.run_key) is not runs[action.run_key]:
                self.intake.forget_run(runs[action.run_key])
        writes = {
            key: self._write_of(runs[key])
            for key in (*lost, *gained)
            if runs[key].uid in self.intake.runs  # else it is gone, and nothing can be written to it
        }
        resolution = self.telling.reservations.resolution(
            actions, [decision_of(write.run, write.status) for write in writes.values()]
        )
        if resolution is not None:
            done = tuple(deed for found in deeds.values() for deed in found)
            resolution, deeds = msgspec.structs.replace(resolution, deeds=done), {}
        trees = self._trees(runs, [key for key in gained if key not in lost], writes, deeds)
        for key in writes.keys() & deeds.keys():
            writes[key] = msgspec.structs.replace(writes[key], deeds=deeds.pop(key))
        self._deeds += (deed for found in deeds.values() for deed in found)
        return DecisionWrites(
            without_reservation=resolution is None and any(action.record is not None for action in actions),
            resolution=resolution,
            trees=trees,
            releases=tuple(write for key, write in writes.items() if key not in gained),
            moves=tuple(writes[key] for key in gained if key in lost and key in writes),
            acquisitions=tuple(writes[key] for key in gained if key not in lost and key in writes),
        )

    def _trees(
        self,
        runs: dict[RunKey, RunState],
        starting: list[RunKey],
        writes: dict[RunKey, RunWrite],
        deeds: dict[RunKey, tuple[DecisionLog, ...]],
    ) -> tuple[RunWrite, ...]:
        """The trees of stages that start together: each holds what was decided for all of them (J3)."""
        together: dict[RunKey, list[RunWrite]] = {}
        done: dict[RunKey, tuple[DecisionLog, ...]] = {}
        for key in starting:
            tree = runs[key].parent
            if tree is not None and len(runs[key].gang) > 1:
                together.setdefault(tree, []).append(writes[key])
                done[tree] = (*done.get(tree, ()), *deeds.pop(key, ()))
        found = []
        for key, stages in together.items():
            write = self._write_of(self.world.runs[key])
            decided = tuple(decision_of(one.run, one.status) for one in stages)
            status = msgspec.structs.replace(write.status, decided=decided)
            found.append(msgspec.structs.replace(write, status=status, deeds=done[key]))
        return tuple(found)

    def _write_of(self, state: RunState) -> RunWrite:
        run = self.intake.runs.get(state.uid, state.run_object)
        status = self._status_of(state)
        self.telling.set_run_status(state.uid, status)
        return RunWrite(run, status, starts=bool(state.leases))

    def _status_of(self, run: RunState) -> RunStatus:
        closing = self.book.closing(run.uid)
        known = self.world.runs.get(run.key)
        if known is run:
            return run_status(self.world, run, self.telling.known_risks_of(run), closing)
        return msgspec.structs.replace(  # it is going: what it held is all that changes
            run.run_object.status, allocation=None, closing=closing, revision=run.revision
        )


def earliest(*instants: int | None) -> int | None:
    return min((at for at in instants if at is not None), default=None)


def decisions_in(actions: Sequence[Action]) -> list[list[Action]]:
    """A plan cut after every resolution: each is a decision of its own, with a commit point of its own."""
    ends = {
        action.promise.name: index
        for index, action in enumerate(actions)
        if action.record is not None and action.promise is not None
    }
    cuts = sorted({index + 1 for index in ends.values()} | {len(actions)})
    return [list(actions[start:end]) for start, end in pairwise((0, *cuts)) if end > start]
