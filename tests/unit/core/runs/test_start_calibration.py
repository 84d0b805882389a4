"""Outcomes of expected starts adjust the next estimates."""

import pytest

from jobtree.api.schema.quantities import HOUR, MINUTE
from jobtree.core.runs import start_calibration as module
from jobtree.core.runs.start_calibration import (
    MAX_LEVEL,
    FirstEstimate,
    QuantileTracker,
    StartCalibration,
    StartEstimate,
)

PATHS = [number * HOUR for number in range(1, 24)]
LATEST = 1 << 60


def key(number: int) -> tuple[str, str]:
    return ("default", f"r{number}")


class EstimatedRuns:
    """Runs that get an estimate one after another, a day apart, from forecasts with the same sample paths."""

    def __init__(self) -> None:
        self.calibration = StartCalibration()
        self.now = 0
        self.count = 0

    def ask(self, latest: int = LATEST) -> StartEstimate:
        return self.calibration.calibrated(self.now, [self.now + at for at in PATHS], latest)

    def estimate_next(self) -> tuple[str, str]:
        found, self.count = self.ask(), self.count + 1
        first = FirstEstimate(self.now, found.p50, found.p90, found.mean)
        self.calibration.record_estimate(key(self.count), key(self.count), first)
        return key(self.count)

    def start_after(self, *waits: int) -> StartEstimate:
        """Gives each Run an estimate and its start after that wait; returns the estimate of the next Run."""
        for wait in waits:
            run = self.estimate_next()
            self.calibration.record_start(run, self.now + wait)
            self.now += 24 * HOUR
        return self.ask()


def test_first_estimate_is_that_of_the_sample_paths() -> None:
    expected = EstimatedRuns().ask()
    assert (expected.p50, expected.p90, expected.mean) == (10 * HOUR, 21 * HOUR, 12 * HOUR)


def test_estimate_lies_between_now_and_the_promise() -> None:
    runs = EstimatedRuns()
    assert runs.ask(latest=5 * HOUR)[:2] == (5 * HOUR, 5 * HOUR)
    early = runs.start_after(*[0] * 100)
    assert (early.p50, early.p90) == (runs.now, runs.now)


def test_early_starts_make_the_next_estimate_earlier_and_late_ones_later() -> None:
    early, late = EstimatedRuns(), EstimatedRuns()
    found = early.start_after(*[6 * HOUR] * 20)
    assert found.p50 - early.now <= 6 * HOUR
    assert found.p90 - early.now < 21 * HOUR
    found = late.start_after(*[23 * HOUR] * 20)
    assert found.p50 - late.now > 12 * HOUR
    assert found.p90 - late.now > 21 * HOUR


def test_true_waits_are_scaled_by_the_mean_of_their_forecast() -> None:
    """Starts came after half of the mean: a forecast ten times as long is halved as well."""
    runs = EstimatedRuns()
    runs.start_after(*[6 * HOUR] * 60)
    waits = [10 * at for at in PATHS]
    found = runs.calibration.calibrated(runs.now, [runs.now + at for at in waits], LATEST)
    assert 0 < found.p50 - runs.now <= 60 * HOUR


def test_start_that_is_undone_at_its_instant_does_not_count() -> None:
    runs, other = EstimatedRuns(), EstimatedRuns()
    for one in (runs, other):
        one.estimate_next()
    runs.calibration.record_start(key(1), HOUR)
    assert runs.calibration.of(key(1)) == FirstEstimate(0, 10 * HOUR, 21 * HOUR, 12 * HOUR, HOUR)
    runs.calibration.undo_start(key(1), HOUR)
    runs.now = other.now = 2 * HOUR
    assert runs.ask() == other.ask()
    runs.calibration.record_start(key(1), 3 * HOUR)
    runs.calibration.undo_start(key(1), 4 * HOUR)  # it ran for an hour, so the start counts
    first = runs.calibration.of(key(1))
    assert first is not None
    assert first.start == 3 * HOUR


def test_run_that_waits_beyond_its_p50_counts_at_once() -> None:
    runs, other = EstimatedRuns(), EstimatedRuns()
    for _ in range(10):
        runs.estimate_next()
    runs.now = other.now = 11 * HOUR
    assert runs.ask().p50 > other.ask().p50
    for number in range(1, 11):
        runs.calibration.record_start(key(number), 11 * HOUR)
    runs.now = other.now = 12 * HOUR
    assert runs.ask().p50 > other.ask().p50  # one miss counts once, and stays


