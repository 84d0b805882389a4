"""Every reason Jobtree gives, with its sentence.

One enum is the condition's reason, the metric's label and the CLI's words, so that what a user reads
in one place can be searched for in all others.
"""

from enum import StrEnum

import msgspec


class Reason(StrEnum):
    # Cover says no (C6)
    NO_ENVELOPE = "NoEnvelope"
    WINDOW_NOT_OPEN = "WindowNotOpen"
    CONCURRENCY_EXHAUSTED = "ConcurrencyExhausted"
    HOURS_EXHAUSTED = "HoursExhausted"
    CREDITS_EXHAUSTED = "CreditsExhausted"
    LENDING_DENIED = "LendingDenied"
    BORROW_LIMIT = "BorrowLimit"
    AGGREGATE_CAP = "AggregateCap"
    TREE_QUOTA = "TreeQuota"
    # Pack says no (P6)
    NO_SUCH_FLAVOR = "NoSuchFlavor"
    GROUP_TOO_LARGE = "GroupTooLarge"
    NO_FREE_SLOTS = "NoFreeSlots"
    HELD = "Held"
    # What became of a Run
    ADMITTED = "Admitted"
    OPPORTUNISTIC = "Opportunistic"
    DEMOTED = "Demoted"
    RECLAIMED = "Reclaimed"
    CAPACITY_LOST = "CapacityLost"
    NODE_FAILURE = "NodeFailure"
    EVICTED = "Evicted"
    SPARE_EVICTED = "SpareEvicted"
    RESTARTED = "Restarted"
    RESTARTS_EXHAUSTED = "RestartsExhausted"
    RESIZED = "Resized"
    GROWN = "Grown"
    NOT_GROWING = "NotGrowing"
    SPARE_ADDED = "SpareAdded"
    SPARE_MISSING = "SpareMissing"
    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    DURATION_EXCEEDED = "DurationExceeded"
    RANDOM_PREEMPT = "RandomPreempt"
    # Job trees
    UPSTREAM = "Upstream"
    UPSTREAM_FAILED = "UpstreamFailed"
    UPSTREAM_MISSING = "UpstreamMissing"
    RELEASED = "Released"
    NO_GPUS = "NoGPUs"
    TOGETHER = "Together"
    STAGE_FAILED = "StageFailed"
    # What became of a promise
    RESERVED = "Reserved"
    ACTIVATED = "Activated"
    SUPERSEDED = "Superseded"
    PROVISIONAL = "Provisional"
    EDITED = "Edited"
    NODES_LOST = "NodesLost"
    FUNDING_LOST = "FundingLost"
    CROWDED_OUT = "CrowdedOut"
    KEY_CHANGED = "KeyChanged"
    # What is wrong with the object itself
    UNREADABLE = "Unreadable"


