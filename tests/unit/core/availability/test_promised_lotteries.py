"""Promised lotteries are at least ``peace`` apart, for those whom both could draw (R4)."""

import pytest

from jobtree.core.availability.promised_lotteries import PromisedLotteries


@pytest.mark.parametrize(
    ("at", "since"),
    [
        (49, None),
        (50, None),
        (51, 51),
        (99, 99),
        (100, 100),
        (101, 100),
        (149, 100),
        (150, None),
        (160, 160),
    ],
)
def test_nobody_who_could_be_drawn_in_a_lottery_can_be_drawn_within_peace_of_it(
    at: int, since: int | None
) -> None:
    assert PromisedLotteries([100, 200], 50).peace_since(at) == since


def test_without_peace_lotteries_leave_each_other_alone() -> None:
    assert PromisedLotteries([100], 0).peace_since(100) is None


def test_the_answer_changes_at_the_listed_instants_only() -> None:
    lotteries = PromisedLotteries([100, 120, 400], 50)
    drawable = [lotteries.peace_since(at) is None for at in range(500)]
    changes = {at for at in range(1, 500) if drawable[at] != drawable[at - 1]}
    assert changes <= set(lotteries.change_instants())
