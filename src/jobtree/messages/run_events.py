"""The Events of actions, with their messages."""

from collections.abc import Iterable, Iterator

import msgspec

from jobtree.api.kinds.run import Risk
from jobtree.api.schema.quantities import format_slots
from jobtree.core import ACTIONS, AT_RISK, OPENINGS, Action, RunKey, outcome_of


class Event(msgspec.Struct, frozen=True):
    at: int
    name: str
    run: RunKey
    message: str


def merged_actions(actions: Iterable[Action]) -> Iterator[Action]:
    """Merges consecutive actions of one kind on one Run at one instant, which come lease by lease."""
    merged: Action | None = None
    for action in actions:
        if merged and (merged.kind, merged.run_key, merged.at) == (
            action.kind,
            action.run_key,
            action.at,
        ):
            need = merged.cause.need + action.cause.need
            merged = msgspec.structs.replace(
                merged,
                cause=msgspec.structs.replace(merged.cause, need=need),
                closes=merged.closes + action.closes,
                opens=merged.opens + action.opens,
            )
            continue
        if merged:
            yield merged
        merged = action
    if merged:
        yield merged


def events_of(action: Action) -> Iterator[Event]:
    """The Events of an action, as its row in the table of outcomes names them.

    A Run that lost a lottery and is not requeued both lost it and failed (X6). A promise that is withdrawn to
    be moved has the Event of the move.
    """
    if action.kind == "Withdraw" and action.promise is None:
        return
    message = str(action.cause) if action.kind == "Recover" else message_of(action)
    for name in outcome_of(action.kind, action.cause.reason).events:
        yield Event(action.at, name, action.run_key, message)
    if action.kind == "Recover":
        yield from recovery_events(action)


def recovery_events(action: Action) -> Iterator[Event]:
    """Where lost ranks continue, or that the Run is narrower without them."""
    recovered = False
    for reason, opening in OPENINGS.items():
        slots = [slot for lease in action.opens if lease.reason == reason for slot in lease.slots]
        if opening.event and slots:
            where = ", ".join(text for node, mask in slots for text in format_slots(node, mask))
            yield Event(action.at, opening.event, action.run_key, f"its ranks continue on {where}")
            recovered = True
    if not recovered:
        yield Event(action.at, ACTIONS["Shrink"].event, action.run_key, "it continues with fewer GPUs")


ORDER_IN_DECISION: tuple[tuple[str, ...], ...] = (
    ("Activated",),
    ("NodeFailed", "Evicted"),
    (
        "RandomPreempt",
        "Reclaimed",
        "OwnerNeeds",
        "Shrunk",
        "SpareDropped",
        "Demoted",
        "Repaid",
        "Failed",
        "CapacityLost",
    ),
    ("NotDrawn",),
    ("Admitted",),
    ("Superseded", "Swapped", "Recovered"),
)
"""The Events of one decision: its occasion, what it takes, what it spares, what starts, what follows."""

PLACES = {name: place for place, names in enumerate(ORDER_IN_DECISION) for name in names}
ALONE = len(ORDER_IN_DECISION)
NEXT_DECISION = frozenset(
    (before, place) for place in (1, 2, 4) for before in (0, 3, 4, 5) if before != place
)
"""Places of two Events, one after the other, that belong to two decisions."""


def place_in_decision(name: str) -> int:
    return PLACES.get(name, ALONE)


def in_causal_order(events: Iterable[Event]) -> Iterator[Event]:
    """Yields Events so that each decision is told from its occasion to what follows from it."""
    decision: list[Event] = []
    for event in events:
        if decision and begins_decision(decision[-1], event):
            yield from sorted(decision, key=lambda told: place_in_decision(told.name))
            decision = []
        decision.append(event)
    yield from sorted(decision, key=lambda told: place_in_decision(told.name))


def begins_decision(before: Event, event: Event) -> bool:
    """Whether an Event belongs to another decision than the one before it."""
    places = place_in_decision(before.name), place_in_decision(event.name)
    return before.at != event.at or ALONE in places or places in NEXT_DECISION


def risk_event(at: int, run_key: RunKey, risk: Risk) -> Event:
    """The warning of a Run that the start of another may stop (R11)."""
    message = (
        f"reservation {risk.reservation} is due at {risk.at}; "
        f"probability of being stopped: {risk.kill_probability}"
    )
    return Event(at, AT_RISK, run_key, message)


NEW_PAYERS = frozenset({"Start", "Repay", "Demote", "Grow", "AddSpare"})
"""The actions that open leases for more than the rest of other leases."""


def message_of(action: Action) -> str:
    """Returns who pays from now on, else the cause; if the payer changes, also why leases closed."""
    text = payers_text(action) if action.kind in NEW_PAYERS else ""
    text = text or str(action.cause)
    if action.kind in ("Repay", "Demote"):
        closures = sorted({closing.reason for closing in action.closes} - {"Repaid"})
        return ": ".join((*closures, text))
    return text


def payers_text(action: Action) -> str:
    """Returns ``96 GPUs paid by west/h100 (Owned), 8 spare GPUs paid by …``; empty if no envelope pays."""
    gpus: dict[tuple[str, str, str], int] = {}
    for lease in action.opens:
        if lease.role != "Opportunistic":
            spare = " spare" if lease.role == "Spare" else ""
            payer = (spare, "/".join(lease.payer), lease.class_)
            gpus[payer] = gpus.get(payer, 0) + lease.gpus
    return ", ".join(
        f"{number}{spare} GPU{'' if number == 1 else 's'} paid by {payer} ({class_})"
        for (spare, payer, class_), number in gpus.items()
    )
