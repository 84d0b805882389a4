"""Intake: what the cluster shows becomes what the world holds.

Most of what changes on a cluster changes nothing for a plan (heartbeats, and everything that Jobtree wrote
itself): it stops here. An object is its UID. A Run that is seen for the first time brings what its
allocation holds; if a Reservation holds a decision about it that was not carried out, that decision is what
counts.
"""

from collections.abc import Iterable

import msgspec

from jobtree.api.kinds.budget import Budget
from jobtree.api.kinds.lease import RunRef
from jobtree.api.kinds.policy import Policy
from jobtree.api.kinds.reservation import Reservation, ReservationState
from jobtree.api.kinds.run import Decided, Run, RunStatus
from jobtree.api.schema.object_meta import Condition
from jobtree.core import (
    FINISHED,
    RunKey,
    RunState,
    Violation,
    World,
    child_name,
    leases_in_allocation,
    load_first_estimate,
    promise_from_reservation,
)
from jobtree.kube.watch.object_decoder import LiveNode, LivePod
from jobtree.kube.watch.object_store import Change
from jobtree.manager.cluster_view import Changes
from jobtree.manager.decisions.lease_objects import LeaseObjects
from jobtree.messages.reported_verdict import reported_verdict


class ClusterIntake:
    """Keeps a world in step with the cluster; remembers the versions that it was kept in step with."""

    def __init__(self, world: World, book: LeaseObjects) -> None:
        self.world = world
        self.book = book
        self.runs: dict[str, Run] = {}  # by UID, as last seen
        self.runs_leaving: dict[str, Run] = {}  # being deleted, and not in the world any more
        self.changed_runs: set[RunKey] = set()  # seen for the first time, or changed
        self.runs_to_redo: list[RunKey] = []  # a Reservation decided about them, and they do not say so yet
        self.budgets: set[str] = set()  # that came or changed
        self.reservations: dict[RunKey, Reservation] = {}  # as last seen
        self.ended_reservations: dict[
            RunKey, ReservationState
        ] = {}  # Reservations that ended and do not say so yet
        self.promise_inputs_changed = True  # something changed that promises depend on
        self._decided: dict[str, Decided] = {}
        self._numbers: dict[RunKey, int] = {}  # of Reservations, the highest by the name of their Run

    def apply_changes(self, changes: Changes) -> list[Violation]:
        for policy in changes.policy:
            self._handle_policy(policy)
        for node in changes.nodes:
            self._handle_node(node)
        for pod in changes.pods:
            self._handle_pod(pod)
        for budget in changes.budgets:
            self._handle_budget(budget)
        self._collect_decisions(changes.reservations)
        self._collect_decisions(changes.runs)
        for run in changes.runs:
            self._handle_run(run)
        found = self.book.handle_changes(changes.leases, changes.unread)
        missed, self.book.deleted_by_others = self.book.deleted_by_others, []
        self.budgets.update(lease.payer[0] for lease in missed)
        self.budgets |= self.book.budgets_to_update
        self.book.budgets_to_update.clear()
        self.changed_runs.update(lease.run_key for lease in missed)
        for reservation in changes.reservations:
            self._handle_reservation(reservation)
        return found

    def _handle_policy(self, change: Change[Policy]) -> None:
        policy = change.after.value if change.after else Policy()
        if policy != self.world.policy:
            self.world.set_policy(policy)
            self.promise_inputs_changed = True

    def _handle_node(self, change: Change[LiveNode]) -> None:
        before, after = change.before, change.after
        if after is None:
            assert before is not None
            self.world.drop_node(before.name, before.uid)
        elif before is None or before.value.node != after.value.node:
            self.world.put_node(after.value.node)
        else:
            return
        self.promise_inputs_changed = True

    def _handle_pod(self, change: Change[LivePod]) -> None:
        before, after = change.before, change.after
        if after is None:
            assert before is not None
            self.world.drop_pod(before.uid)
        elif before is None or before.value.pod != after.value.pod:
            self.world.put_pod(after.value.pod)
        else:
            return
        self.promise_inputs_changed = self.promise_inputs_changed or not any(
            one.value.run_uid for one in (before, after) if one
        )

    def _handle_budget(self, change: Change[Budget]) -> None:
        before, after = change.before, change.after
        if after is None:
            assert before is not None
            known = self.world.budgets.budgets.get(before.name)
            if known is not None and known.metadata.uid == before.uid:
                self.world.drop_budget(before.name)
                self.promise_inputs_changed = True
        elif before is None or before.value.spec != after.value.spec:
            if not self.world.budgets.has_budget(after.name):
                self.book.replay.add_opening_balance(after.value)
            self.world.put_budget(after.value)
            self.budgets.add(after.name)
            self.promise_inputs_changed = True

    # Runs

    def _collect_decisions(self, changes: Iterable[Change[Reservation]] | Iterable[Change[Run]]) -> None:
        for change in changes:
            for decided in change.after.value.status.decided if change.after and not change.before else ():
                known = self._decided.get(decided.run_ref.uid)
                if known is None or known.revision < decided.revision:
                    self._decided[decided.run_ref.uid] = decided

    def _handle_run(self, change: Change[Run]) -> None:
        if change.after is None:
            assert change.before is not None
            self._handle_deleted_run(change.before.value)
            return
        run = change.after.value
        uid, known = run.metadata.uid, self.runs.get(run.metadata.uid)
        self.runs[uid] = run
        if uid in self.runs_leaving:
            self.runs_leaving[uid] = run
        elif known is None:
            self._handle_new_run(run)
        elif known.spec != run.spec or known.metadata.deletion_timestamp != run.metadata.deletion_timestamp:
            self.world.put_run(run)
            self.changed_runs.add(run_key(run))
            self.promise_inputs_changed = True
        else:
            state = self.world.runs.get(run_key(run))
            if state is not None and state.uid == uid:
                state.update_object(run)

    def _handle_new_run(self, run: Run) -> None:
        decided = self._decided.pop(run.metadata.uid, None)
        if decided is not None and decided.revision > run.status.revision:
            run = msgspec.structs.replace(run, status=with_decision(run.status, decided))
            self.runs_to_redo.append(run_key(run))
        state = self.world.put_run(run)
        self.book.load_closing(run)
        for lease in leases_in_allocation(run):
            self.world.lease_intake.add_open(lease)
            self.book.open(lease)
        if state.uid == run.metadata.uid:
            state.record_verdict(reported_verdict(state))
            taken = [self._numbers.get(key, 0) for key in (state.key, state.parent) if key is not None]
            state.raise_reservations_made(max(taken))
        self.changed_runs.add(run_key(run))
        self.promise_inputs_changed = True

    def _handle_deleted_run(self, run: Run) -> None:
        uid = run.metadata.uid
        self.runs.pop(uid, None)
        self.runs_leaving.pop(uid, None)
        self.book.forget_run(uid)
        self.promise_inputs_changed = True
        state = self.world.runs.get(run_key(run))
        if state is not None and state.uid == uid:
            self.book.leases_without_run += state.leases.values()
            self.world.drop_run(state.key)

    def forget_run(self, state: RunState) -> None:
        """The world has let this Run go."""
        run = self.runs.get(state.uid)
        if run is not None:
            self.runs_leaving[state.uid] = run

    def key_of(self, uid: str) -> RunKey:
        return run_key(self.runs[uid])

    # Reservations

    def _handle_reservation(self, change: Change[Reservation]) -> None:
        if change.after is None:
            assert change.before is not None
            self.reservations.pop((change.before.namespace, change.before.name), None)
            self.promise_inputs_changed = True
            return
        reservation = change.after.value
        self.reservations[change.after.namespace, change.after.name] = reservation
        number = reservation.metadata.name.rpartition("-")[2]
        if change.before is not None or not number.isdecimal() or reservation.status.state is None:
            return  # known; or begun, and never promised anything
        named = (reservation.metadata.namespace, reservation.spec.run_ref.name)
        self._numbers[named] = max(self._numbers.get(named, 0), int(number))
        if reservation.status.told and reservation.status.told.started:
            load_first_estimate(self.world, reservation, named)
        for stage in reservation.spec.members or ("",):
            self._handle_member(reservation, stage, int(number))

    def _handle_member(self, reservation: Reservation, stage: str, number: int) -> None:
        """What a Reservation promises to its Run, or to one of the stages that start together."""
        reference = reservation.spec.run_ref
        name = child_name(reference.name, stage) if stage else reference.name
        run = self.world.runs.get((reservation.metadata.namespace, name))
        if run is None:
            return
        run.raise_reservations_made(number)  # an earlier Run's too: its name is taken
        if not stage and run.uid != reference.uid:
            return
        if reservation.status.state != "Pending" or run.promise is not None:
            return
        if run.phase in FINISHED:
            self.ended_reservations[reservation.metadata.namespace, reservation.metadata.name] = "Cancelled"
        elif run.leases and run.run_object.status.reservation != reservation.metadata.name:
            self.ended_reservations[reservation.metadata.namespace, reservation.metadata.name] = "Superseded"
            if run.since is not None:
                load_first_estimate(self.world, reservation, run.key, run.since)
        elif run.phase in ("Pending", "Running"):
            self.world.put_promise(run, promise_from_reservation(reservation, run, stage))
            load_first_estimate(self.world, reservation, run.key)


