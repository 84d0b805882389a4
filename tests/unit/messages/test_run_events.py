"""The Events of actions."""

import pytest

from jobtree.core.model.actions import Action
from jobtree.core.model.outcomes import ActionKind
from jobtree.core.model.reasons import Cause, Reason
from jobtree.messages.run_events import events_of
from tests.unit.core.build import T0

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
