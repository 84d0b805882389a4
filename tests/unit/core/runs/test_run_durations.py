"""Estimates how long a Run lasts from the closed leases of past Runs."""

from itertools import permutations

import msgspec
import pytest

from jobtree.api.kinds.lease import ClosureReason, OpenReason, Role
from jobtree.core.model.gpu_lease import GpuLease
from jobtree.core.runs import run_durations
from jobtree.core.runs.run_durations import WHOLE, RunHistory, SurvivalCurve, size_class

PARTS = 100


def lease(
    number: int, start: int, reason: OpenReason = "Start", gpus: int = 8, role: Role = "Active"
) -> GpuLease:
    return GpuLease(
        name=f"r-uid-{number}",
        run_key=("ns", "r"),
        uid="uid",
        owner="org:a",
        payer=("b", "main"),
        payer_owner="org:a",
        class_="Owned",
        role=role,
        group=0,
        flavor="H100",
        slots=(("n", (1 << gpus) - 1),),
        gpus=gpus,
        start=start,
        rate=1000,
        reason=reason,
    )


Closed = tuple[GpuLease, int, ClosureReason]


def told(*closed: Closed) -> dict[int, list[tuple[int, bool]]]:
    history = RunHistory()
    for one, end, reason in closed:
        history.close(one, end, reason)
    return history.of("org:a")


def test_size_class_ends_at_each_power_of_two() -> None:
    assert [size_class(gpus) for gpus in (1, 2, 3, 4, 5, 8, 9, 1024)] == [0, 1, 2, 2, 3, 3, 4, 10]


def test_admission_lasts_until_its_work_ends_when_its_payers_change() -> None:
    found = told(
        (lease(1, 100), 150, "WindowClosed"),
        (lease(2, 150, "Repay"), 190, "BudgetExhausted"),
        (lease(3, 190, "Demote"), 400, "Completed"),
    )
    assert found == {3: [(300, True)]}


def test_size_of_an_admission_counts_all_leases_except_spares() -> None:
    found = told(
        (lease(1, 0), 10, "Completed"),
        (lease(2, 0), 10, "Completed"),
        (lease(3, 0, role="Spare"), 10, "Completed"),
    )
    assert found == {4: [(10, True)]}


def test_only_the_last_runs_of_a_size_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of another size still count."""
    monkeypatch.setattr(run_durations, "MAX_OBSERVATIONS", 2)
    history = RunHistory()
    for number, (gpus, start, end) in enumerate([(64, 0, 5), (8, 0, 40), (8, 0, 10), (8, 20, 50)]):
        one = msgspec.structs.replace(lease(number, start, gpus=gpus), uid=f"uid-{number}")
        history.close(one, end, "Completed")
        assert history.of("org:a")  # an answer in between does not hide later leases
    assert {size: sorted(seen) for size, seen in history.of("org:a").items()} == {
        6: [(5, True)],
        3: [(30, True), (40, True)],
    }


def test_trimming_changes_no_estimate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The owner has Runs of two sizes, and one that was stopped long ago and may continue."""
    monkeypatch.setattr(run_durations, "MAX_OBSERVATIONS", 3)
    whole, trimmed = RunHistory(), RunHistory()
    stopped = msgspec.structs.replace(lease(1, 0), uid="stopped")
    for history in (whole, trimmed):
        history.close(stopped, 5, "RandomPreempt")
    for number in range(1, 60):
        one = msgspec.structs.replace(lease(number, number), uid=f"u{number:02}", gpus=8 if number % 5 else 2)
        for history in (whole, trimmed):
            history.close(one, 10 * number, "Completed")
        trimmed.trim("org:a")
        known, before = (
            {size: sorted(seen) for size, seen in history.of("org:a").items()} for history in (trimmed, whole)
        )
        assert known == before
        assert len(trimmed.by_owner["org:a"]) <= 2 * (2 * 3 + 1) + 1
    assert "stopped" in trimmed.by_owner["org:a"]
    trimmed.trim("org:nobody")


def test_stopped_run_is_a_censored_observation() -> None:
    found = told((lease(1, 0), 50, "RandomPreempt"), (lease(2, 70), 100, "Failed"))
    assert found == {3: [(50, False), (30, True)]}


def test_history_does_not_depend_on_the_order_of_leases() -> None:
    closed: list[Closed] = [
        (lease(1, 0), 50, "RandomPreempt"),
        (lease(2, 70), 90, "Shrink"),
        (lease(3, 90, "Continue", 4), 120, "Completed"),
    ]
    assert {str(told(*order)) for order in permutations(closed)} == {str({3: [(50, False), (50, True)]})}


def test_dropped_leases_leave_the_history() -> None:
    history = RunHistory()
    history.close(lease(1, 0), 50, "Completed")
    history.forget(50)
    assert history.of("org:a")
    history.forget(51)
    assert history.of("org:a") == {}


@pytest.mark.parametrize(("part", "duration"), [(10, 10), (20, 10), (21, 20), (50, 30), (99, 50), (100, 50)])
def test_new_run_is_expected_to_last_as_long_as_past_runs(part: int, duration: int) -> None:
    curve = SurvivalCurve((10 * number, True) for number in range(1, 6))
    assert curve.has_estimate
    assert curve.duration(0, part, PARTS) == duration


def test_long_running_run_is_compared_with_long_runs_only() -> None:
    curve = SurvivalCurve([(10, True)] * 90 + [(1000, True)] * 10)
    assert curve.duration(0, 50, PARTS) == 10
    assert curve.duration(11, 1, PARTS) == 1000


def test_running_run_counts_as_not_ended() -> None:
    """Of four Runs one ended at 10, and two still ran at 20: so the one that ended at 30 counts for three."""
    curve = SurvivalCurve([(10, True), (20, False), (20, False), (30, True)])
    assert curve.duration(0, 25, PARTS) == 10
    assert curve.duration(0, 26, PARTS) == 30
    assert curve._ended_shares == [WHOLE // 4, WHOLE]


def test_there_is_no_estimate_beyond_the_longest_observation() -> None:
    curve = SurvivalCurve([(10, True)] * 9 + [(500, False)])
    assert curve.duration(0, 90, PARTS) == 10
    assert curve.duration(0, 91, PARTS) is None
    assert curve.duration(500, 1, PARTS) is None


def test_too_few_observations_give_no_estimate() -> None:
    assert not SurvivalCurve([(10, True)] * 4 + [(10, False)] * 100).has_estimate


def test_dropped_spare_is_no_observation() -> None:
    assert told((lease(2, 100, role="Spare"), 150, "DropSpare")) == {}


def test_history_without_archived_leases_is_that_of_a_new_world() -> None:
    """A world that is read from its objects has the same history as one whose leases were archived."""
    closed: list[Closed] = [
        (lease(1, 100, role="Spare"), 120, "DropSpare"),
        (lease(2, 100), 300, "RandomPreempt"),
        (lease(3, 100, gpus=4), 310, "RandomPreempt"),
        (lease(4, 500), 700, "Completed"),
    ]
    for gone in range(len(closed) + 1):
        history = RunHistory()
        for one, end, reason in closed:
            history.close(one, end, reason)
        for one, end, _ in closed[:gone]:
            history.drop(one, end)
        assert history.of("org:a") == told(*closed[gone:])
    history.drop(lease(9, 0), 1)  # of an unknown Run
