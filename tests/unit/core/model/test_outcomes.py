"""The table of outcomes is complete and consistent, and its consumers read it."""

from typing import get_args

import pytest

from jobtree.api.kinds.lease import ClosureReason, OpenReason
from jobtree.api.kinds.reservation import ReservationState
from jobtree.api.kinds.run import Phase
from jobtree.core.model import outcomes
from jobtree.core.model.actions import Action
from jobtree.core.model.outcomes import (
    ACTIONS,
    AT_RISK,
    CLOSURES,
    EVENTS,
    NOT_WRITTEN,
    OPENINGS,
    OUTCOMES,
    PLAIN_ENDS,
    ROWS,
    ActionKind,
    LogPart,
    Outcome,
    outcome_of,
)
from jobtree.core.model.reasons import CHANGE, REASONS, Cause, Reason
from jobtree.core.world.world import World
from jobtree.manager.decisions.decision_log import log_lines
from jobtree.messages.run_events import events_of
from tests.unit.core.build import T0

KEY = ("ns", "run")
OF_LEASES_WITHOUT_RUN = {"Cancelled"}  # a Run that is gone ends its leases without an action


def row_name(row: Outcome) -> str:
    return f"{row.action}-{row.reason}"


@pytest.mark.parametrize("row", ROWS, ids=row_name)
def test_outcome_row_is_consistent(row: Outcome) -> None:
    facts = ACTIONS[row.action]
    assert row.events, "it is reported"
    assert [name for name in row.events if name not in EVENTS] == []
    assert row.part in get_args(LogPart)
    assert facts.effect
    assert set(row.opens) <= OPENINGS.keys()
    assert set(row.closes) <= CLOSURES.keys()
    sentence = row.reason.sentence.format(where="there", have=1, need=2)
    assert sentence
    assert "{" not in sentence
    assert row.counted_as is not row.reason
    if facts.reservation is not None:
        assert not row.opens
        assert not row.closes, "an action on a promise changes no lease"
    if facts.phase in {"Completed", "Failed", "Pending"}:
        assert not row.opens, "a Run that does not run holds nothing"
    if row.plain:
        assert facts.phase in {"Completed", "Failed"}
        assert len(row.closes) == 1
        assert CLOSURES[row.closes[0]].ends_run


def test_each_pair_of_action_and_reason_has_one_row() -> None:
    assert len(OUTCOMES) == len(ROWS)


def test_each_word_of_the_api_and_the_core_is_in_the_table() -> None:
    assert set(ACTIONS) == {row.action for row in ROWS} == set(get_args(ActionKind))
    assert set(OPENINGS) == {word for row in ROWS for word in row.opens} == set(get_args(OpenReason))
    closed = {word for row in ROWS for word in row.closes}
    assert set(CLOSURES) == closed | OF_LEASES_WITHOUT_RUN == set(get_args(ClosureReason))
    changes = {reason for reason in Reason if reason.topic == CHANGE}
    assert changes <= {row.reason for row in ROWS}
    assert set(REASONS) == set(Reason)


def test_tables_list_words_in_the_order_of_the_api() -> None:
    """The reference pages and the CRDs list them alike."""
    assert [*OPENINGS] == [*get_args(OpenReason)]
    assert [*CLOSURES] == [*get_args(ClosureReason)]


def test_each_event_is_in_the_table_and_none_is_never_written() -> None:
    of_actions = {name for row in ROWS for name in row.events}
    of_recoveries = {facts.event for facts in OPENINGS.values() if facts.event}
    assert set(EVENTS) == of_actions | of_recoveries | {AT_RISK, NOT_WRITTEN}


def test_each_action_that_ends_a_run_has_one_plain_reason() -> None:
    assert set(PLAIN_ENDS) == outcomes.RUN_ENDS
    assert len(PLAIN_ENDS) == sum(row.plain for row in ROWS)


def test_phases_and_states_are_those_of_the_api() -> None:
    assert {facts.phase for facts in ACTIONS.values()} - {None} <= set(get_args(Phase))
    assert {facts.reservation for facts in ACTIONS.values()} - {None} == set(get_args(ReservationState))


def test_an_unlisted_pair_has_a_row_without_leases() -> None:
    row = outcome_of("Start", Reason.UNREADABLE)
    assert (row.events, row.part, row.opens, row.closes) == (("Admitted",), "binder", (), ())


@pytest.mark.parametrize("row", ROWS, ids=row_name)
def test_events_and_log_lines_follow_the_row(row: Outcome) -> None:
    action = Action(row.action, KEY, T0, Cause(row.reason))
    names = [event.name for event in events_of(action)]
    assert names[: len(row.events)] == ([] if row.action == "Withdraw" else [*row.events])
    assert [part for part, _ in log_lines(World(now=T0), action, [])] == (
        [] if row.action == "Withdraw" else [row.part]
    )


def test_events_read_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        OUTCOMES, ("Grow", Reason.GROWN), Outcome("Grow", Reason.GROWN, reported_as=("Evicted",))
    )
    (event,) = events_of(Action("Grow", KEY, T0, Cause(Reason.GROWN)))
    assert event.name == "Evicted"
