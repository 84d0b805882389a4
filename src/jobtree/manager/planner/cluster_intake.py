"""Applies changes of cluster objects to the world.

Most changes on a cluster change nothing for a plan (heartbeats, and everything that Jobtree wrote itself) and
are dropped here. Objects are told apart by UID. A Run that appears for the first time brings the leases of
its allocation. If a Reservation holds a later decision about it, that decision counts and is written again.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from jobtree.api.kinds.budget import Budget
from jobtree.api.kinds.lease import RunRef
from jobtree.api.kinds.policy import Policy
from jobtree.api.kinds.reservation import Reservation, ReservationState, ReservationStatus
from jobtree.api.kinds.run import Decided, Run, RunStatus
from jobtree.api.kubernetes.node import Node
from jobtree.api.schema.object_meta import Condition
from jobtree.api.schema.quantities import parse_time
from jobtree.core import (
    FINISHED,
    Record,
    RunKey,
    RunState,
    Violation,
    World,
    child_name,
    leases_in_allocation,
    load_first_estimate,
    load_promise,
)
from jobtree.kube.watch.object_decoder import LiveNode, LivePod
from jobtree.kube.watch.object_store import Change
from jobtree.manager.cluster_view import Changes
from jobtree.manager.decisions.lease_objects import LeaseObjects
from jobtree.messages.reported_verdict import reported_verdict


class ClusterIntake:
    """Keeps a world up to date with the cluster, and keeps the objects as they were last seen."""

    def __init__(self, world: World, lease_objects: LeaseObjects) -> None:
        self.world = world
        self.lease_objects = lease_objects
        self.runs: dict[str, Run] = {}  # by UID, as last seen
        self.runs_leaving: dict[str, Run] = {}  # being deleted, and not in the world any more
        self.changed_runs: set[RunKey] = set()  # that are new or changed
        self.runs_to_redo: list[RunKey] = []  # whose decision is held by a Reservation only
        self.changed_budgets: set[str] = set()  # that are new or changed
        self.reservations: dict[RunKey, Reservation] = {}  # as last seen
        # Reservations that ended, with a final state that is not written yet
        self.ended_reservations: dict[RunKey, ReservationState] = {}
        self.promise_inputs_changed = True  # whether anything changed that promises depend on
        self.clock_ahead = 0  # by how much the world's clock is ahead of the system clocks, in ms
        self._decided: dict[str, Decided] = {}
        self._numbers: dict[RunKey, int] = {}  # the highest number of a Reservation, by Run

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
        self.lease_objects.release_readable(changes.unread)
        for run in changes.runs:
            self._handle_run(run)
        violations = self.lease_objects.handle_changes(changes.leases)
        deleted, self.lease_objects.deleted_by_others = self.lease_objects.deleted_by_others, []
        self.changed_budgets.update(lease.payer[0] for lease in deleted)
        self.changed_budgets |= self.lease_objects.budgets_to_update
        self.lease_objects.budgets_to_update.clear()
        self.changed_runs.update(lease.run_key for lease in deleted)
        for reservation in changes.reservations:
            self._handle_reservation(reservation)
        return violations

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
            node = after.value.node
            self.world.put_node(in_planning_time(node, self.clock_ahead) if self.clock_ahead else node)
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
            stored.value.run_uid for stored in (before, after) if stored
        )

    def _handle_budget(self, change: Change[Budget]) -> None:
        before, after = change.before, change.after
        if after is None:
            assert before is not None
            existing = self.world.budgets.budgets.get(before.name)
            if existing is not None and existing.metadata.uid == before.uid:
                self.world.drop_budget(before.name)
                self.promise_inputs_changed = True
        elif before is None or before.value.spec != after.value.spec:
            if not self.world.budgets.has_budget(after.name):
                self.lease_objects.replay.add_opening_balance(after.value)
            self.world.put_budget(after.value)
            self.changed_budgets.add(after.name)
            self.promise_inputs_changed = True

    # Runs

    def _collect_decisions(self, changes: Iterable[Change[Reservation]] | Iterable[Change[Run]]) -> None:
        for change in changes:
            for decided in change.after.value.status.decided if change.after and not change.before else ():
                previous = self._decided.get(decided.run_ref.uid)
                if previous is None or previous.revision < decided.revision:
                    self._decided[decided.run_ref.uid] = decided

    def _handle_run(self, change: Change[Run]) -> None:
        if change.after is None:
            assert change.before is not None
            self._handle_deleted_run(change.before.value)
            return
        run_object = change.after.value
        uid, previous = run_object.metadata.uid, self.runs.get(run_object.metadata.uid)
        self.runs[uid] = run_object
        if uid in self.runs_leaving:
            self.runs_leaving[uid] = run_object
        elif previous is None:
            self._handle_new_run(run_object)
        elif previous.spec != run_object.spec or is_newly_deleted(previous, run_object):
            self.world.put_run(run_object)
            self.changed_runs.add(run_key(run_object))
            self.promise_inputs_changed = True
        else:
            run = self.world.runs.get(run_key(run_object))
            if run is not None and run.uid == uid:
                run.update_object(run_object)
                self._end_if_finished_by_others(run, run_object)

    def _end_if_finished_by_others(self, run: RunState, run_object: Run) -> None:
        """Ends a running Run that an administrator has marked as finished (break-glass).

        A status that a manager decided has a higher revision.
        """
        status = run_object.status
        if status.phase in FINISHED and run.phase == "Running" and status.revision <= run.revision:
            succeeded = status.phase == "Completed"
            self.world.finish(run.key, succeeded=succeeded, at=max(self.world.now, run.since or 0))

    def _handle_new_run(self, run_object: Run) -> None:
        decided = self._decided.pop(run_object.metadata.uid, None)
        if decided is not None and decided.revision > run_object.status.revision:
            status = with_decision(run_object.status, decided)
            run_object = msgspec.structs.replace(run_object, status=status)
            self.runs_to_redo.append(run_key(run_object))
        written = run_object
        if run_object.status.phase in FINISHED and run_object.status.allocation is not None:
            # An administrator has marked it as finished; its leases are still open.
            status = msgspec.structs.replace(run_object.status, phase="Running")
            run_object = msgspec.structs.replace(run_object, status=status)
        run = self.world.put_run(run_object)
        self.lease_objects.load_closing(run_object)
        for lease in leases_in_allocation(run_object):
            self.world.lease_intake.add_open(lease)
            self.lease_objects.open(lease)
        if run.uid == run_object.metadata.uid:
            run.record_verdict(reported_verdict(run))
            taken = [self._numbers.get(key, 0) for key in (run.key, run.parent) if key is not None]
            run.raise_reservations_made(max(taken))
            self._end_if_finished_by_others(run, written)
        self.changed_runs.add(run_key(run_object))
        self.promise_inputs_changed = True

    def _handle_deleted_run(self, run_object: Run) -> None:
        uid = run_object.metadata.uid
        self.runs.pop(uid, None)
        self.runs_leaving.pop(uid, None)
        self.lease_objects.forget_run(uid)
        self.promise_inputs_changed = True
        run = self.world.runs.get(run_key(run_object))
        if run is not None and run.uid == uid:
            self.lease_objects.leases_without_run += run.leases.values()
            self.world.drop_run(run.key)
        self.world.free_name(run_key(run_object))
        self.changed_runs.add(run_key(run_object))

    def forget_run(self, run: RunState) -> None:
        """Notes that the world has dropped this Run: its finalizer can go when its leases are ended."""
        run_object = self.runs.get(run.uid)
        if run_object is not None:
            self.runs_leaving[run.uid] = run_object

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
            return  # no new Reservation, or one whose first status was never written
        key = (reservation.metadata.namespace, reservation.spec.run_ref.name)
        self._numbers[key] = max(self._numbers.get(key, 0), int(number))
        if reservation.status.told and reservation.status.told.started:
            load_first_estimate(self.world, reservation, key)
        for stage in reservation.spec.members or ("",):
            self._handle_member(reservation, stage, int(number))
        self._exempt_survivors(reservation.status)

    def _exempt_survivors(self, status: ReservationStatus) -> None:
        """Makes those immune whom a lottery did not draw, if a crash kept their statuses from saying so."""
        drawn_at = max([parse_time(decided.since) for decided in status.decided if decided.since], default=0)
        for lottery in (status.lottery or {}, *status.lotteries):
            for uid in ticket_holders(lottery):
                run_object = self.runs.get(uid)
                run = None if run_object is None else self.world.runs.get(run_key(run_object))
                if run is not None:
                    self.world.exempt_survivor(run, drawn_at)

    def _handle_member(self, reservation: Reservation, stage: str, number: int) -> None:
        """Loads the promise to the Run of a Reservation, or to one of the stages that start together."""
        reference = reservation.spec.run_ref
        name = child_name(reference.name, stage) if stage else reference.name
        run = self.world.runs.get((reservation.metadata.namespace, name))
        if run is None:
            return
        run.raise_reservations_made(
            number
        )  # those of a deleted Run of this name count too: the names are taken
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
            load_promise(self.world, reservation, run, stage)


def ticket_holders(lottery: dict[str, Any]) -> list[str]:
    """Returns the UIDs of the Runs that had a ticket in a lottery; none if nobody was drawn."""
    try:
        record = msgspec.convert(lottery, Record)
    except msgspec.ValidationError:  # not written by Jobtree
        return []
    return [ticket.run for ticket in record.case.tickets] if record.decision.draws else []


def run_key(run_object: Run) -> RunKey:
    return run_object.metadata.namespace, run_object.metadata.name


def in_planning_time(node: Node, ahead: int) -> Node:
    """Returns a node whose conditions are dated by the world's clock, so that its grace is not cut short."""
    lost, ready = node.not_ready_since_ms, node.ready_since_ms
    return msgspec.structs.replace(
        node,
        not_ready_since_ms=None if lost is None else lost + ahead,
        ready_since_ms=None if ready is None else ready + ahead,
    )


def is_newly_deleted(before: Run, after: Run) -> bool:
    return before.metadata.deletion_timestamp != after.metadata.deletion_timestamp


def with_decision(status: RunStatus, decided: Decided) -> RunStatus:
    """Returns the status of a Run after a decision."""
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
        times_stopped=decided.times_stopped,
        provisional=decided.provisional,
        allocation=decided.allocation,
        closing=decided.closing,
        ended=decided.ended,
        revision=decided.revision,
    )


def decision_of(run: Run, status: RunStatus) -> Decided:
    """Returns the decided part of a status."""
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
        times_stopped=status.times_stopped,
        provisional=status.provisional,
        allocation=status.allocation,
        closing=status.closing,
        ended=status.ended,
    )