def test_deleted_run_without_a_start_does_not_count() -> None:
    runs, other = EstimatedRuns(), EstimatedRuns()
    run = runs.estimate_next()
    runs.calibration.drop_run(run)
    runs.now = other.now = 48 * HOUR
    assert runs.ask() == other.ask()
    assert runs.calibration.of(run) is None


def test_only_the_first_estimate_of_a_run_counts() -> None:
    runs = EstimatedRuns()
    run = runs.estimate_next()
    runs.calibration.record_estimate(run, ("default", "again"), FirstEstimate(1, 2, 3, 4))
    assert runs.calibration.of(("default", "again")) is None


def test_calibration_is_the_same_after_it_is_read_again() -> None:
    runs = EstimatedRuns()
    runs.start_after(*[HOUR, 30 * HOUR, 7 * HOUR, 12 * HOUR] * 10)
    waiting = runs.estimate_next()
    first = [(key(number), runs.calibration.of(key(number))) for number in range(runs.count, 0, -1)]
    runs.now += 30 * HOUR
    reloaded = EstimatedRuns()
    reloaded.now = runs.now
    for name, one in first:
        assert one is not None
        reloaded.calibration.load_estimate(name, name, one)
        reloaded.calibration.load_estimate(name, name, one)  # loaded twice, it counts once
    assert reloaded.ask() == runs.ask()
    assert reloaded.calibration.of(waiting) == runs.calibration.of(waiting)


def test_old_true_waits_are_dropped_and_misses_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITS", 10)
    runs, other = EstimatedRuns(), EstimatedRuns()
    runs.start_after(*[30 * HOUR] * 10, *[12 * HOUR] * 10)
    other.start_after(*[12 * HOUR] * 10)
    assert runs.calibration.of(key(1)) is None
    assert other.ask().p90 - other.now < runs.ask().p90 - runs.now < 23 * HOUR


def test_miss_is_compensated_after_many_estimates() -> None:
    """Half of the starts came in time: the next estimate is the first one again."""
    aim = QuantileTracker(500, 400)
    for came in [*[False] * 50, *[True, False] * 150, *[True] * 50]:
        aim.record_outcome(in_time=came)
    assert aim.level == 400


def test_late_starts_of_one_burst_delay_the_next_estimate_within_bounds() -> None:
    aim = QuantileTracker(500, 500)
    for _ in range(1000):
        aim.record_outcome(in_time=False)
    assert aim.level == MAX_LEVEL
    for _ in range(100):  # as many outcomes are not needed to return
        aim.record_outcome(in_time=True)
    assert aim.level == 500


def test_mean_wait_has_a_lower_bound() -> None:
    """A forecast of no wait that was wrong by an hour says little about a forecast of days."""
    runs = EstimatedRuns()
    for number in range(20):
        found = runs.calibration.calibrated(runs.now, [runs.now] * 23, LATEST)
        runs.calibration.record_estimate(key(number), key(number), FirstEstimate(runs.now, *found))
        runs.calibration.record_start(key(number), runs.now + HOUR)
        runs.now += 24 * HOUR
    assert found.mean - (runs.now - 24 * HOUR) == 15 * MINUTE
    assert runs.calibration.calibrated(runs.now, [runs.now] * 23, LATEST).p90 >= runs.now + HOUR


def test_earlier_estimates_of_a_burst_count_as_passed() -> None:
    runs, other = EstimatedRuns(), EstimatedRuns()
    found = [(runs.ask(), runs.estimate_next())[0] for _ in range(15)]
    assert len({one.p50 for one in found}) == 1
    assert [one.p90 for one in found[:5]] == [found[0].p90] * 5
    for _ in range(10):  # as many as had estimates before the last, except the four that are free
        other.estimate_next()
        other.now += HOUR
    other.now += 24 * HOUR
    assert found[-1].p90 == other.ask().p90 - other.now > found[0].p90
    runs.now += HOUR  # the burst is over
    assert runs.ask().p90 - runs.now == found[0].p90
