"""What Runs are told when their notice begins is what comes of the draw, where promises meet (X9, R12)."""

import pytest

from benchmarks.calibration import Record, play_crowd
from jobtree.api.kinds.policy import Policy
from jobtree.api.schema.quantities import HOUR

CROWDS = 12
KEYS = 6
MOST_DEVIATIONS = 3.5  # of luck: exceeded by chance in one of 2,000 tests, and examples are fixed


@pytest.fixture(name="played", scope="module", params=[2 * HOUR, 0], ids=["peace", "no peace"])
def _played(request: pytest.FixtureRequest) -> Record:
    record = Record()
    for seed in range(CROWDS):
        record.add(play_crowd(seed, KEYS, Policy(peace_ms=request.param)))
    return record


def test_runs_are_stopped_as_often_as_they_were_told(played: Record) -> None:
    assert len(played.told) > 500
    assert abs(played.deviation()) < MOST_DEVIATIONS
    for told, lost, number in played.buckets():
        error = MOST_DEVIATIONS * max(0.02, (told * (1 - told) / number) ** 0.5) + 0.02
        assert abs(lost - told) < error, (told, lost, number)


def test_nobody_is_drawn_without_notice(played: Record) -> None:
    assert played.lotteries > 50
    assert played.untold == 0
