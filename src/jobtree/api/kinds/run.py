"""Run: a gang of pods that starts together or not at all, or a tree of such gangs."""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from jobtree.api.kinds.carried_sums import CarriedRun
from jobtree.api.kinds.lease import ClosureReason, LeaseClass, OpenReason, Payer, Role, RunRef
from jobtree.api.kinds.run_cel_rules import (
    BRANCH_RULES,
    LEAF_RULES,
    MAX_WIDTHS,
    RUN_RULES,
    STAGE_RULES,
    TREE_RULES,
)
from jobtree.api.schema.cel_rules import Rule, if_has
from jobtree.api.schema.object_meta import Conditions, ObjectMeta, RunTemplate, Wire
from jobtree.api.schema.scalars import (
    Count,
    Decimal,
    Duration,
    FlavorName,
    GpuHours,
    Name,
    Owner,
    PositiveCount,
    Rate,
    ShortName,
    SlotRange,
    Tally,
    Text,
    Time,
    Word,
)

MAX_STAGES = 64
MAX_LEASES = 4096
MAX_ENTRIES = 16_384  # leases in their short form
MAX_ENTRY_LENGTH = 400
MAX_SLOT_RANGES = 12_500

Phase = Literal["Pending", "Waiting", "Reserved", "Running", "Completed", "Failed"]


class Resources(Wire):
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.totalGPUs == 0 || has(self.gpuType)", "gpuType is required where totalGPUs is more than 0"
        ),
        Rule("self.totalGPUs == 0 || !has(self.pods)", "pods goes with totalGPUs: 0 only"),
        Rule(
            if_has("gpusPerPod", "self.totalGPUs % self.gpusPerPod == 0"),
            "totalGPUs must be a multiple of gpusPerPod",
        ),
    )

    total_gpus: Count
    gpu_type: FlavorName | None = None
    gpus_per_pod: PositiveCount | None = None
    pods: Annotated[int, Meta(ge=1, le=10_000)] | None = None


class Locality(Wire):
    group_gpus: PositiveCount | None = None
    allow_cross_group_spread: bool = True


class Runtime(Wire):
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(if_has("checkpoint", "self.checkpoint.matches('[1-9]')"), "checkpoint must be more than 0"),
        Rule(if_has("maxDuration", "self.maxDuration.matches('[1-9]')"), "maxDuration must be more than 0"),
    )

    checkpoint: Duration | None = None
    on_notice: Literal["Ignore", "Checkpoint"] = "Ignore"
    max_duration: Duration | None = None
    max_restarts: Annotated[int, Meta(ge=0, le=1000)] = 3
    requeue: bool = True
    on_resize: Literal["Restart", "Rendezvous"] = "Restart"


class Malleable(Wire):
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            if_has(
                "desiredTotalGPUs",
                "(self.desiredTotalGPUs >= self.minTotalGPUs && self.desiredTotalGPUs <= self.maxTotalGPUs"
                " && (self.desiredTotalGPUs - self.minTotalGPUs) % self.stepGPUs == 0)",
            ),
            "desiredTotalGPUs must be minTotalGPUs + k × stepGPUs, at most maxTotalGPUs",
        ),
        Rule(
            f"(self.maxTotalGPUs - self.minTotalGPUs) / self.stepGPUs < {MAX_WIDTHS}",
            f"minTotalGPUs to maxTotalGPUs by stepGPUs must be at most {MAX_WIDTHS} widths",
        ),
    )

    min_total_gpus: PositiveCount
    max_total_gpus: PositiveCount
    step_gpus: PositiveCount
    desired_total_gpus: PositiveCount | None = None


class Funding(Wire):
    allow_borrow: bool = False
    max_borrow_gpus: Count | None = None
    sponsors: Annotated[tuple[Owner, ...], Meta(max_length=16)] = ()
    allow_opportunistic: bool = False


class StageFunding(Wire):
    """The funding of a stage. Its sponsors are those of the tree."""

    REFUSED: ClassVar[dict[str, str]] = {"sponsors": "a stage cannot have sponsors: set them for the tree"}

    allow_borrow: bool = False
    max_borrow_gpus: Count | None = None
    allow_opportunistic: bool = False


class Follow(Wire):
    after: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=MAX_STAGES)]
    on_upstream_failure: Literal["wait", "fail"] = "wait"
    upstream_failure_grace: Duration = "30m"


