"""Simulated weeks: whatever happens in them, the invariants hold and no Run is lost."""

import pytest

from tests.soak.__main__ import wrong_with

WEEKS = 200
AT_A_TIME = 10


@pytest.mark.parametrize("first", range(0, WEEKS, AT_A_TIME))
def test_nothing_goes_wrong_in_simulated_weeks(first: int) -> None:
    for seed in range(first, first + AT_A_TIME):
        wrong = wrong_with(seed)
        assert wrong is None, wrong
