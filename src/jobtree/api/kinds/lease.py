"""Lease: GPUs in use, by one group of one Run, with exactly one payer. Its spec never changes."""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from jobtree.api.schema.cel_rules import SET, Rule, if_has, unchanged
from jobtree.api.schema.object_meta import ObjectMeta, Wire
from jobtree.api.schema.scalars import FlavorName, Name, Owner, Rate, ShortName, SlotRange, Time, Uid

LeaseClass = Literal["Owned", "Shared", "Borrowed", "Opportunistic"]
Role = Literal["Active", "Spare", "Opportunistic"]
OpenReason = Literal["Start", "Grow", "Swap", "Recover", "Repay", "Demote", "Continue"]
ClosureReason = Literal[
    "Completed",
    "Failed",
    "Cancelled",
    "Shrink",
    "DropSpare",
    "RandomPreempt",
    "ReclaimedBySpare",
    "Reclaimed",
    "Swap",
    "NodeFailure",
    "CapacityLost",
    "WindowClosed",
    "BudgetExhausted",
    "Recalled",
    "Repaid",
]


WRITTEN_ONCE = "end and closureReason are written once"


class RunRef(Wire):
    namespace: Name
    name: Name
    uid: Uid = ""


class Payer(Wire):
    owner: Owner
    budget: Name
    envelope: ShortName


class LeaseSpec(Wire):
    RULES: ClassVar[tuple[Rule, ...]] = (Rule("self == oldSelf", "a Lease's spec never changes"),)

    run_ref: RunRef
    owner: Owner
    payer: Payer
    class_: LeaseClass
    role: Role
    group: Annotated[int, Meta(ge=0, le=100_000)]
    flavor: FlavorName
    slots: Annotated[tuple[SlotRange, ...], Meta(min_length=1, max_length=12_500, extra_json_schema=SET)]
    start: Time
    rate: Rate
    reason: OpenReason


class LeaseStatus(Wire):
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule("has(self.end) == has(self.closureReason)", "end and closureReason are set together"),
        Rule(if_has("end", unchanged("", "end", "closureReason"), "oldSelf"), WRITTEN_ONCE),
    )

    end: Time | None = None
    closure_reason: ClosureReason | None = None


class Lease(Wire):
    KIND: ClassVar[str] = "Lease"
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(if_has("status.end", "has(self.status)", "oldSelf"), WRITTEN_ONCE),
        Rule(
            if_has("status.end", "timestamp(self.status.end) >= timestamp(self.spec.start)"),
            "status.end must not be before spec.start",
        ),
    )

    metadata: ObjectMeta
    spec: LeaseSpec
    status: LeaseStatus = LeaseStatus()
