"""A manager is killed after each write: while it archives, writes many Reservations, or starts a Run."""

from itertools import count
from pathlib import Path

import pytest

from jobtree.manager.planner import reservation_status
from tests.unit.manager.controllers.test_lease_archiver import archive_despite_fault, archives_despite_crash
from tests.unit.manager.planner.test_planning_model import start_counts_after_crash
from tests.unit.manager.planner.test_reservation_status import crashes_after


def test_no_lease_is_lost_or_counted_twice_when_the_manager_dies_after_any_write(tmp_path: Path) -> None:
    crashes = 0
    while archives_despite_crash(tmp_path, crashes + 1):
        crashes += 1
    assert crashes >= 5  # two statuses at least, and three leases


@pytest.mark.parametrize("after", [False, True])
def test_no_lease_is_lost_or_counted_twice_when_any_write_fails(tmp_path: Path, after: bool) -> None:
    for number in range(1, 8):
        archive_despite_fault(tmp_path, number, after=after)


def test_no_promise_is_lost_when_the_manager_dies_after_any_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservation_status, "PER_BUSY_TURN", 1)
    monkeypatch.setattr(reservation_status, "PER_IDLE_TURN", 2)
    assert next(writes for writes in count(1) if not crashes_after(writes)) > 10


def test_start_calibrates_forecasts_when_the_manager_dies_after_any_write() -> None:
    assert next(writes for writes in count(1) if not start_counts_after_crash(writes)) > 5
