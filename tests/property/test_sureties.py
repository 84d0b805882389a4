"""What is surely paid is paid: the exact answer says so too."""

from unittest.mock import patch

from hypothesis import given

from jobtree.core import reserve
from jobtree.core.promise import Promise
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