class Quota(Wire):
    max_gpus: Count | None = None
    max_gpu_hours: GpuHours | None = None


class Gang(Wire):
    """The fields that Runs and stages share: the shape of a gang and how it behaves."""

    resources: Resources | None = None
    locality: Locality = Locality()
    runtime: Runtime = Runtime()
    malleable: Malleable | None = None
    spares: Annotated[int, Meta(ge=0, le=64)] | None = None
    spares_per_group: Annotated[int, Meta(ge=0, le=64)] | None = None
    template: RunTemplate | None = None
    quota: Quota | None = None


StageNames = Annotated[tuple[ShortName, ...], Meta(max_length=MAX_STAGES)]


class LeafStage(Gang, kw_only=True):
    """A stage of the second level, which cannot have stages."""

    REFUSED: ClassVar[dict[str, str]] = {
        "owner": "a stage cannot have an owner: set it for the tree",
        "namespace": "a stage cannot have a namespace: set it for the tree",
        "follow": "a stage cannot have follow: name other stages of its tree in after",
        "stages": "a tree has at most two levels of stages",
    }

    RULES: ClassVar[tuple[Rule, ...]] = LEAF_RULES

    name: ShortName
    after: StageNames = ()
    with_: StageNames = ()
    funding: StageFunding = StageFunding()
    on_upstream_failure: Literal["wait", "fail"] = "wait"


class Stage(LeafStage):
    RULES: ClassVar[tuple[Rule, ...]] = STAGE_RULES

    stages: Annotated[tuple[LeafStage, ...], Meta(max_length=MAX_STAGES)] = ()


class RunSpec(Gang, kw_only=True):
    RULES: ClassVar[tuple[Rule, ...]] = (
        *BRANCH_RULES,
        *TREE_RULES,
        Rule("self.owner == oldSelf.owner", "owner never changes"),
    )

    owner: Owner
    funding: Funding = Funding()
    follow: Follow | None = None
    stages: Annotated[tuple[Stage, ...], Meta(max_length=MAX_STAGES)] = ()


class Width(Wire):
    min: Count
    max: Count
    desired: Count
    allocated: Count = 0


SlotRanges = Annotated[tuple[SlotRange, ...], Meta(max_length=MAX_SLOT_RANGES)]


class AllocatedLease(Wire):
    """An open lease: the fields of its Lease object, except those that all leases of the Run share."""

    name: Name
    group: Annotated[int, Meta(ge=0, le=100_000)]
    role: Role
    class_: LeaseClass
    payer: Payer
    slots: SlotRanges
    start: Time
    rate: Rate
    reason: OpenReason


class AllocationTerms(Wire):
    """The fields that many leases of a Run share."""

    role: Role
    class_: LeaseClass
    payer: Payer
    start: Time
    rate: Rate
    reason: OpenReason


AllocationEntry = Annotated[
    str,
    Meta(
        pattern=r"^[1-9][0-9]{0,8} [0-9]{1,5} [0-9]{1,6} [a-z0-9.#,-]+\Z",
        max_length=MAX_ENTRY_LENGTH,
        description="a lease: its number, its terms (a position in the list), its group and its slots, "
        'such as "17 0 3 gpu-a-01#0-7"',
    ),
]
LeaseNumbers = Annotated[
    str,
    Meta(
        pattern=r"^[1-9][0-9]{0,8}(-[1-9][0-9]{0,8})?\Z",
        max_length=32,
        description="the number of a lease in its name, or a range of them such as 1-2048",
    ),
]


class Allocation(Wire):
    """The commit point of a gang: its leases, and since when. Lease objects and pods are derived from it.

    Of a gang with many leases most are in ``entries``, which are short.
    """

    since: Time
    gpus_per_pod: Count
    promised_start: Time | None = None  # the date of the promise that this start keeps, or came before
    not_drawn_at: Time | None = None  # the last lottery in which it had a ticket and did not lose
    leases: Annotated[tuple[AllocatedLease, ...], Meta(max_length=MAX_LEASES)] = ()
    terms: Annotated[tuple[AllocationTerms, ...], Meta(max_length=MAX_LEASES)] = ()
    entries: Annotated[tuple[AllocationEntry, ...], Meta(max_length=MAX_ENTRIES)] = ()


