"""As long as nothing is lost or edited, no promise moves later (R5).

Runs start, end and are cancelled, time passes, and what is due is planned when it is due.
"""

from hypothesis import given

from tests.property.examples import examples
from tests.property.history_player import HistoryPlayer
from tests.property.invariants import assert_no_promise_slips
from tests.property.random_histories import WAITS, RandomHistory, Step, random_histories

CALM_KINDS = ("submit",) * 8 + ("advance",) * 4 + ("finish",) * 2 + ("cancel",) + ("tree",) * 2


class CalmHistoryPlayer(HistoryPlayer):
    def _advance(self, step: Step) -> None:
        self.live(step.dice.choice(WAITS))


@examples(100)
@given(random_histories(kinds=CALM_KINDS))
def test_promises_do_not_slip_on_a_calm_day(history: RandomHistory) -> None:
    CalmHistoryPlayer(history, after_plan=assert_no_promise_slips).play()
