"""A step: everything that one look at the world asks to be written, in the order in which it must be.

A batch is one decision. Its commit points are written first: of a resolution the Reservation, which holds
all that was decided, then the Runs. Those that give something up come before those that get it, so no slot
and no money is ever held twice. Lease objects follow, then everything that only tells: statuses, budgets,
events.
"""

import msgspec

from jobtree.api.kinds.budget import BudgetStatus
from jobtree.api.kinds.reservation import ReservationSpec, ReservationStatus
from jobtree.api.kinds.run import Risk, Run, RunStatus
from jobtree.core import RunKey, Violation
from jobtree.manager.decisions.lease_objects import PendingLeaseWrites
from jobtree.manager.metrics import Measure
from jobtree.manager.pods.pod_set import PodSet


class DecisionLog(msgspec.Struct, frozen=True):
    """What is logged (the part that decided it, and the line) and counted when a decision is written."""

    lines: tuple[tuple[str, dict[str, object]], ...] = ()
    measures: tuple[Measure, ...] = ()


class RunWrite(msgspec.Struct, frozen=True):
    """The status of a Run, as decided from that version of it."""

    run: Run
    status: RunStatus
    starts: bool = False  # it gets leases: its end must wait for theirs
    deeds: tuple[DecisionLog, ...] = ()

    @property
    def uid(self) -> str:
        return self.run.metadata.uid


class ReservationWrite(msgspec.Struct, frozen=True):
    """A Reservation as it must be. ``spec`` is None where only its status changes."""

    run: Run
    name: str
    status: ReservationStatus
    spec: ReservationSpec | None = None
    deeds: tuple[DecisionLog, ...] = ()

    @property
    def key(self) -> RunKey:
        return self.run.metadata.namespace, self.name


class DecisionWrites(msgspec.Struct, frozen=True):
    """One decision: its commit points, in order."""

    resolution: ReservationWrite | None = None
    releases: tuple[RunWrite, ...] = ()  # these only lose leases: at once
    moves: tuple[RunWrite, ...] = ()  # these lose some and get others: one after another
    trees: tuple[RunWrite, ...] = ()  # whose stages start together: they hold what was decided for all
    acquisitions: tuple[RunWrite, ...] = ()  # these only get leases: at once
    without_reservation: bool = (
        False  # a resolution whose Reservation was never written: nobody has had notice of it
    )


class EventNote(msgspec.Struct, frozen=True):
    """An Event on a Run."""

    run: Run
    reason: str
    message: str
    at: int
    warning: bool = False


class DesiredPods(msgspec.Struct, frozen=True):
    """The pods that a Run must have, and what they are told."""

    run: Run
    cast: PodSet
    resume_at: int = 0
    risks: tuple[Risk, ...] = ()


class WriteSet(msgspec.Struct, frozen=True):
    batches: tuple[DecisionWrites, ...] = ()
    leases: PendingLeaseWrites = PendingLeaseWrites()
    reservations: tuple[ReservationWrite, ...] = ()
    reservations_to_delete: tuple[
        RunKey, ...
    ] = ()  # Reservations that promise nothing, and whose proof nobody needs
    reservations_to_keep: tuple[RunKey, ...] = ()  # Reservations that are to outlive their Run
    statuses: tuple[RunWrite, ...] = ()
    budgets: tuple[tuple[str, BudgetStatus], ...] = ()
    notes: tuple[EventNote, ...] = ()
    cordons: tuple[str, ...] = ()
    children: tuple[Run, ...] = ()  # stages of trees that are not there, or not as they must be
    desired_pods: dict[str, DesiredPods] = {}  # by UID of the Run: those that changed
    runs_without_finalizer: tuple[Run, ...] = ()  # being deleted, and all their leases are seen to be ended
    violations: tuple[Violation, ...] = ()
    logs: tuple[DecisionLog, ...] = ()  # that no write of a batch commits: promises made, moved and ended
    measures: tuple[Measure, ...] = ()  # how long it took
    beacon_rounds: tuple[tuple[str, int], ...] = ()  # of the beacon, that coming draws mix in
    wake_at: int | None = None  # when to look again, if nothing happens before
