"""Actions and plans: the output of a planning pass.

An action is one change of one Run, with its cause. A plan is written in order, and each action is written
completely or not at all. If an action is refused, the rest of the plan is dropped, and the next pass plans
again from the world as it is.
"""

import msgspec

from jobtree.api.kinds.lease import ClosureReason
from jobtree.api.kinds.run import Run
from jobtree.core.lottery.resolution_record import Record
from jobtree.core.model.gpu_lease import GpuLease, RunKey
from jobtree.core.model.outcomes import ActionKind
from jobtree.core.model.promise import Promise
from jobtree.core.model.reasons import Cause, Verdict
from jobtree.core.model.refusals import Refusal


class LeaseClosing(msgspec.Struct, frozen=True):
    """The end of a lease, which is written once."""

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
    record: Record | None = None  # of an Activate: the proof of its resolution
    refusals: tuple[Refusal, ...] = ()  # of an Avoid: what refuses its pods, and until when it is avoided


class Plan(msgspec.Struct, frozen=True):
    """The actions of a pass in order, and the verdict of every Run whose verdict changed."""

    actions: tuple[Action, ...] = ()
    verdicts: dict[RunKey, Verdict] = {}
    children: tuple[Run, ...] = ()  # Runs of stages to create, or whose spec is to be updated
    cordons: tuple[str, ...] = ()  # failed nodes: no pod is placed there until they are healed
    growth_exhausted: tuple[str, ...] = ()  # flavors in which no Run can grow until something changes
    considered: tuple[RunKey, ...] = ()  # Runs that stay refused until something changes
    recheck_at: dict[RunKey, int] = {}  # of those: when to consider some again if nothing changes
    queue_exhausted: tuple[str, ...] = ()  # flavors in which no waiting Run can start until something changes
