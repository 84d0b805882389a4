"""What came of expected starts, and how the next ones are told because of it."""

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

COURSES = [number * HOUR for number in range(1, 24)]
LATEST = 1 << 60


def key(number: int) -> tuple[str, str]:
    return ("default", f"r{number}")


class Book:
    """Runs that are told one after another, a day apart, by forecasts that all give the same courses."""

    def __init__(self) -> None:
        self.experience = StartCalibration()
        self.now = 0
        self.count = 0

    def ask(self, latest: int = LATEST) -> StartEstimate:
        return self.experience.calibrated(self.now, [self.now + at for at in COURSES], latest)

    def tell(self) -> tuple[str, str]:
        found, self.count = self.ask(), self.count + 1
        told = FirstEstimate(self.now, found.p50, found.p90, found.mean)
        self.experience.record_estimate(key(self.count), key(self.count), told)
        return key(self.count)

    def live(self, *waits: int) -> StartEstimate:
        """Each is told, and starts after so long; what the next would be told."""
        for wait in waits:
            run = self.tell()
            self.experience.record_start(run, self.now + wait)
            self.now += 24 * HOUR
        return self.ask()


def test_without_experience_the_courses_tell() -> None:
    expected = Book().ask()
    assert (expected.p50, expected.p90, expected.mean) == (10 * HOUR, 21 * HOUR, 12 * HOUR)


def test_never_before_now_and_never_after_what_is_promised() -> None:
    book = Book()
    assert book.ask(latest=5 * HOUR)[:2] == (5 * HOUR, 5 * HOUR)
    early = book.live(*[0] * 100)
    assert (early.p50, early.p90) == (book.now, book.now)


def test_starts_that_come_early_have_the_next_told_earlier_and_late_ones_later() -> None:
    early, late = Book(), Book()
    found = early.live(*[6 * HOUR] * 20)
    assert found.p50 - early.now <= 6 * HOUR
    assert found.p90 - early.now < 21 * HOUR
    found = late.live(*[23 * HOUR] * 20)
    assert found.p50 - late.now > 12 * HOUR
    assert found.p90 - late.now > 21 * HOUR


def test_true_waits_count_in_proportion_to_what_their_forecast_gave() -> None:
    """Starts came after half of the mean: so will those of a forecast that gives ten times as long."""
    book = Book()
    book.live(*[6 * HOUR] * 60)
    waits = [10 * at for at in COURSES]
    found = book.experience.calibrated(book.now, [book.now + at for at in waits], LATEST)
    assert 0 < found.p50 - book.now <= 60 * HOUR


def test_a_start_that_is_taken_back_at_its_own_instant_is_none() -> None:
    book, other = Book(), Book()
    for one in (book, other):
        one.tell()
    book.experience.record_start(key(1), HOUR)
    assert book.experience.of(key(1)) == FirstEstimate(0, 10 * HOUR, 21 * HOUR, 12 * HOUR, HOUR)
    book.experience.undo_start(key(1), HOUR)
    book.now = other.now = 2 * HOUR
    assert book.ask() == other.ask()
    book.experience.record_start(key(1), 3 * HOUR)
    book.experience.undo_start(key(1), 4 * HOUR)  # it ran for an hour: that was a start
    told = book.experience.of(key(1))
    assert told is not None
    assert told.start == 3 * HOUR


def test_who_still_waits_beyond_its_p50_is_evidence_already() -> None:
    book, other = Book(), Book()
    for _ in range(10):
        book.tell()
    book.now = other.now = 11 * HOUR
    assert book.ask().p50 > other.ask().p50
    for number in range(1, 11):
        book.experience.record_start(key(number), 11 * HOUR)
    book.now = other.now = 12 * HOUR
    assert book.ask().p50 > other.ask().p50  # it has not failed twice, and not been forgotten


def test_a_run_that_leaves_without_a_start_says_nothing() -> None:
    book, other = Book(), Book()
    run = book.tell()
    book.experience.drop_run(run)
    book.now = other.now = 48 * HOUR
    assert book.ask() == other.ask()
    assert book.experience.of(run) is None


def test_what_is_told_later_does_not_count() -> None:
    book = Book()
    run = book.tell()
    book.experience.record_estimate(run, ("default", "again"), FirstEstimate(1, 2, 3, 4))
    assert book.experience.of(("default", "again")) is None


def test_who_reads_it_again_knows_the_same() -> None:
    book = Book()
    book.live(*[HOUR, 30 * HOUR, 7 * HOUR, 12 * HOUR] * 10)
    waiting = book.tell()
    told = [(key(number), book.experience.of(key(number))) for number in range(book.count, 0, -1)]
    book.now += 30 * HOUR
    anew = Book()
    anew.now = book.now
    for name, one in told:
        assert one is not None
        anew.experience.load_estimate(name, name, one)
        anew.experience.load_estimate(name, name, one)  # seen twice, it counts once
    assert anew.ask() == book.ask()
    assert anew.experience.of(waiting) == book.experience.of(waiting)


def test_only_the_last_true_waits_count_but_no_miss_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITS", 10)
    book, other = Book(), Book()
    book.live(*[30 * HOUR] * 10, *[12 * HOUR] * 10)
    other.live(*[12 * HOUR] * 10)
    assert book.experience.of(key(1)) is None
    assert other.ask().p90 - other.now < book.ask().p90 - book.now < 23 * HOUR


def test_a_miss_is_made_up_for_however_many_are_told_in_between() -> None:
    """Half of them came: the next is told what the first was."""
    aim = QuantileTracker(500, 400)
    for came in [*[False] * 50, *[True, False] * 150, *[True] * 50]:
        aim.record_outcome(in_time=came)
    assert aim.level == 400


def test_a_burst_that_shares_one_fate_does_not_have_the_next_told_of_years() -> None:
    aim = QuantileTracker(500, 500)
    for _ in range(1000):
        aim.record_outcome(in_time=False)
    assert aim.level == MAX_LEVEL
    for _ in range(100):  # nor does it take as many to bring it back
        aim.record_outcome(in_time=True)
    assert aim.level == 500


def test_short_waits_are_not_told_too_finely() -> None:
    """A forecast of "at once" that came true an hour later says little about one of days."""
    book = Book()
    for number in range(20):
        found = book.experience.calibrated(book.now, [book.now] * 23, LATEST)
        book.experience.record_estimate(key(number), key(number), FirstEstimate(book.now, *found))
        book.experience.record_start(key(number), book.now + HOUR)
        book.now += 24 * HOUR
    assert found.mean - (book.now - 24 * HOUR) == 15 * MINUTE
    assert book.experience.calibrated(book.now, [book.now] * 23, LATEST).p90 >= book.now + HOUR


def test_in_a_burst_those_before_count_as_if_they_had_been_told_in_vain() -> None:
    book, other = Book(), Book()
    found = [(book.ask(), book.tell())[0] for _ in range(15)]
    assert len({one.p50 for one in found}) == 1
    assert [one.p90 for one in found[:5]] == [found[0].p90] * 5
    for _ in range(10):  # as many as were told before the last, save the usual four
        other.tell()
        other.now += HOUR
    other.now += 24 * HOUR
    assert found[-1].p90 == other.ask().p90 - other.now > found[0].p90
    book.now += HOUR  # the burst is over
    assert book.ask().p90 - book.now == found[0].p90
