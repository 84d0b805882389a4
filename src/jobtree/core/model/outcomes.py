"""The table of outcomes: every way in which something begins, ends or moves, and what follows from it.

``OUTCOMES`` has a row for each pair of an action and its reason. What depends on one word alone stands in the
table of that word: ``ACTIONS``, ``OPENINGS``, ``CLOSURES``, ``EVENTS`` and the rows of ``Reason``. Whatever
treats some of these words in its own way reads it from here: the phases of Runs, the states of Reservations,
events, metrics, logs, the history of a Run, the reference pages.
"""

from typing import Literal, NamedTuple

from jobtree.api.kinds.lease import ClosureReason, OpenReason
from jobtree.api.kinds.reservation import ReservationState
from jobtree.api.kinds.run import Phase
from jobtree.core.model.reasons import Reason

ActionKind = Literal[
    "Start",
    "Repay",
    "Demote",
    "Grow",
    "AddSpare",
    "Recover",
    "Avoid",
    "Restart",
    "Shrink",
    "DropSpare",
    "Requeue",
    "Release",
    "Complete",
    "Fail",
    "Cancel",
    "Preempt",
    "Exempt",
    "Reserve",
    "Move",
    "Activate",
    "Supersede",
    "Withdraw",
    "Confirm",
]
LogPart = Literal["binder", "forecast", "resolver"]
"""The part of the manager that a line of its log names."""


class ActionFacts(NamedTuple):
    """The effects of one kind of action, whatever its reason."""

    effect: str
    event: str = ""  # empty: the event is named after the reason
    part: LogPart = "binder"
    phase: Phase | None = None  # that the Run enters
    begins_attempt: bool = False  # or changes which pods belong to the present attempt
    requeues: bool = False  # the Run waits again with its old creation time
    reservation: ReservationState | None = None  # that the promise's Reservation enters


ACTIONS: dict[ActionKind, ActionFacts] = {
    "Start": ActionFacts(
        "opens the leases, then starts all pods: the Run is admitted",
        "Admitted",
        phase="Running",
        begins_attempt=True,
    ),
    "Repay": ActionFacts("gives the same slots another payer; touches no pod", "Repaid"),
    "Demote": ActionFacts("leaves these slots without a payer; touches no pod", "Demoted"),
    "Grow": ActionFacts(
        "opens leases and starts pods on them: the Run is wider", "Grown", begins_attempt=True
    ),
    "AddSpare": ActionFacts("starts standby pods on the opened slots", "SpareAdded"),
    "Recover": ActionFacts(
        "starts lost ranks on the opened slots and stops their other pods", begins_attempt=True
    ),
    "Avoid": ActionFacts(
        "keeps the Run from nodes that refuse its pods, or from starting at all, for a pause that doubles",
        "Refused",
    ),
    "Restart": ActionFacts(
        "stops all pods and starts them again on the same slots once the Run may resume",
        "Restarted",
        begins_attempt=True,
    ),
    "Shrink": ActionFacts(
        "stops the pods on the closed slots: the Run is narrower", "Shrunk", begins_attempt=True
    ),
    "DropSpare": ActionFacts("stops the standby pods on the closed slots", "SpareDropped"),
    "Requeue": ActionFacts(
        "stops all pods: the Run waits again with its old creation time", phase="Pending", requeues=True
    ),
    "Release": ActionFacts("puts a Run into the queue: its upstream Runs are done", phase="Pending"),
    "Complete": ActionFacts("closes the leases: all ranks succeeded", "Completed", phase="Completed"),
    "Fail": ActionFacts("stops the pods that still run: the Run is finished", "Failed", phase="Failed"),
    "Cancel": ActionFacts(
        "stops the pods, closes the leases and removes the finalizer of a deleted Run",
        "Cancelled",
        phase="Failed",
    ),
    "Preempt": ActionFacts(
        "requeues a Run that lost a lottery; its immunity doubles",
        "RandomPreempt",
        "resolver",
        phase="Pending",
        requeues=True,
    ),
    "Exempt": ActionFacts(
        "makes a Run immune that had a ticket in a lottery and did not lose", "NotDrawn", "resolver"
    ),
    "Reserve": ActionFacts("writes a Reservation", "Reserved", "forecast", reservation="Pending"),
    "Move": ActionFacts("gives a Reservation another start or slice", part="forecast", reservation="Pending"),
    "Activate": ActionFacts(
        "writes the decision and its record into a Reservation that is due",
        "Activated",
        "resolver",
        reservation="Activated",
    ),
    "Supersede": ActionFacts(
        "ends a promise because the Run starts earlier and takes nothing",
        "Superseded",
        "forecast",
        reservation="Superseded",
    ),
    "Withdraw": ActionFacts("ends a promise without a start", part="forecast", reservation="Cancelled"),
    "Confirm": ActionFacts(
        "gives a provisional Run what it was promised, where it runs",
        "Activated",
        "resolver",
        reservation="Activated",
    ),
}


