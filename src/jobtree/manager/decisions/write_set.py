"""The write set of a turn: everything that it writes, in order.

A batch is one decision. Its commit points are written first: the Reservation of a resolution, which holds all
that was decided, then the Runs. Runs that lose leases are written before Runs that get some, so that no slot
and no budget is used twice. Lease objects follow, then what only reports: statuses, Budgets, Events.
"""

import msgspec

from jobtree.api.kinds.budget import BudgetStatus
from jobtree.api.kinds.reservation import Reservation, ReservationSpec, ReservationStatus
from jobtree.api.kinds.run import Risk, Run, RunStatus
from jobtree.core import RunKey, Violation
from jobtree.manager.decisions.lease_objects import PendingLeaseWrites
from jobtree.manager.metrics import Measure
from jobtree.manager.pods.pod_set import PodSet


class DecisionLog(msgspec.Struct, frozen=True):
    """The lines (the part that decided, and the fields) and measures of a decision, once it is written."""

    lines: tuple[tuple[str, dict[str, object]], ...] = ()
    measures: tuple[Measure, ...] = ()


class RunWrite(msgspec.Struct, frozen=True):
    """The status of a Run, decided from this version of the Run."""

    run: Run
    status: RunStatus
    starts: bool = False  # it gets leases, so it needs the finalizer
    version: str = ""  # the resourceVersion to write to, if it is not that of ``run``
    decision_logs: tuple[DecisionLog, ...] = ()

    @property
    def uid(self) -> str:
        return self.run.metadata.uid


class ReservationWrite(msgspec.Struct, frozen=True):
    """A Reservation as it must be. ``spec`` is None where only its status changes."""

    run: Run
    name: str
    status: ReservationStatus
    spec: ReservationSpec | None = None
    decision_logs: tuple[DecisionLog, ...] = ()

    @property
    def key(self) -> RunKey:
        return self.run.metadata.namespace, self.name


class UnreservedRun(msgspec.Struct, frozen=True):
    """A Run that cannot start as promised: nobody had notice, because its Reservation was never written."""

    run: Run
    reservation: str


class DecisionWrites(msgspec.Struct, frozen=True):
    """The commit points of one decision, in order."""

    resolution: ReservationWrite | None = None
    releases: tuple[RunWrite, ...] = ()  # Runs that only lose leases; written at once
    moves: tuple[RunWrite, ...] = ()  # Runs that lose and get leases; written one after another
    trees: tuple[RunWrite, ...] = ()  # trees whose stages start together: they hold the decisions for all
    acquisitions: tuple[RunWrite, ...] = ()  # Runs that only get leases; written at once
    unreserved: tuple[UnreservedRun, ...] = ()  # whose promise came due before its Reservation was written


class EventNote(msgspec.Struct, frozen=True):
    """An Event on a Run."""

    run: Run
    reason: str
    message: str
    at: int
    warning: bool = False


class DesiredPods(msgspec.Struct, frozen=True):
    """The pods that a Run must have, the risks that they show, and who refuses some, in which words."""

    run: Run
    pod_set: PodSet
    resume_at: int = 0
    risks: tuple[Risk, ...] = ()
    refusals: tuple[tuple[str, str], ...] = ()


class WriteSet(msgspec.Struct, frozen=True):
    batches: tuple[DecisionWrites, ...] = ()
    leases: PendingLeaseWrites = PendingLeaseWrites()
    reservations: tuple[ReservationWrite, ...] = ()
    reservations_to_delete: tuple[
        Reservation, ...
    ] = ()  # without a promise, and without a proof that is needed
    reservations_to_keep: tuple[RunKey, ...] = ()  # that are to outlive their Run
    statuses: tuple[RunWrite, ...] = ()
    budgets: tuple[tuple[str, BudgetStatus], ...] = ()
    event_notes: tuple[EventNote, ...] = ()
    cordons: tuple[str, ...] = ()
    failed_nodes: frozenset[str] = frozenset()  # that still exist: no kubelet ends their pods
    held_nodes: tuple[str, ...] = ()  # that do not fail, because too many were lost together (F2c)
    children: tuple[Run, ...] = ()  # Runs of stages to create or to change
    desired_pods: dict[str, DesiredPods] = {}  # that changed, by UID of the Run
    runs_without_finalizer: tuple[Run, ...] = ()  # to be removed: all their leases are ended
    violations: tuple[Violation, ...] = ()
    logs: tuple[DecisionLog, ...] = ()  # of decisions without a commit point: promises made, moved and ended
    measures: tuple[Measure, ...] = ()  # how long planning took
    beacon_rounds: tuple[tuple[str, int], ...] = ()  # beacon name and round of the coming draws
    wake_at: int | None = None  # the instant of the next turn, if nothing happens before
