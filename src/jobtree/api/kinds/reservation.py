"""Reservation: the promised start of a Run, what it lacks, and the Runs it could stop. Written by Jobtree."""

from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from jobtree.api.kinds.lease import Payer, RunRef
from jobtree.api.kinds.run import Decided
from jobtree.api.schema.cel_rules import Rule, unchanged
from jobtree.api.schema.object_meta import ObjectMeta, Wire
from jobtree.api.schema.scalars import (
    Count,
    Decimal,
    FlavorName,
    GpuSeconds,
    Hex,
    Name,
    Owner,
    ShortName,
    Tally,
    Text,
    Time,
    Word,
)

RemedyKind = Literal[
    "Reclaim",
    "DropSpares",
    "Shrink",
    "Lottery",
    "Recall",
    "RaiseEnvelope",
    "AskSponsor",
    "AddCapacity",
]
ReservationState = Literal["Pending", "Activated", "Superseded", "Cancelled"]
RunNames = Annotated[tuple[Name, ...], Meta(max_length=1024)]


class DomainShare(Wire):
    """GPUs promised in one domain, and the nodes that could provide them."""

    domain: Annotated[str, Meta(max_length=200)]
    gpus: Tally
    nodes: Annotated[tuple[Name, ...], Meta(max_length=12_500)] = ()


class IntendedSlice(Wire):
    domains: Annotated[tuple[DomainShare, ...], Meta(max_length=1024)] = ()


class ReservationSpec(Wire):
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            unchanged("", "runRef", "flavor", "commitment", "members"),
            "only earliestStart and intendedSlice of a Reservation may change",
        ),
    )

    run_ref: RunRef
    flavor: FlavorName
    commitment: Hex
    earliest_start: Time | None = None
    intended_slice: IntendedSlice = IntendedSlice()
    members: Annotated[tuple[ShortName, ...], Meta(max_length=64)] = ()


Confidence = Literal["guaranteed", "window-aligned", "conditional"]
MAX_OWNERS = 64  # that are named as those on whom a promise depends


class Remedy(Wire):
    kind: RemedyKind
    gpus: Tally | None = None
    gpu_hours: Tally | None = None
    runs: RunNames = ()
    message: Text = ""


class ExpectedStart(Wire):
    p50: Time
    p90: Time


class Place(Wire):
    """The place of the Run among the funded Runs that wait for its flavor, in creation order."""

    number: Count
    of: Count


class FirstExpectedStart(Wire):
    """The first expected start of the Run and its actual start, from which later forecasts are calibrated."""

    at: Time
    p50: Time
    p90: Time
    mean: Time  # of the forecast before its calibration
    started: Time | None = None


class Forecast(Wire):
    deficit_gpus: Tally = 0
    funding_deficit_gpus: Tally = 0
    scope: Text = ""
    conflict_set: RunNames = ()
    remedies: Annotated[tuple[Remedy, ...], Meta(max_length=64)] = ()
    confidence: Confidence | None = None
    conditional_on: Annotated[tuple[Owner, ...], Meta(max_length=MAX_OWNERS)] = ()
    expected_start: ExpectedStart | None = None
    place: Place | None = None


class Slip(Wire):
    reason: Word
    from_: Time | None = None
    to: Time | None = None


class FundingPlan(Wire):
    payer: Payer
    gpus: Tally


class BeaconRound(Wire):
    """The round of a public beacon that is mixed into the draw. It is fixed before its value is published."""

    name: ShortName
    round: Tally


class RecalledRun(Wire):
    """A Run that stops for this start because an owner recalls its budget, and since when it runs."""

    namespace: Name
    name: Name
    since: Time


class IdleUsage(Wire):
    """Budget that was left idle for a Run without a date by an instant, and the GPUs that are idle since."""

    gpu_seconds: GpuSeconds
    gpus: Decimal
    since: Time


class Terms(Wire):
    """The terms of a promise: its width, what it may take, its payers, and its immunity after the start."""

    width: Count
    gpus_per_pod: Count
    takes: Literal["Nothing", "Cuts", "Lottery", "Recall"] = "Nothing"
    funding: Annotated[tuple[FundingPlan, ...], Meta(max_length=256)] = ()
    firm_until: Time | None = None
    window_aligned: bool = False
    made: Time | None = None  # finer than creationTimestamp; promises have precedence in this order
    beacon: BeaconRound | None = None
    turn: Count = 0  # orders promises that were made at the same instant
    recalls: Annotated[tuple[RecalledRun, ...], Meta(max_length=1024)] = ()  # that stop for this start
    idle: IdleUsage | None = None
    beyond_depth: bool = False  # too many Runs wait before it: it has no date yet, and holds nothing
    released_budget: bool = False  # so much of it was left idle that it is kept no longer


class MemberTerms(Wire):
    """The part of a promise for one of the stages that start together."""

    stage: ShortName
    flavor: FlavorName
    terms: Terms
    intended_slice: IntendedSlice = IntendedSlice()


class ReservationStatus(Wire):
    state: ReservationState | None = None
    decided: Annotated[tuple[Decided, ...], Meta(max_length=1024)] = ()
    terms: Terms | None = None
    members: Annotated[tuple[MemberTerms, ...], Meta(max_length=64)] = ()
    forecast: Forecast | None = None
    told: FirstExpectedStart | None = None
    slips: Annotated[tuple[Slip, ...], Meta(max_length=256)] = ()
    lottery: dict[str, Any] | None = None
    lotteries: Annotated[tuple[dict[str, Any], ...], Meta(max_length=64)] = ()  # of further stages


class Reservation(Wire):
    KIND: ClassVar[str] = "Reservation"

    metadata: ObjectMeta
    spec: ReservationSpec
    status: ReservationStatus = ReservationStatus()