class OpeningFacts(NamedTuple):
    sentence: str
    event: str = ""  # of lost ranks that continue on the new lease


OPENINGS: dict[OpenReason, OpeningFacts] = {
    "Start": OpeningFacts("it started"),
    "Grow": OpeningFacts("it grew"),
    "Swap": OpeningFacts("a spare took over", "Swapped"),
    "Recover": OpeningFacts("a lost rank got other GPUs", "Recovered"),
    "Repay": OpeningFacts("this payer took over"),
    "Demote": OpeningFacts("no envelope pays: it keeps the GPUs until a funded Run needs them"),
    "Continue": OpeningFacts("the other pods continued"),
}


class ClosureFacts(NamedTuple):
    sentence: str
    preempts: bool = False  # others with a right to the GPUs took them: jobtree_preemptions_total
    ends_run: bool = False  # by itself or by its owner: its run time is a whole one


CLOSURES: dict[ClosureReason, ClosureFacts] = {
    "Completed": ClosureFacts("its work was done", ends_run=True),
    "Failed": ClosureFacts("it failed", ends_run=True),
    "Cancelled": ClosureFacts("it was cancelled", ends_run=True),
    "Shrink": ClosureFacts("it became narrower", preempts=True),
    "DropSpare": ClosureFacts("funded work needed the spare", preempts=True),
    "RandomPreempt": ClosureFacts("it lost a lottery", preempts=True),
    "ReclaimedBySpare": ClosureFacts("a spare with these GPUs replaced a lost rank", preempts=True),
    "Reclaimed": ClosureFacts(
        "GPUs of it were opportunistic or provisional, and funded work needed them", preempts=True
    ),
    "Swap": ClosureFacts("the spare became a rank"),
    "NodeFailure": ClosureFacts("a node failed"),
    "CapacityLost": ClosureFacts("their node failed, was drained or refused their pods"),
    "WindowClosed": ClosureFacts("the envelope's window closed"),
    "BudgetExhausted": ClosureFacts("the envelope's hours ran out, or it was cut"),
    "Recalled": ClosureFacts("the envelope's owner needed it for its own Run"),
    "Repaid": ClosureFacts("an envelope could pay again"),
}


class EventFacts(NamedTuple):
    """What the Event says; ``warning`` is its type."""

    meaning: str
    warning: bool = False


