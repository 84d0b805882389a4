"""What happened, in the words of SPEC section 15, for people to read."""

from collections.abc import Iterable, Iterator

import msgspec

from jobtree.api.schema.quantities import format_slots
from jobtree.core import Action, Reason, RunKey

EVENT_NAMES = {
    "Start": "Admitted",
    "Preempt": "RandomPreempt",
    "Reserve": "Reserved",
    "Activate": "Activated",
    "Settle": "Activated",
    "Supersede": "Superseded",
    "Repay": "Repaid",
    "Demote": "Demoted",
    "Grow": "Grown",
    "AddSpare": "SpareAdded",
    "Restart": "Restarted",
    "Shrink": "Shrunk",
    "DropSpare": "SpareDropped",
    "Complete": "Completed",
    "Fail": "Failed",
    "Cancel": "Cancelled",
}


class Event(msgspec.Struct, frozen=True):
    at: int
    name: str
    run: RunKey
    message: str


def merged_actions(actions: Iterable[Action]) -> Iterator[Action]:
    """Changes of one kind to one Run at one instant, which come lease by lease, as one."""
    together: Action | None = None
    for action in actions:
        if together and (together.kind, together.run_key, together.at) == (
            action.kind,
            action.run_key,
            action.at,
        ):
            need = together.cause.need + action.cause.need
            together = msgspec.structs.replace(
                together,
                cause=msgspec.structs.replace(together.cause, need=need),
                closes=together.closes + action.closes,
                opens=together.opens + action.opens,
            )
            continue
        if together:
            yield together
        together = action
    if together:
        yield together


RECOVERIES = {"Swap": "Swapped", "Recover": "Recovered"}


def events_of(action: Action) -> Iterator[Event]:
    """An event named after the action; a Run that queues again is named after the cause.

    One that lost a lottery and does not queue again both lost it and failed (X6).
    """
    if action.kind == "Recover":
        yield from recovery_events(action)
        return
    if action.kind == "Fail" and action.cause.reason is Reason.RANDOM_PREEMPT:
        yield Event(action.at, EVENT_NAMES["Preempt"], action.run_key, message_of(action))
    name = EVENT_NAMES.get(action.kind, str(action.cause.reason))
    yield Event(action.at, name, action.run_key, message_of(action))


def recovery_events(action: Action) -> Iterator[Event]:
    """What was lost, then where its ranks went, or that it goes on narrower."""
    lost = "NodeFailed" if action.cause.reason is Reason.NODE_FAILURE else "Evicted"
    yield Event(action.at, lost, action.run_key, str(action.cause))
    gone = True
    for reason, name in RECOVERIES.items():
        slots = [slot for lease in action.opens if lease.reason == reason for slot in lease.slots]
        if slots:
            where = ", ".join(text for node, mask in slots for text in format_slots(node, mask))
            yield Event(action.at, name, action.run_key, f"its ranks go on at {where}")
            gone = False
    if gone:
        yield Event(action.at, "Shrunk", action.run_key, "it goes on narrower")


def message_of(action: Action) -> str:
    """Who pays from now on, where somebody does, and why leases ended before their Run did."""
    paid = payers_text(action)
    said = paid or str(action.cause)
    if action.kind in ("Repay", "Demote"):
        closures = sorted({closing.reason for closing in action.closes} - {"Repaid"})
        return ": ".join((*closures, said))
    return said


def payers_text(action: Action) -> str:
    """``96 GPUs paid by west/h100 (Owned), 8 spare GPUs paid by …``; empty where nobody pays."""
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
