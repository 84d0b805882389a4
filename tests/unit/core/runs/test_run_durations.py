"""What closed leases tell about how long Runs last, and what follows for one that still runs."""

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


def test_sizes_are_similar_up_to_twice_as_many() -> None:
    assert [size_class(gpus) for gpus in (1, 2, 3, 4, 5, 8, 9, 1024)] == [0, 1, 2, 2, 3, 3, 4, 10]


def test_an_admission_lasts_until_its_work_ends_whoever_paid_meanwhile() -> None:
    found = told(
        (lease(1, 100), 150, "WindowClosed"),
        (lease(2, 150, "Repay"), 190, "BudgetExhausted"),
        (lease(3, 190, "Demote"), 400, "Completed"),
    )
    assert found == {3: [(300, True)]}


def test_all_leases_of_a_start_count_as_its_size_but_spares() -> None:
    found = told(
        (lease(1, 0), 10, "Completed"),
        (lease(2, 0), 10, "Completed"),
        (lease(3, 0, role="Spare"), 10, "Completed"),
    )
    assert found == {4: [(10, True)]}


def test_of_very_many_the_last_ones_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """And those of another size are not crowded out by them."""
    monkeypatch.setattr(run_durations, "MAX_OBSERVATIONS", 2)
    history = RunHistory()
    for number, (gpus, start, end) in enumerate([(64, 0, 5), (8, 0, 40), (8, 0, 10), (8, 20, 50)]):
        one = msgspec.structs.replace(lease(number, start, gpus=gpus), uid=f"uid-{number}")
        history.close(one, end, "Completed")
        assert history.of("org:a")  # asked in between, it still hears of what comes
    assert {size: sorted(seen) for size, seen in history.of("org:a").items()} == {
        6: [(5, True)],
        3: [(30, True), (40, True)],
    }


def test_what_no_longer_counts_can_be_forgotten_and_nothing_is_told_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of two sizes, beside one that was stopped long ago and may yet go on."""
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


def test_what_was_stopped_would_have_gone_on() -> None:
    found = told((lease(1, 0), 50, "RandomPreempt"), (lease(2, 70), 100, "Failed"))
    assert found == {3: [(50, False), (30, True)]}


def test_the_order_in_which_leases_are_told_does_not_matter() -> None:
    closed: list[Closed] = [
        (lease(1, 0), 50, "RandomPreempt"),
        (lease(2, 70), 90, "Shrink"),
        (lease(3, 90, "Continue", 4), 120, "Completed"),
    ]
    assert {str(told(*order)) for order in permutations(closed)} == {str({3: [(50, False), (50, True)]})}


def test_what_the_ledger_has_dropped_is_forgotten() -> None:
    history = RunHistory()
    history.close(lease(1, 0), 50, "Completed")
    history.forget(50)
    assert history.of("org:a")
    history.forget(51)
    assert history.of("org:a") == {}


@pytest.mark.parametrize(("part", "duration"), [(10, 10), (20, 10), (21, 20), (50, 30), (99, 50), (100, 50)])
def test_a_new_run_lasts_as_long_as_others_did(part: int, duration: int) -> None:
    curve = SurvivalCurve((10 * number, True) for number in range(1, 6))
    assert curve.has_estimate
    assert curve.duration(0, part, PARTS) == duration


def test_a_run_that_outlived_the_short_ones_is_compared_with_the_long_ones() -> None:
    curve = SurvivalCurve([(10, True)] * 90 + [(1000, True)] * 10)
    assert curve.duration(0, 50, PARTS) == 10
    assert curve.duration(11, 1, PARTS) == 1000


def test_who_still_runs_counts_as_not_ended() -> None:
    """Of four, one ended at 10; two still ran at 20; so the one at 30 speaks for three."""
    curve = SurvivalCurve([(10, True), (20, False), (20, False), (30, True)])
    assert curve.duration(0, 25, PARTS) == 10
    assert curve.duration(0, 26, PARTS) == 30
    assert curve._ended_shares == [WHOLE // 4, WHOLE]


def test_beyond_all_that_was_seen_there_is_no_answer() -> None:
    curve = SurvivalCurve([(10, True)] * 9 + [(500, False)])
    assert curve.duration(0, 90, PARTS) == 10
    assert curve.duration(0, 91, PARTS) is None
    assert curve.duration(500, 1, PARTS) is None


def test_too_few_say_nothing() -> None:
    assert not SurvivalCurve([(10, True)] * 4 + [(10, False)] * 100).has_estimate


def test_a_spare_that_was_dropped_says_nothing_about_a_run_whose_ranks_go_on() -> None:
    assert told((lease(2, 100, role="Spare"), 150, "DropSpare")) == {}


def test_what_has_left_for_the_archive_is_forgotten_as_if_it_had_never_been_read() -> None:
    """A world that is read anew knows the same as one that saw the leases go."""
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
    history.drop(lease(9, 0), 1)  # of a Run that nobody remembers
