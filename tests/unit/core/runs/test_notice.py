"""How long a Run is immune, when it certainly ends and how much notice it needs (R3, R4, R6)."""

import pytest

from jobtree.api.kinds.policy import Policy
from jobtree.api.schema.quantities import HOUR, MINUTE
from jobtree.core.accounts.envelope_accounts import FOREVER
from jobtree.core.runs.notice import (
    certain_end,
    draw_notice_ms,
    immune_until,
    immunity_ms,
    min_provisional_ms,
)
from jobtree.core.runs.run_state import RunState
from tests.unit.core.build import T0, run

POLICY = Policy(min_runtime_ms=2 * HOUR, min_notice_ms=5 * MINUTE, max_notice_ms=30 * MINUTE)


@pytest.mark.parametrize(("lotteries_lost", "hours"), [(0, 2), (1, 4), (4, 32), (5, 32)])
def test_immunity_doubles_with_each_lottery_lost_up_to_four_times(lotteries_lost: int, hours: int) -> None:
    assert immunity_ms(POLICY, lotteries_lost) == hours * HOUR


def test_immunity_begins_when_the_run_started() -> None:
    state = RunState(run("r", "org:a", 8), T0)
    state.since, state.lotteries_lost = T0, 1
    assert immune_until(POLICY, state, T0 + HOUR) == T0 + 4 * HOUR


def test_immunity_of_a_waiting_run_begins_now() -> None:
    state = RunState(run("r", "org:a", 8), T0)
    assert immune_until(POLICY, state, T0 + HOUR) == T0 + 3 * HOUR


@pytest.mark.parametrize(("checkpoint", "minutes"), [(None, 5), (1, 5), (10, 10), (60, 30)])
def test_draw_notice_is_the_checkpoint_within_the_bounds_of_the_policy(
    checkpoint: int | None, minutes: int
) -> None:
    checkpoint_ms = None if checkpoint is None else checkpoint * MINUTE
    assert draw_notice_ms(POLICY, checkpoint_ms) == minutes * MINUTE


@pytest.mark.parametrize(
    ("checkpoint", "stops", "minutes"),
    [(None, 0, 15), ("1m", 0, 15), ("10m", 0, 20), ("60m", 0, 70), ("10m", 1, 40), ("10m", 9, 320)],
)
def test_provisional_work_needs_its_checkpoint_and_two_restarts_doubled_by_each_stop(
    checkpoint: str | None, stops: int, minutes: int
) -> None:
    state = RunState(run("r", "org:a", 8, checkpoint=checkpoint), T0)
    state.times_stopped = stops
    assert min_provisional_ms(POLICY, state) == minutes * MINUTE


@pytest.mark.parametrize(
    ("known_end", "last_closing", "end"),
    [(None, None, FOREVER), (T0, None, T0), (None, T0, T0), (T0, T0 + 1, T0), (T0 + 1, T0, T0)],
)
def test_a_run_ends_by_its_max_duration_or_with_the_last_window_of_its_payers(
    known_end: int | None, last_closing: int | None, end: int
) -> None:
    assert certain_end(known_end, last_closing) == end
