"""The Events of actions."""

import pytest

from jobtree.core.model.actions import Action
from jobtree.core.model.gpu_lease import GpuLease
from jobtree.core.model.outcomes import ActionKind
from jobtree.core.model.reasons import Cause, Reason
from jobtree.messages.run_events import Event, events_of, in_causal_order
from tests.unit.core.build import T0

REST = GpuLease(
    name="wide-2",
    uid="wide-uid",
    run_key=("ns", "wide"),
    owner="org",
    payer=("org", "own"),
    payer_owner="org",
    class_="Owned",
    role="Active",
    group=0,
    flavor="H100-80GB",
    slots=(("a01", 255),),
    gpus=8,
    start=T0,
    rate=1000,
    reason="Continue",
)
LOST = Cause(Reason.RANDOM_PREEMPT, "big-1, seed 07")


@pytest.mark.parametrize(
    ("kind", "names"),
    [("Preempt", ["RandomPreempt"]), ("Fail", ["RandomPreempt", "Failed"])],
    ids=["queues again", "does not"],
)
def test_loser_of_a_lottery_gets_the_event_whether_it_is_requeued_or_not(
    kind: ActionKind, names: list[str]
) -> None:
    events = list(events_of(Action(kind, ("ns", "loser"), T0, LOST)))
    assert [event.name for event in events] == names
    assert {event.message for event in events} == {str(LOST)}


def test_failed_run_gets_no_lottery_event_when_it_lost_none() -> None:
    (event,) = events_of(Action("Fail", ("ns", "late"), T0, Cause(Reason.DURATION_EXCEEDED, "1h")))
    assert event.name == "Failed"


def event(name: str, run: str = "a", at: int = T0) -> Event:
    return Event(at, name, ("ns", run), "")


def told(*events: Event) -> list[tuple[str, str]]:
    return [(told_event.name, told_event.run[1]) for told_event in in_causal_order(events)]


def test_a_decision_is_told_from_its_occasion_to_what_follows() -> None:
    lottery = [
        event("RandomPreempt", "loser"),
        event("Admitted"),
        event("Activated"),
        event("NotDrawn", "lucky"),
        event("Reserved", "loser"),
    ]
    assert told(*lottery) == [
        ("Activated", "a"),
        ("RandomPreempt", "loser"),
        ("NotDrawn", "lucky"),
        ("Admitted", "a"),
        ("Reserved", "loser"),
    ]
    swap = [event("Reclaimed", "guest"), event("NodeFailed"), event("Swapped")]
    assert told(*swap) == [("NodeFailed", "a"), ("Reclaimed", "guest"), ("Swapped", "a")]


def test_decisions_of_one_instant_are_not_mixed() -> None:
    first = [event("Admitted"), event("Activated")]
    second = [event("Admitted", "b"), event("Activated", "b")]
    third = [event("Reclaimed", "c"), event("Admitted", "d")]
    assert told(*first, *second, *third) == [
        ("Activated", "a"),
        ("Admitted", "a"),
        ("Activated", "b"),
        ("Admitted", "b"),
        ("Reclaimed", "c"),
        ("Admitted", "d"),
    ]


def test_events_of_later_instants_stay_later() -> None:
    assert told(event("Admitted"), event("Activated", at=T0 + 1)) == [("Admitted", "a"), ("Activated", "a")]


def test_run_that_shrinks_is_told_why_and_not_who_pays_for_the_rest() -> None:
    cause = Cause(Reason.ACTIVATED, "big-1")
    (shrunk,) = events_of(Action("Shrink", ("ns", "wide"), T0, cause, opens=(REST,)))
    assert shrunk.message == str(cause)
