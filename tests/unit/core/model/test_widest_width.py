"""A Run of a million widths is placed with a few tries (H2)."""

import pytest

from jobtree.core.model.widest_width import TRIED_IN_ORDER, widest_width

MILLION = range(1_000_000, 0, -1)
MOST_TRIES = TRIED_IN_ORDER + 25


@pytest.mark.parametrize("limit", [0, 1, 2, 31_337, 999_900, 999_995, 1_000_000])
def test_widest_width_of_a_million_is_found_in_few_tries(limit: int) -> None:
    """H2: what a Run costs does not grow with the number of its widths."""
    tried: list[int] = []

    def fits(width: int) -> bool:
        tried.append(width)
        return width <= limit

    assert widest_width(MILLION, fits) == (limit or None)
    assert len(tried) <= MOST_TRIES


def test_first_widths_are_tried_one_after_the_other() -> None:
    assert widest_width(range(20, 0, -1), {14, 11, 3}.__contains__) == 14


def test_no_width_fits_where_there_is_none() -> None:
    assert widest_width(range(0), lambda _: True) is None