AT_RISK = "AtRisk"
NOT_WRITTEN = "NotWritten"
EVENTS: dict[str, EventFacts] = {
    "Admitted": EventFacts("It started. The message says who pays."),
    "RandomPreempt": EventFacts("It lost a lottery, and queues again.", warning=True),
    "NotDrawn": EventFacts("It had a ticket in a lottery and did not lose. It is immune for a while."),
    "Reserved": EventFacts("It cannot start now. The Reservation says when it will."),
    "Activated": EventFacts("Its promised time has come."),
    "Superseded": EventFacts("It starts before its promised time and takes nothing from other Runs."),
    "Repaid": EventFacts("Another payer took over. No pod was touched."),
    "Demoted": EventFacts(
        "No envelope can pay. It keeps its GPUs until a funded Run needs them.", warning=True
    ),
    "Grown": EventFacts("It has more GPUs."),
    "SpareAdded": EventFacts("A missing spare was added."),
    "Restarted": EventFacts("A rank failed. All ranks start again from the last checkpoint."),
    "Shrunk": EventFacts("It has fewer GPUs."),
    "SpareDropped": EventFacts("It lost a spare."),
    NOT_WRITTEN: EventFacts(
        "The API server refused what was decided about it. It waits, alone, and is tried again later.",
        warning=True,
    ),
    "Completed": EventFacts("All ranks succeeded."),
    "Failed": EventFacts("It is finished without success.", warning=True),
    "Cancelled": EventFacts("Somebody deleted it."),
    "Finished": EventFacts("It finished before the date of a promise to it, and the promise ends."),
    "Swapped": EventFacts("A spare took over for a lost rank."),
    "Recovered": EventFacts("A lost rank continues on other GPUs of its domain."),
    "NodeFailed": EventFacts("A node that it used failed.", warning=True),
    "Evicted": EventFacts("Somebody evicted or deleted a pod of it."),
    "Refused": EventFacts(
        "A node, the scheduler or the API server refused its pods for longer than placementGrace, in these "
        "words.",
        warning=True,
    ),
    "Moved": EventFacts("Ranks that were refused go elsewhere."),
    "Unplaceable": EventFacts("Its pods were refused, and it queues again.", warning=True),
    AT_RISK: EventFacts(
        "It may be stopped for a promise to another Run. The message says when, and with what probability.",
        warning=True,
    ),
    "Reclaimed": EventFacts(
        "Its opportunistic or provisional GPUs were reclaimed. It queues again.", warning=True
    ),
    "CapacityLost": EventFacts("It lost a node that nothing could replace. It queues again.", warning=True),
    "Released": EventFacts("The Runs that it waited for are done."),
    "Edited": EventFacts("The Run was edited, and its start was searched again."),
    "NodesLost": EventFacts("Nodes that its promise counted on are gone, and its start was searched again."),
    "FundingLost": EventFacts(
        "Payers that its promise counted on can no longer pay, and its start was searched again."
    ),
    "OwnerNeeds": EventFacts(
        "The owner of budget that it counted on needs it for a Run of its own. It queues again, or its start "
        "was searched again.",
        warning=True,
    ),
    "StartedEarly": EventFacts("It starts before its promised time and keeps its promise until then."),
    "BudgetLeftIdle": EventFacts(
        "It has no date. Budget was kept idle for it for too long, and other Runs may use it now."
    ),
    "CrowdedOut": EventFacts(
        "Other Runs use more GPUs, or for longer, than forecast, and its start was searched again."
    ),
    "Collision": EventFacts(
        "Another lottery, or a lack of notice, leaves its promise too few Runs to draw from, and its start "
        "was searched again."
    ),
    "NodeFailure": EventFacts(
        "Ranks of another Run were moved off a failed node to GPUs that its promise counted on, and its "
        "start was searched again."
    ),
    "KeyChanged": EventFacts(
        "The lottery key is not the one that its promise was made with. It gets a new promise."
    ),
}


class Outcome(NamedTuple):
    """An action for one reason: how leases open and close with it, and how it is reported."""

    action: ActionKind
    reason: Reason
    opens: tuple[OpenReason, ...] = ()
    closes: tuple[ClosureReason, ...] = ()
    reported_as: tuple[str, ...] = ()  # events, where they are not those of the action
    logged_by: LogPart | None = None  # the part of the log, where it is not that of the action
    plain: bool = False  # the reason of this end of a Run where no other is known
    by_owner: bool = False  # its owner wanted it: GPUs that it loses are no preemption
    counted_as: Reason | None = None  # the reason under which a replay counts it, where it is another

    @property
    def events(self) -> tuple[str, ...]:
        return self.reported_as or (ACTIONS[self.action].event or str(self.reason),)

    @property
    def part(self) -> LogPart:
        return self.logged_by or ACTIONS[self.action].part


