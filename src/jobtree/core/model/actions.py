"""What a plan asks for. Each action is one change of one Run's allocation, and says its cause.

Whoever carries out a plan must do each action whole or not at all, in order, and may refuse one: then
the rest is dropped and planned again from the world as it is.
"""

import msgspec

from jobtree.api.kinds.lease import ClosureReason
from jobtree.api.kinds.run import Run
from jobtree.core.lottery.resolution_record import Record
from jobtree.core.model.gpu_lease import GpuLease, RunKey
from jobtree.core.model.outcomes import ActionKind
from jobtree.core.model.promise import Promise
from jobtree.core.model.reasons import Cause, Verdict


class LeaseClosing(msgspec.Struct, frozen=True):
    """End this lease at that instant, for that reason, once and for all."""

    lease: str
    at: int
    reason: ClosureReason


class Action(msgspec.Struct, frozen=True):
    kind: ActionKind
    run_key: RunKey
    at: int  # the instant at which it takes effect
    cause: Cause
    closes: tuple[LeaseClosing, ...] = ()
    opens: tuple[GpuLease, ...] = ()
    counts_as_restart: bool = False  # of a Restart: against maxRestarts
    pod_size: int = 0  # of a Start: fixed while the Run is admitted
    provisional: bool = False  # of a Start: on promised slots, until they are due
    promise: Promise | None = None  # that is made, moved or ended
    record: Record | None = None  # of an Activate: what was drawn from, and what came out


class Plan(msgspec.Struct, frozen=True):
    """What must be done now, in order, and what to tell every Run whose verdict changed."""

    actions: tuple[Action, ...] = ()
    verdicts: dict[RunKey, Verdict] = {}
    children: tuple[Run, ...] = ()  # of job trees: create them, or bring their spec up to date
    cordons: tuple[str, ...] = ()  # nodes that failed: nothing new is placed there until somebody heals them
    growth_exhausted: tuple[str, ...] = ()  # flavors in which nobody can grow until something changes
    considered: tuple[RunKey, ...] = ()  # considered; need not be asked again until something changes
    recheck_at: dict[RunKey, int] = {}  # of those: when to ask some again, if nothing changes
    queue_exhausted: tuple[
        str, ...
    ] = ()  # flavors in which nobody who waits need be asked until something changes
