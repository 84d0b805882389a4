"""The invariants hold after every step of random histories."""

from hypothesis import given

from tests.property.examples import examples
from tests.property.history_player import HistoryPlayer
from tests.property.invariants import InvariantChecker
from tests.property.random_histories import RandomHistory, random_histories


@examples(400)
@given(random_histories())
def test_invariants_hold_after_every_step(history: RandomHistory) -> None:
    HistoryPlayer(history, after_plan=InvariantChecker()).play()