ROWS = (
    Outcome("Start", Reason.ADMITTED, opens=("Start",)),
    Outcome("Start", Reason.OPPORTUNISTIC, opens=("Start",)),
    Outcome("Start", Reason.PROVISIONAL, opens=("Start",)),
    Outcome("Start", Reason.ACTIVATED, opens=("Start",)),
    Outcome("Start", Reason.NO_GPUS),
    Outcome("Repay", Reason.ADMITTED, opens=("Repay",), closes=("Repaid",)),
    Outcome("Repay", Reason.WINDOW_NOT_OPEN, opens=("Repay",), closes=("WindowClosed",)),
    Outcome("Repay", Reason.HOURS_EXHAUSTED, opens=("Repay", "Continue"), closes=("BudgetExhausted",)),
    Outcome("Repay", Reason.CONCURRENCY_EXHAUSTED, opens=("Repay", "Continue"), closes=("Recalled",)),
    Outcome(
        "Demote",
        Reason.DEMOTED,
        opens=("Demote", "Continue"),
        closes=("WindowClosed", "BudgetExhausted", "Recalled"),
    ),
    Outcome("Grow", Reason.GROWN, opens=("Grow",)),
    Outcome("AddSpare", Reason.SPARE_ADDED, opens=("Grow",)),
    Outcome(
        "Recover",
        Reason.NODE_FAILURE,
        opens=("Swap", "Recover", "Demote", "Continue"),
        closes=("NodeFailure", "Swap", "Shrink"),
        reported_as=("NodeFailed",),
    ),
    Outcome(
        "Recover",
        Reason.EVICTED,
        opens=("Swap", "Recover", "Demote", "Continue"),
        closes=("CapacityLost", "Swap", "Shrink"),
        reported_as=("Evicted",),
    ),
    Outcome(
        "Recover",
        Reason.UNPLACEABLE,
        opens=("Swap", "Recover", "Demote", "Continue"),
        closes=("CapacityLost", "Swap", "Shrink"),
        reported_as=("Moved",),
    ),
    Outcome("Avoid", Reason.UNPLACEABLE),
    Outcome("Restart", Reason.RESTARTED),
    Outcome("Restart", Reason.EVICTED),
    Outcome("Shrink", Reason.RESIZED, opens=("Continue",), closes=("Shrink",), by_owner=True),
    Outcome(
        "Shrink", Reason.RECLAIMED, opens=("Continue",), closes=("Reclaimed", "ReclaimedBySpare", "Shrink")
    ),
    Outcome(
        "Shrink",
        Reason.ACTIVATED,
        opens=("Continue",),
        closes=("Reclaimed", "Shrink"),
        logged_by="resolver",
    ),
    Outcome("DropSpare", Reason.ACTIVATED, closes=("DropSpare",), logged_by="resolver"),
    Outcome("DropSpare", Reason.NODE_FAILURE, opens=("Continue",), closes=("NodeFailure",)),
    Outcome("DropSpare", Reason.EVICTED, opens=("Continue",), closes=("CapacityLost",)),
    Outcome("DropSpare", Reason.SPARE_EVICTED, opens=("Continue",), closes=("CapacityLost",)),
    Outcome("DropSpare", Reason.UNPLACEABLE, opens=("Continue",), closes=("CapacityLost",)),
    Outcome("DropSpare", Reason.WINDOW_NOT_OPEN, closes=("WindowClosed",)),
    Outcome("DropSpare", Reason.HOURS_EXHAUSTED, opens=("Continue",), closes=("BudgetExhausted",)),
    Outcome("DropSpare", Reason.CONCURRENCY_EXHAUSTED, opens=("Continue",), closes=("Recalled",)),
    Outcome("Requeue", Reason.RECLAIMED, closes=("Reclaimed", "ReclaimedBySpare")),
    Outcome("Requeue", Reason.OWNER_NEEDS, closes=("Recalled",)),
    Outcome("Requeue", Reason.CAPACITY_LOST, closes=("CapacityLost",), counted_as=Reason.NODE_FAILURE),
    Outcome("Requeue", Reason.UNPLACEABLE, closes=("CapacityLost",)),
    Outcome("Preempt", Reason.RANDOM_PREEMPT, closes=("RandomPreempt",)),
    Outcome("Exempt", Reason.NOT_DRAWN),
    Outcome("Release", Reason.RELEASED),
    Outcome("Complete", Reason.COMPLETED, closes=("Completed",), plain=True),
    Outcome("Fail", Reason.FAILED, closes=("Failed",), plain=True),
    Outcome("Fail", Reason.RESTARTS_EXHAUSTED, closes=("Failed",)),
    Outcome("Fail", Reason.DURATION_EXCEEDED, closes=("Failed",)),
    Outcome("Fail", Reason.STAGE_FAILED),
    Outcome("Fail", Reason.UPSTREAM_FAILED),
    Outcome(
        "Fail",
        Reason.RANDOM_PREEMPT,
        closes=("RandomPreempt",),
        reported_as=("RandomPreempt", "Failed"),
        logged_by="resolver",
    ),
    Outcome("Cancel", Reason.CANCELLED, closes=("Cancelled",), plain=True),
    Outcome("Reserve", Reason.RESERVED),
    Outcome("Move", Reason.RESERVED),
    Outcome("Move", Reason.EDITED),
    Outcome("Move", Reason.NODES_LOST),
    Outcome("Move", Reason.FUNDING_LOST),
    Outcome("Move", Reason.OWNER_NEEDS),
    Outcome("Move", Reason.STARTED_EARLY),
    Outcome("Move", Reason.BUDGET_LEFT_IDLE),
    Outcome("Move", Reason.CROWDED_OUT),
    Outcome("Move", Reason.COLLISION),
    Outcome("Move", Reason.NODE_FAILURE),
    Outcome("Activate", Reason.ACTIVATED),
    Outcome("Confirm", Reason.ACTIVATED),
    Outcome("Supersede", Reason.SUPERSEDED),
    Outcome("Supersede", Reason.FINISHED),
    Outcome("Withdraw", Reason.CANCELLED),
    Outcome("Withdraw", Reason.FINISHED),
    Outcome("Withdraw", Reason.SUPERSEDED),
    Outcome("Withdraw", Reason.EDITED),
    Outcome("Withdraw", Reason.NODES_LOST),
    Outcome("Withdraw", Reason.FUNDING_LOST),
    Outcome("Withdraw", Reason.OWNER_NEEDS),
    Outcome("Withdraw", Reason.CROWDED_OUT),
    Outcome("Withdraw", Reason.COLLISION),
    Outcome("Withdraw", Reason.NODE_FAILURE),
    Outcome("Withdraw", Reason.UNPLACEABLE),
    Outcome("Withdraw", Reason.KEY_CHANGED, logged_by="resolver"),
)
OUTCOMES = {(row.action, row.reason): row for row in ROWS}


