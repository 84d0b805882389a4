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
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.reporting.invariants import Violation
from jobtree.core.reporting.reservation_codec import from_wire, recall
from jobtree.core.runs.run_allocation import leases_of
from jobtree.core.runs.run_state import FINISHED, RunState
from jobtree.core.runs.run_tree import child_name
from jobtree.core.world.world import World
from jobtree.kube.watch.object_decoder import LiveNode, LivePod
from jobtree.kube.watch.object_store import Change
from jobtree.manager.cluster_view import Changes
from jobtree.manager.decisions.lease_objects import LeaseBook
from jobtree.messages.reported_verdict import verdict_told


class Intake:
    """Keeps a world in step with the cluster; remembers the versions that it was kept in step with."""

    def __init__(self, world: World, book: LeaseBook) -> None:
        self.world = world
        self.book = book
        self.runs: dict[str, Run] = {}  # by UID, as last seen
        self.leaving: dict[str, Run] = {}  # being deleted, and not in the world any more
        self.fresh: set[RunKey] = set()  # seen for the first time, or changed
        self.redo: list[RunKey] = []  # a Reservation decided about them, and they do not say so yet
        self.budgets: set[str] = set()  # that came or changed
        self.reservations: dict[RunKey, Reservation] = {}  # as last seen
        self.outlived: dict[RunKey, ReservationState] = {}  # Reservations that ended and do not say so yet
        self.stirred = True  # something changed that promises depend on
        self._decided: dict[str, Decided] = {}
        self._numbers: dict[RunKey, int] = {}  # of Reservations, the highest by the name of their Run

    def take_in(self, changes: Changes) -> list[Violation]:
        for policy in changes.policy:
            self._see_policy(policy)
        for node in changes.nodes:
            self._see_node(node)
        for pod in changes.pods:
            self._see_pod(pod)
        for budget in changes.budgets:
            self._see_budget(budget)
        self._note_decisions(changes.reservations)
        self._note_decisions(changes.runs)
        for run in changes.runs:
            self._see_run(run)
        found = self.book.see(changes.leases, changes.unread)
        missed, self.book.missed = self.book.missed, []
        self.budgets.update(lease.payer[0] for lease in missed)
        self.budgets |= self.book.relieved
        self.book.relieved.clear()
        self.fresh.update(lease.run for lease in missed)
        for reservation in changes.reservations:
            self._see_reservation(reservation)
        return found

    def _see_policy(self, change: Change[Policy]) -> None:
        policy = change.after.value if change.after else Policy()
        if policy != self.world.policy:
            self.world.set_policy(policy)
            self.stirred = True

    def _see_node(self, change: Change[LiveNode]) -> None:
        before, after = change.before, change.after
        if after is None:
            assert before is not None
            self.world.drop_node(before.name, before.uid)
        elif before is None or before.value.node != after.value.node:
            self.world.put_node(after.value.node)
        else:
            return
        self.stirred = True

    def _see_pod(self, change: Change[LivePod]) -> None:
        before, after = change.before, change.after
        if after is None:
            assert before is not None
            self.world.drop_pod(before.uid)
        elif before is None or before.value.pod != after.value.pod:
            self.world.put_pod(after.value.pod)
        else:
            return
        self.stirred = self.stirred or not any(one.value.run_uid for one in (before, after) if one)

    def _see_budget(self, change: Change[Budget]) -> None:
        before, after = change.before, change.after
        if after is None:
            assert before is not None
            known = self.world.ledger.budgets.get(before.name)
            if known is not None and known.metadata.uid == before.uid:
                self.world.drop_budget(before.name)
                self.stirred = True
        elif before is None or before.value.spec != after.value.spec:
            if not self.world.ledger.knows(after.name):
                self.book.replay.carry(after.value)
            self.world.put_budget(after.value)
            self.budgets.add(after.name)
            self.stirred = True

    # Runs

    def _note_decisions(self, changes: Iterable[Change[Reservation]] | Iterable[Change[Run]]) -> None:
        for change in changes:
            for decided in change.after.value.status.decided if change.after and not change.before else ():
                known = self._decided.get(decided.run_ref.uid)
                if known is None or known.revision < decided.revision:
                    self._decided[decided.run_ref.uid] = decided

    def _see_run(self, change: Change[Run]) -> None:
        if change.after is None:
            assert change.before is not None
            self._see_gone(change.before.value)
            return
        run = change.after.value
        uid, known = run.metadata.uid, self.runs.get(run.metadata.uid)
        self.runs[uid] = run
        if uid in self.leaving:
            self.leaving[uid] = run
        elif known is None:
            self._see_first(run)
        elif known.spec != run.spec or known.metadata.deletion_timestamp != run.metadata.deletion_timestamp:
            self.world.put_run(run)
            self.fresh.add(key_of(run))
            self.stirred = True
        else:
            state = self.world.runs.get(key_of(run))
            if state is not None and state.uid == uid:
                state.run = run

    def _see_first(self, run: Run) -> None:
        decided = self._decided.pop(run.metadata.uid, None)
        if decided is not None and decided.revision > run.status.revision:
            run = msgspec.structs.replace(run, status=with_decision(run.status, decided))
            self.redo.append(key_of(run))
        state = self.world.put_run(run)
        self.book.see_run(run)
        for lease in leases_of(run):
            self.world.intake.take_in_open(lease)
            self.book.open(lease)
        if state.uid == run.metadata.uid:
            state.verdict = verdict_told(state)
            taken = [self._numbers.get(key, 0) for key in (state.key, state.parent) if key is not None]
            state.reservations = max(state.reservations, *taken)
        self.fresh.add(key_of(run))
        self.stirred = True

    def _see_gone(self, run: Run) -> None:
        uid = run.metadata.uid
        self.runs.pop(uid, None)
        self.leaving.pop(uid, None)
        self.book.forget_run(uid)
        self.stirred = True
        state = self.world.runs.get(key_of(run))
        if state is not None and state.uid == uid:
            self.book.bereft += state.leases.values()
            self.world.drop_run(state.key)

    def leave(self, state: RunState) -> None:
        """The world has let this Run go."""
        run = self.runs.get(state.uid)
        if run is not None:
            self.leaving[state.uid] = run

    def key_of(self, uid: str) -> RunKey:
        return key_of(self.runs[uid])

    # Reservations

    def _see_reservation(self, change: Change[Reservation]) -> None:
        if change.after is None:
            assert change.before is not None
            self.reservations.pop((change.before.namespace, change.before.name), None)
            self.stirred = True
            return
        reservation = change.after.value
        self.reservations[change.after.namespace, change.after.name] = reservation
        number = reservation.metadata.name.rpartition("-")[2]
        if change.before is not None or not number.isdecimal() or reservation.status.state is None:
            return  # known; or begun, and never promised anything
        named = (reservation.metadata.namespace, reservation.spec.run_ref.name)
        self._numbers[named] = max(self._numbers.get(named, 0), int(number))
        if reservation.status.told and reservation.status.told.started:
            recall(self.world, reservation, named)
        for stage in reservation.spec.members or ("",):
            self._see_part(reservation, stage, int(number))

    def _see_part(self, reservation: Reservation, stage: str, number: int) -> None:
        """What a Reservation promises to its Run, or to one of the stages that start together."""
        reference = reservation.spec.run_ref
        name = child_name(reference.name, stage) if stage else reference.name
        state = self.world.runs.get((reservation.metadata.namespace, name))
        if state is None:
            return
        state.reservations = max(state.reservations, number)  # an earlier Run's too: its name is taken
        if not stage and state.uid != reference.uid:
            return
        if reservation.status.state != "Pending" or state.promise is not None:
            return
        if state.phase in FINISHED:
            self.outlived[reservation.metadata.namespace, reservation.metadata.name] = "Cancelled"
        elif state.leases and state.run.status.reservation != reservation.metadata.name:
            self.outlived[reservation.metadata.namespace, reservation.metadata.name] = "Superseded"
            if state.since is not None:
                recall(self.world, reservation, state.key, state.since)
        elif state.phase in ("Pending", "Running"):
            self.world.put_promise(state, from_wire(reservation, state, stage))
            recall(self.world, reservation, state.key)


def key_of(run: Run) -> RunKey:
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
