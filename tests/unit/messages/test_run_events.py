"""What is said of an action."""

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
def test_who_lost_a_lottery_is_told_so_whether_it_queues_again_or_not(
    kind: ActionKind, names: list[str]
) -> None:
    said = list(events_of(Action(kind, ("ns", "loser"), T0, LOST)))
    assert [event.name for event in said] == names
    assert {event.message for event in said} == {str(LOST)}


def test_who_failed_for_another_reason_lost_no_lottery() -> None:
    (event,) = events_of(Action("Fail", ("ns", "late"), T0, Cause(Reason.DURATION_EXCEEDED, "1h")))
    assert event.name == "Failed"