class Ending(Wire):
    """A closed lease of the Run whose Lease object may still have to be updated.

    ``whole`` is the lease itself, for a lease that was closed before its Lease object was created.
    """

    lease: Name
    end: Time
    reason: ClosureReason
    whole: AllocatedLease | None = None


class EndedLeases(Wire):
    """Many closed leases with one end, as ``Ending`` lists a few."""

    end: Time
    reason: ClosureReason
    numbers: Annotated[tuple[LeaseNumbers, ...], Meta(max_length=MAX_ENTRIES)]


class FundingShare(Wire):
    class_: LeaseClass
    payer: Payer
    gpus: Count
    gpu_hours: Decimal


class PodRefusal(Wire):
    """A refusal of the Run's pods, by a node, or without one by the API server or a scheduler (N3).

    The Run leaves at ``deadline`` if its pods are still refused, and does not try again before ``until``.
    """

    message: Annotated[str, Meta(max_length=1024)]
    since: Time
    deadline: Time
    node: Name | None = None
    until: Time | None = None
    times: Tally = 0
    spares_only: bool = False


class Risk(Wire):
    reservation: Name
    at: Time
    kill_probability: Decimal


class StageStatus(Wire):
    """The phase of a stage, its actual or earliest start, and when it is done at the latest."""

    name: ShortName
    phase: Phase
    earliest_start: Time | None = None
    done_by: Time | None = None


class Decided(Wire):
    """The part for one Run of a decision about several. After a crash the manager completes it from here.

    It is complete once the status of the Run has this revision or a later one.
    """

    run_ref: RunRef
    revision: Tally
    phase: Phase
    since: Time | None = None  # of the phase
    reason: Word = ""  # of finished Runs
    message: Text = ""
    attempt: Tally = 0
    changed_at: Time | None = None
    restarts: Tally = 0
    resume_at: Time | None = None
    leases_opened: Tally = 0
    lotteries_lost: Tally = 0
    times_stopped: Tally = 0
    provisional: bool = False
    allocation: Allocation | None = None
    closing: Annotated[tuple[Ending, ...], Meta(max_length=MAX_LEASES)] = ()
    ended: Annotated[tuple[EndedLeases, ...], Meta(max_length=MAX_LEASES)] = ()


RankPlace = Annotated[str, Meta(max_length=400)]  # "0/3 gpu-a-01#0-7": group, position in it, slots


class RunStatus(Wire):
    phase: Phase | None = None
    conditions: Conditions = ()
    width: Width | None = None
    stages: Annotated[tuple[StageStatus, ...], Meta(max_length=MAX_STAGES)] = ()
    allocation: Allocation | None = None
    closing: Annotated[tuple[Ending, ...], Meta(max_length=MAX_LEASES)] = ()
    ended: Annotated[tuple[EndedLeases, ...], Meta(max_length=MAX_LEASES)] = ()
    revision: Tally = 0
    decided: Annotated[tuple[Decided, ...], Meta(max_length=64)] = ()  # of a tree: stages that start together
    funding: Annotated[tuple[FundingShare, ...], Meta(max_length=256)] = ()
    carried: CarriedRun | None = None
    reservation: Name | None = None
    earliest_start: Time | None = None
    deficit_gpus: Count = 0
    risk: Annotated[tuple[Risk, ...], Meta(max_length=64)] = ()
    kill_probability: Decimal | None = None  # to be stopped by any of these
    attempt: Tally = 0
    ranks: Annotated[tuple[RankPlace, ...], Meta(max_length=12_500)] = ()
    changed_at: Time | None = None  # the last start, resize, swap or restart
    restarts: Tally = 0  # caused by failed pods
    resume_at: Time | None = None  # when the pods of the next attempt start
    refusals: Annotated[tuple[PodRefusal, ...], Meta(max_length=64)] = ()
    leases_opened: Tally = 0
    lotteries_lost: Tally = 0
    times_stopped: Tally = 0  # by Jobtree, not by a fault
    reservations_made: Tally = 0
    provisional: bool = False
    reason: Word = ""
    message: Text = ""
    observed_generation: Tally = 0


class Run(Wire):
    KIND: ClassVar[str] = "Run"
    RULES: ClassVar[tuple[Rule, ...]] = RUN_RULES

    metadata: ObjectMeta
    spec: RunSpec
    status: RunStatus = RunStatus()
