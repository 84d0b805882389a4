"""A plan is a pure function of the world: it changes nothing, and the order of arrival does not matter."""

from random import Random

from hypothesis import given

from tests.property.examples import examples
from tests.property.history_player import HistoryPlayer
from tests.property.purity import (
    assert_order_of_arrival_changes_nothing,
    assert_plan_changes_nothing,
    assert_world_follows_from_objects,
)
from tests.property.random_histories import SEEDS, WAITS, RandomHistory, random_histories


@examples(200)
@given(random_histories())
def test_plan_leaves_the_world_unchanged_and_is_repeatable(history: RandomHistory) -> None:
    HistoryPlayer(history, before_plan=assert_plan_changes_nothing).play()


@examples(200)
@given(random_histories())
def test_world_equals_one_that_reads_only_its_objects(history: RandomHistory) -> None:
    player = HistoryPlayer(history)
    player.play()
    assert_world_follows_from_objects(player)


@examples(200)
@given(random_histories(), SEEDS)
def test_plan_does_not_depend_on_the_order_of_arrival(history: RandomHistory, seed: int) -> None:
    player = HistoryPlayer(history)
    player.play()
    dice = Random(seed)
    player.advance_unplanned(dice.choice(WAITS))  # what is due by then is planned late
    assert_order_of_arrival_changes_nothing(player, dice, dice)
