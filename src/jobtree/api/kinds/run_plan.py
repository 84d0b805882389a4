"""RunPlan: what would happen to a Run if it were planned now. It is an answer and is never stored.

Its group is not that of the four kinds, so that an API server of its own can answer it later.
"""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from jobtree.api.kinds.lease import LeaseClass, Payer, Role
from jobtree.api.kinds.reservation import Confidence, DomainShare, RemedyKind, Slip
from jobtree.api.kinds.run import Phase, Risk
from jobtree.api.schema.object_meta import GROUP, Wire
from jobtree.api.schema.scalars import (
    Count,
    Decimal,
    FlavorName,
    GpuHours,
    Name,
    Owner,
    SlotRange,
    Text,
    Time,
    Word,
)

PLAN_GROUP = f"plan.{GROUP}"
PLAN_API_VERSION = f"{PLAN_GROUP}/v1"


class RunIdentity(Wire):
    """A Run by namespace, name and UID."""

    namespace: Name
    name: Name
    uid: Word = ""


class PlannedCause(Wire):
    """One reason why a Run waits, with its figures in GPUs and what would help against it."""

    reason: Word
    message: Text
    where: Text = ""
    have: int = 0
    need: int = 0
    remedies: Annotated[tuple[Text, ...], Meta(max_length=64)] = ()


class PlannedLease(Wire):
    """Slots that the Run has or would get, with their payer."""

    group: Count
    role: Role
    class_: LeaseClass
    flavor: FlavorName
    gpus: Count
    payer: Payer
    slots: Annotated[tuple[SlotRange, ...], Meta(max_length=12_500)] = ()


class PlannedPayment(Wire):
    """GPUs that an envelope is going to pay for."""

    payer: Payer
    gpus: Count


class RunAtRisk(Wire):
    """A Run that may lose GPUs to a start, and the probability that it is stopped."""

    run: RunIdentity
    kill_probability: Decimal


class PlannedRemedy(Wire):
    """What would reduce the deficit of a promise."""

    kind: RemedyKind
    gpus: Count | None = None
    gpu_hours: GpuHours | None = None
    runs: Annotated[tuple[RunIdentity, ...], Meta(max_length=1024)] = ()
    message: Text = ""


class PlannedStart(Wire):
    """The promise of a start: the Reservation that the Run has or would get."""

    name: Name
    width: Count
    gpus_per_pod: Count
    earliest_start: Time | None = None
    firm_start: Time | None = None
    p50: Time | None = None
    p90: Time | None = None
    confidence: Confidence | None = None
    conditional_on: Annotated[tuple[Owner, ...], Meta(max_length=64)] = ()
    domains: Annotated[tuple[DomainShare, ...], Meta(max_length=1024)] = ()
    funding: Annotated[tuple[PlannedPayment, ...], Meta(max_length=256)] = ()
    deficit_gpus: Count = 0
    funding_deficit_gpus: Count = 0
    conflict_set: Annotated[tuple[RunAtRisk, ...], Meta(max_length=1024)] = ()
    remedies: Annotated[tuple[PlannedRemedy, ...], Meta(max_length=64)] = ()
    slips: Annotated[tuple[Slip, ...], Meta(max_length=1024)] = ()


class PlannedCost(Wire):
    """What the whole Run costs at most, for a Run with maxDuration."""

    gpu_hours: Decimal
    credits: Decimal


class PlannedEffect(Wire):
    """What would happen to another Run at the same time."""

    run: RunIdentity
    event: Word
    message: Text = ""


PlanAnswer = Literal["StartsNow", "Running", "Waits", "Finished"]


class RunPlanStatus(Wire):
    """The answer. A Run that waits has causes; with a Reservation, also a start."""

    answer: PlanAnswer
    phase: Phase
    message: Text = ""
    width: int = 0
    causes: Annotated[tuple[PlannedCause, ...], Meta(max_length=256)] = ()
    other_ways_to_pay: Annotated[tuple[Text, ...], Meta(max_length=64)] = ()
    leases: Annotated[tuple[PlannedLease, ...], Meta(max_length=4096)] = ()
    reservation: PlannedStart | None = None
    immune_until: Time | None = None
    ends_by: Time | None = None
    risks: Annotated[tuple[Risk, ...], Meta(max_length=64)] = ()
    kill_probability: Decimal | None = None
    cost: PlannedCost | None = None
    effects: Annotated[
        tuple[PlannedEffect, ...],
        Meta(max_length=4096),
    ] = ()


class RunPlan(Wire):
    """What would happen to one Run."""

    KIND: ClassVar[str] = "RunPlan"

    metadata: RunIdentity
    status: RunPlanStatus
