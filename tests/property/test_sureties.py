"""What is surely paid is paid, and who can never be paid for finds no date: the exact answers say so too."""

from unittest.mock import patch

from hypothesis import given

from jobtree.core import reserve
from jobtree.core.foresee import Foresight
from jobtree.core.promise import Promise
from jobtree.core.purse import fundable_ever
from jobtree.core.reach import payers_there
from jobtree.core.reserve import funding_then
from jobtree.core.runs import RunState
from jobtree.core.sureties import surely_paid
from jobtree.core.world import World
from tests.property.drive import Drive
from tests.property.examples import examples
from tests.property.scenes import Scene, scenes


def checked(world: World, state: RunState, promise: Promise) -> bool:
    sure = surely_paid(world, state, promise)
    if sure:
        assert not funding_then(world, state, promise, payers_there(world, state, promise))[1]
        with patch.object(reserve, "surely_paid", return_value=False):
            assert reserve.pay_their_parts(world, state, promise)
    return sure


@examples(150)
@given(scenes())
def test_what_is_surely_paid_is_paid_by_the_exact_answer(scene: Scene) -> None:
    with patch.object(reserve, "surely_paid", checked):
        Drive(scene).play()


def looked_for(world: World, state: RunState, size: int) -> bool:
    might = fundable_ever(world, state, size)
    assert might or Foresight(world, state, size, None).look() is None
    return might


@examples(150)
@given(scenes())
def test_who_can_never_be_paid_for_finds_no_date(scene: Scene) -> None:
    with patch.object(reserve, "fundable_ever", looked_for):
        Drive(scene).play()