def run_key(run: Run) -> RunKey:
    return run.metadata.namespace, run.metadata.name


def with_decision(status: RunStatus, decided: Decided) -> RunStatus:
    """The status that a decision gives a Run."""
    admitted = Condition(
        type="Admitted",
        status="True" if decided.phase == "Running" else "False",
        reason=decided.reason or decided.phase,
        last_transition_time=decided.since,
    )
    return msgspec.structs.replace(
        status,
        phase=decided.phase,
        conditions=(admitted,),
        reason=decided.reason,
        message=decided.message,
        attempt=decided.attempt,
        changed_at=decided.changed_at,
        restarts=decided.restarts,
        resume_at=decided.resume_at,
        leases_opened=decided.leases_opened,
        lotteries_lost=decided.lotteries_lost,
        provisional=decided.provisional,
        allocation=decided.allocation,
        closing=decided.closing,
        revision=decided.revision,
    )


def decision_of(run: Run, status: RunStatus) -> Decided:
    """The part of a status that was decided."""
    metadata, finished = run.metadata, status.phase in FINISHED
    return Decided(
        run_ref=RunRef(namespace=metadata.namespace, name=metadata.name, uid=metadata.uid),
        revision=status.revision,
        phase=status.phase or "Pending",
        since=status.conditions[0].last_transition_time if status.conditions else None,
        reason=status.reason if finished else "",
        message=status.message if finished else "",
        attempt=status.attempt,
        changed_at=status.changed_at,
        restarts=status.restarts,
        resume_at=status.resume_at,
        leases_opened=status.leases_opened,
        lotteries_lost=status.lotteries_lost,
        provisional=status.provisional,
        allocation=status.allocation,
        closing=status.closing,
    )
