"""In simulated weeks the invariants hold after every step, and no Run is lost."""

import pytest

from tests.soak.__main__ import failure_of

WEEKS = 200
AT_A_TIME = 10


@pytest.mark.parametrize("first", range(0, WEEKS, AT_A_TIME))
def test_invariants_hold_in_simulated_weeks(first: int) -> None:
    for seed in range(first, first + AT_A_TIME):
        failure = failure_of(seed)
        assert failure is None, failure
