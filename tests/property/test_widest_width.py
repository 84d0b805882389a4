"""The widest width is found without trying each: plans are those of a planner that tries each (P7, H2)."""

from collections.abc import Callable, Sequence
from random import Random
from unittest.mock import patch

from hypothesis import given

from jobtree.api.kinds.run import Run
from jobtree.core.availability import start_search
from jobtree.core.model.widest_width import widest_width
from jobtree.core.planning import admission
from tests.property import history_player
from tests.property.examples import examples
from tests.property.history_player import HistoryPlayer
from tests.property.random_histories import OWNERS, RandomHistory, random_histories, random_run
from tests.unit.core.build import run


def elastic_run(dice: Random, name: str) -> Run:
    """Returns a random Run; most have far more widths than the fleet has GPUs."""
    if dice.random() < 0.3:
        return random_run(dice, name)
    unit = dice.choice((1, 1, 1, 2, 3))
    least, steps = unit * dice.randint(1, 3), dice.choice((4, 12, 60, 900))
    return run(
        name,
        dice.choice(OWNERS),
        least + unit * steps,
        malleable=(least, least + unit * steps, unit),
        group=dice.choice((None, None, unit)),
        spread=dice.random() < 0.8,
        spares=dice.choice((0, 0, 1)),
        max_duration=dice.choice((None, None, "1h", "3h")),
        checkpoint=dice.choice((None, "10m", "1h")),
        opportunistic=dice.random() < 0.4,
        sponsors=dice.sample(OWNERS, 2),
    )


def widest_width_checked(widths: Sequence[int], fits: Callable[[int], bool]) -> int | None:
    """Finds the widest width as usual, and compares with trying each."""
    in_order = next((width for width in widths if fits(width)), None)
    assert widest_width(widths, fits) == in_order
    return in_order


@examples(150)
@given(random_histories())
def test_widest_width_is_the_one_that_trying_each_finds(history: RandomHistory) -> None:
    with (
        patch.object(history_player, "random_run", elastic_run),
        patch.object(admission, "widest_width", widest_width_checked),
        patch.object(start_search, "widest_width", widest_width_checked),
    ):
        HistoryPlayer(history).play()
