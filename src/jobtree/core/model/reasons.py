"""Every reason that Jobtree gives, each with its sentence.

A reason is the reason of a condition, the label of a metric and the word that the command line prints, so
that what a user reads in one place can be searched for in all others.
"""

from enum import StrEnum
from typing import Literal, Self

import msgspec

ReasonTopic = Literal["funding", "room", "state", "change"]
FUNDING: ReasonTopic = "funding"  # no payer covers a Run (C6)
ROOM: ReasonTopic = "room"  # a gang does not fit (P6)
STATE: ReasonTopic = "state"  # what a Run waits for or lacks
CHANGE: ReasonTopic = "change"  # what happened to a Run or a promise: the reason of an action


class Reason(StrEnum):
    """The word of a reason, its topic and its sentence; adding a reason adds one row."""

    topic: ReasonTopic
    sentence: str

    def __new__(cls, word: str, topic: ReasonTopic, sentence: str) -> Self:
        member = str.__new__(cls, word)
        member._value_ = word
        member.topic = topic
        member.sentence = sentence
        return member

    # Cover says no (C6)
    NO_ENVELOPE = (
        "NoEnvelope",
        FUNDING,
        "no envelope that {where} may use pays for this flavor on these nodes",
    )
    WINDOW_NOT_OPEN = "WindowNotOpen", FUNDING, "envelope {where} is outside its time window"
    CONCURRENCY_EXHAUSTED = (
        "ConcurrencyExhausted",
        FUNDING,
        "envelope {where} has {have} of the {need} GPUs still needed",
    )
    HOURS_EXHAUSTED = (
        "HoursExhausted",
        FUNDING,
        "envelope {where} has GPU-hours for {have} of the {need} GPUs still needed",
    )
    CREDITS_EXHAUSTED = (
        "CreditsExhausted",
        FUNDING,
        "envelope {where} has credits for {have} of the {need} GPUs still needed",
    )
    LENDING_DENIED = "LendingDenied", FUNDING, "{where} does not lend to this owner"
    BORROW_LIMIT = (
        "BorrowLimit",
        FUNDING,
        "borrowing is limited to {have} of the {need} GPUs still needed ({where})",
    )
    AGGREGATE_CAP = (
        "AggregateCap",
        FUNDING,
        "aggregate cap {where} leaves {have} of the {need} GPUs still needed",
    )
    TREE_QUOTA = (
        "TreeQuota",
        FUNDING,
        "the tree's quota ({where}) leaves {have} of the {need} GPUs still needed",
    )
    # Pack says no (P6)
    NO_SUCH_FLAVOR = "NoSuchFlavor", ROOM, "no node has GPUs of flavor {where}"
    GROUP_TOO_LARGE = (
        "GroupTooLarge",
        ROOM,
        "no domain could ever hold {need} GPUs: the largest holds {have} ({where})",
    )
    NO_FREE_SLOTS = "NoFreeSlots", ROOM, "{have} of {need} GPUs are free for its pods ({where})"
    HELD = (
        "Held",
        ROOM,
        "GPUs are free but promised to others: {have} of the {need} needed are left ({where})",
    )
    # What became of a Run
    ADMITTED = "Admitted", CHANGE, "{need} GPUs, paid by {where}"
    OPPORTUNISTIC = "Opportunistic", CHANGE, "{need} opportunistic GPUs, until a funded Run needs them"
    DEMOTED = (
        "Demoted",
        CHANGE,
        "no envelope can pay for {need} of its GPUs: it keeps them until a funded Run needs them",
    )
    RECLAIMED = (
        "Reclaimed",
        CHANGE,
        "its opportunistic or provisional GPUs were reclaimed for a Run with a right to them",
    )
    CAPACITY_LOST = "CapacityLost", CHANGE, "it lost its GPUs on {where} and got no others"
    NODE_FAILURE = "NodeFailure", CHANGE, "node {where} failed"
    EVICTED = "Evicted", CHANGE, "pods of rank {where} were evicted or deleted"
    SPARE_EVICTED = "SpareEvicted", CHANGE, "standby pods were evicted from {where}, which takes no pods now"
    REFUSED = (
        "Refused",
        STATE,
        "its pods are refused; if that goes on for placementGrace, it goes elsewhere or waits: {where}",
    )
    UNPLACEABLE = "Unplaceable", CHANGE, "its pods were refused for longer than placementGrace: {where}"
    RESTARTED = "Restarted", CHANGE, "rank {where} failed: it starts again from its last checkpoint"
    RESTARTS_EXHAUSTED = "RestartsExhausted", CHANGE, "rank {where} failed and its maxRestarts are used up"
    RESIZED = "Resized", CHANGE, "its owner asked for a width of {need} GPUs"
    GROWN = "Grown", CHANGE, "{need} GPUs more (INCR: its width was increased)"
    NOT_GROWING = "NotGrowing", STATE, "it runs with {have} of the {need} desired GPUs: {where}"
    SPARE_ADDED = "SpareAdded", CHANGE, "{need} missing spare GPUs were added"
    SPARE_MISSING = "SpareMissing", STATE, "{need} spare GPUs are missing: {where}"
    COMPLETED = "Completed", CHANGE, "all its work is done"
    FAILED = "Failed", CHANGE, "its work failed"
    CANCELLED = "Cancelled", CHANGE, "it was cancelled"
    FINISHED = "Finished", CHANGE, "it is finished, so reservation {where} is withdrawn"
    DURATION_EXCEEDED = "DurationExceeded", CHANGE, "it reached its maxDuration ({where})"
    RANDOM_PREEMPT = "RandomPreempt", CHANGE, "it lost the lottery of reservation {where}"
    NOT_DRAWN = "NotDrawn", CHANGE, "it was not drawn in the lottery of reservation {where}"
    # Job trees
    UPSTREAM = "Upstream", STATE, "it waits for {where}"
    UPSTREAM_FAILED = "UpstreamFailed", CHANGE, "{where}, which it waits for, failed"
    UPSTREAM_MISSING = "UpstreamMissing", STATE, "it waits for {where}, which does not exist"
    RELEASED = "Released", CHANGE, "the Runs that it waited for are done"
    NO_GPUS = "NoGPUs", CHANGE, "it needs no GPUs: the cluster's own scheduler places its pods"
    TOGETHER = "Together", STATE, "it starts together with {where}"
    STAGE_FAILED = "StageFailed", CHANGE, "stage {where} failed"
    # What became of a promise
    RESERVED = "Reserved", CHANGE, "reservation {where}"
    ACTIVATED = "Activated", CHANGE, "reservation {where} is due"
    STARTED_EARLY = "StartedEarly", CHANGE, "it starts before reservation {where} is due, and keeps that date"
    SUPERSEDED = "Superseded", CHANGE, "it starts before reservation {where} is due"
    PROVISIONAL = (
        "Provisional",
        CHANGE,
        "{need} GPUs that are promised to others: they are reclaimed when those promises are due",
    )
    EDITED = "Edited", CHANGE, "the Run was edited ({where})"
    NODES_LOST = "NodesLost", CHANGE, "nodes that reservation {where} counted on are gone"
    FUNDING_LOST = "FundingLost", CHANGE, "payers that reservation {where} counted on can no longer pay"
    OWNER_NEEDS = (
        "OwnerNeeds",
        CHANGE,
        "the owner of budget that {where} counts on needs it for a Run of its own",
    )
    BUDGET_LEFT_IDLE = (
        "BudgetLeftIdle",
        CHANGE,
        "budget was kept idle for {where} × {need} GPUs, and is kept no longer",
    )
    CROWDED_OUT = (
        "CrowdedOut",
        CHANGE,
        "Runs that started before reservation {where} use more GPUs, or for longer, than forecast",
    )
    COLLISION = (
        "Collision",
        CHANGE,
        "another lottery, or a lack of notice, leaves reservation {where} too few Runs to draw from",
    )
    KEY_CHANGED = (
        "KeyChanged",
        CHANGE,
        "the lottery key is not the one that reservation {where} was committed with",
    )
    # What is wrong with the object itself
    NAME_TAKEN = (
        "NameTaken",
        STATE,
        "a stage needs the name {where}, which another Run has: delete that Run, and the stage is made",
    )
    UNREADABLE = (
        "Unreadable",
        STATE,
        "Jobtree cannot read this Run, so repair or delete it: {where}",
    )
    NOT_WRITTEN = (
        "NotWritten",
        STATE,
        "the API server refuses the status of this Run, which is tried again after a pause: {where}",
    )


REASONS: dict[str, Reason] = {str(reason): reason for reason in Reason}
"""Each reason by its word."""


class Cause(msgspec.Struct, frozen=True, order=True):
    """A reason with its figures: have and need in GPUs, and where it applies."""

    reason: Reason
    where: str = ""
    have: int = 0
    need: int = 0

    def __str__(self) -> str:
        return self.reason.sentence.format(where=self.where, have=self.have, need=self.need)


class Verdict(msgspec.Struct, frozen=True):
    """The phase of a Run and every cause for it."""

    phase: str
    causes: tuple[Cause, ...] = ()

    @property
    def reason(self) -> str:
        """The reason of the last cause: that of the last payer or domain tried."""
        return str(self.causes[-1].reason) if self.causes else ""

    @property
    def message(self) -> str:
        return "; ".join(f"{cause.reason}: {cause}" for cause in self.causes)