SENTENCES: dict[Reason, str] = {
    Reason.NO_ENVELOPE: "no envelope of {where} pays for this flavor and place",
    Reason.WINDOW_NOT_OPEN: "envelope {where} is outside its time window",
    Reason.CONCURRENCY_EXHAUSTED: "envelope {where} has {have} of the {need} GPUs still needed",
    Reason.HOURS_EXHAUSTED: "envelope {where} has GPU-hours for {have} of the {need} GPUs still needed",
    Reason.CREDITS_EXHAUSTED: "envelope {where} has credits for {have} of the {need} GPUs still needed",
    Reason.LENDING_DENIED: "{where} does not lend to this owner",
    Reason.BORROW_LIMIT: "borrowing is limited to {have} of the {need} GPUs still needed ({where})",
    Reason.AGGREGATE_CAP: "aggregate cap {where} leaves {have} of the {need} GPUs still needed",
    Reason.TREE_QUOTA: "the tree's quota ({where}) leaves {have} of the {need} GPUs still needed",
    Reason.NO_SUCH_FLAVOR: "no node has GPUs of flavor {where}",
    Reason.GROUP_TOO_LARGE: "no domain could ever hold {need} GPUs: the largest holds {have} ({where})",
    Reason.NO_FREE_SLOTS: "{have} of {need} GPUs are free for its pods ({where})",
    Reason.HELD: "{have} of {need} GPUs are free, the rest is promised to others ({where})",
    Reason.ADMITTED: "{need} GPUs, paid by {where}",
    Reason.OPPORTUNISTIC: "{need} GPUs, unpaid, until someone funded needs them",
    Reason.DEMOTED: "nobody can pay for {need} of its GPUs: it keeps them until someone funded needs them",
    Reason.RECLAIMED: "its GPUs, unpaid or provisional, went to work with a right to them",
    Reason.CAPACITY_LOST: "it lost node {where}",
    Reason.NODE_FAILURE: "node {where} failed",
    Reason.EVICTED: "pods of rank {where} were evicted or deleted",
    Reason.SPARE_EVICTED: "standby pods were evicted from {where}, which takes no pods now",
    Reason.RESTARTED: "rank {where} failed: it starts again from its last checkpoint",
    Reason.RESTARTS_EXHAUSTED: "rank {where} failed and its maxRestarts are used up",
    Reason.RESIZED: "asked to be {need} GPUs wide",
    Reason.GROWN: "{need} GPUs more",
    Reason.NOT_GROWING: "it has {have} of the {need} GPUs it wants: {where}",
    Reason.SPARE_ADDED: "{need} spare GPUs that were missing",
    Reason.SPARE_MISSING: "{need} spare GPUs are missing: {where}",
    Reason.COMPLETED: "all its work is done",
    Reason.FAILED: "its work failed",
    Reason.CANCELLED: "it was cancelled",
    Reason.DURATION_EXCEEDED: "it reached its maxDuration ({where})",
    Reason.RANDOM_PREEMPT: "it lost the lottery of reservation {where}",
    Reason.UPSTREAM: "it waits for {where}",
    Reason.UPSTREAM_FAILED: "{where}, which it waits for, failed",
    Reason.UPSTREAM_MISSING: "it waits for {where}, and there is no such Run",
    Reason.RELEASED: "what it waited for is done",
    Reason.NO_GPUS: "it needs no GPUs: the cluster's own scheduler places its pods",
    Reason.TOGETHER: "it starts together with {where}",
    Reason.STAGE_FAILED: "stage {where} failed",
    Reason.RESERVED: "reservation {where}",
    Reason.ACTIVATED: "reservation {where} is due",
    Reason.SUPERSEDED: "it starts before reservation {where} is due",
    Reason.PROVISIONAL: "{need} GPUs that are promised to others later: it goes first when they are due",
    Reason.EDITED: "the Run was edited ({where})",
    Reason.NODES_LOST: "the GPUs counted on by reservation {where} are no longer there",
    Reason.FUNDING_LOST: "the payers counted on by reservation {where} can no longer pay",
    Reason.CROWDED_OUT: "those that came before reservation {where} hold more, or longer, than foreseen",
    Reason.UNREADABLE: "Jobtree cannot read it, so it waits until somebody mends or deletes it: {where}",
    Reason.KEY_CHANGED: "the lottery key is not the one that reservation {where} was committed with",
}


class Cause(msgspec.Struct, frozen=True, order=True):
    """One reason with its figures: have and need in GPUs, where it applies."""

    reason: Reason
    where: str = ""
    have: int = 0
    need: int = 0

    def __str__(self) -> str:
        return SENTENCES[self.reason].format(where=self.where, have=self.have, need=self.need)


class Verdict(msgspec.Struct, frozen=True):
    """What the planner says of one Run: its phase and every reason for it."""

    phase: str
    causes: tuple[Cause, ...] = ()

    @property
    def reason(self) -> str:
        """The reason of the last payer or place tried."""
        return str(self.causes[-1].reason) if self.causes else ""

    @property
    def message(self) -> str:
        return "; ".join(f"{why.reason}: {why}" for why in self.causes)