def outcome_of(action: ActionKind, reason: Reason) -> Outcome:
    """The row of an action and its reason; a row without leases where there is none."""
    return OUTCOMES.get((action, reason)) or Outcome(action, reason)


# Lookups by one word, derived from the tables above.

PHASES: dict[str, Phase] = {kind: facts.phase for kind, facts in ACTIONS.items() if facts.phase is not None}
RUN_ENDS = frozenset(kind for kind, phase in PHASES.items() if phase in ("Completed", "Failed"))
NEW_ATTEMPT_KINDS = frozenset(kind for kind, facts in ACTIONS.items() if facts.begins_attempt)
REQUEUES = frozenset(kind for kind, facts in ACTIONS.items() if facts.requeues)
SETS_PROMISE = frozenset(kind for kind, facts in ACTIONS.items() if facts.reservation == "Pending")
FINAL_STATES: dict[str, ReservationState] = {
    kind: facts.reservation
    for kind, facts in ACTIONS.items()
    if facts.reservation is not None and kind not in SETS_PROMISE
}
CLEARS_PROMISE = frozenset(FINAL_STATES)
KEEPS_PROMISE = frozenset(kind for kind, state in FINAL_STATES.items() if state != "Cancelled")
PLAIN_ENDS = {row.action: row for row in ROWS if row.plain}
REPAY_REASONS = {closure: row.reason for row in ROWS if row.action == "Repay" for closure in row.closes}
OPENING_SENTENCES: dict[str, str] = {reason: facts.sentence for reason, facts in OPENINGS.items()}
CLOSURE_SENTENCES: dict[str, str] = {closure: facts.sentence for closure, facts in CLOSURES.items()}
PREEMPTION_CLOSURES = frozenset(closure for closure, facts in CLOSURES.items() if facts.preempts)
STOP_CLOSURES = frozenset(closure for row in ROWS if row.action in REQUEUES for closure in row.closes)
RUN_END_CLOSURES = frozenset(closure for closure, facts in CLOSURES.items() if facts.ends_run)
WARNINGS = frozenset(name for name, facts in EVENTS.items() if facts.warning)
