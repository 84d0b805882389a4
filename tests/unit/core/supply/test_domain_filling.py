"""Groups go to as few domains as possible (P4): brute force judges."""

from itertools import combinations
from random import Random

import pytest

from jobtree.core.supply.domain_filling import fewest_fullest_first


def fewest(rooms: list[int], groups: int) -> int:
    """Returns the least number of domains that hold so many groups; 0 if all hold too few."""
    counts = (
        count
        for count in range(1, len(rooms) + 1)
        for some in combinations(rooms, count)
        if sum(some) >= groups
    )
    return next(counts, 0)


def test_no_choice_of_fewer_domains_holds_the_groups() -> None:
    dice = Random(4)
    for _ in range(2_000):
        rooms = [dice.randint(0, 4) for _ in range(dice.randint(0, 5))]
        groups = dice.randint(1, 9)
        chosen = fewest_fullest_first(rooms, groups)
        assert len(set(chosen)) == len(chosen) == fewest(rooms, groups), (rooms, groups, chosen)
        assert not chosen or sum(rooms[position] for position in chosen) >= groups


@pytest.mark.parametrize(
    ("rooms", "groups", "chosen"),
    [
        ([1, 2, 3], 4, [0, 2]),  # the fullest and the only one that completes it
        ([1, 2, 3], 3, [2]),
        ([3, 3], 4, [0, 1]),
        ([1, 1], 4, []),
    ],
)
def test_fullest_domain_is_filled_first(rooms: list[int], groups: int, chosen: list[int]) -> None:
    assert fewest_fullest_first(rooms, groups) == chosen
