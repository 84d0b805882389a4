"""As long as nothing is lost or edited, a promise that was told to somebody never moves later (R5).

Runs come, end and are cancelled, time passes, and whatever is due is planned when it is due.
"""

from hypothesis import example, given

from tests.property.drive import Drive
from tests.property.examples import examples
from tests.property.scenes import WAITS, Scene, Step, scenes

CALM = ("submit",) * 8 + ("advance",) * 4 + ("finish",) * 2 + ("cancel",) + ("tree",) * 2


class CalmDay(Drive):
    def _advance(self, step: Step) -> None:
        world = self.lab.world
        until = self.world_now + step.dice.choice(WAITS)
        while (due := world.timers.next_instant()) is not None and due <= until:
            world.advance_clock(due)
            self.rest()
        world.advance_clock(until)


def no_promise_slips(drive: Drive) -> None:
    promises = [(key, state.promise) for key, state in drive.lab.world.runs.items() if state.promise]
    late = [(key[1], promise.slips) for key, promise in promises if promise.slips]
    assert late == [], drive.story()


def told(seed: int, *steps: tuple[str, int]) -> Scene:
    return Scene(seed, [Step(what, number) for what, number in steps])


PROVISIONAL_ON_ITS_OWN_HOURS = told(6644, ("submit", 23837), ("submit", 28781))
REPAID_WITH_HOURS_OF_ITS_PROMISE = told(20649, ("submit", 322), ("submit", 3368), ("advance", 30975))
MONEY_ELSEWHERE_HIDES_A_RECALL = told(8686, ("submit", 5014), ("submit", 17701), ("submit", 49334))
EACH_PAYER_HAS_ITS_PLACE = told(58510, ("advance", 33194), ("advance", 9226), ("submit", 62605))
THE_WIDEST_STAGE_FIRST = told(26657, ("submit", 53841), ("tree", 29937), ("advance", 27833))
STAGES_ARE_RECLAIMED_TOGETHER = told(53171, ("tree", 53013), ("submit", 58575), ("advance", 30768))
A_SHRUNK_RUN_GOES_ON = told(51188, ("tree", 39133), ("submit", 38865), ("submit", 54599), ("advance", 2809))
MOVED_TO_HOURS_OF_ITS_PROMISE = told(
    8012,
    ("advance", 2642),
    ("tree", 27104),
    ("submit", 3583),
    ("submit", 35992),
    ("submit", 11577),
    ("advance", 46058),
)
A_SPARE_BEFORE_A_PROMISE = told(
    39051,
    ("submit", 46859),
    ("advance", 43709),
    ("advance", 18399),
    ("submit", 47597),
    ("submit", 40597),
    ("submit", 25591),
    ("submit", 532),
    ("advance", 49848),
)
STARTED_THIS_VERY_SECOND = told(
    57125,
    ("tree", 30558),
    ("advance", 21173),
    ("submit", 9856),
    ("submit", 48250),
    ("submit", 20401),
    ("submit", 51931),
    ("cancel", 35749),
)
LEASE_AND_PROMISE_OF_ONE_RUN = told(
    15978,
    ("tree", 36350),
    ("submit", 55739),
    ("submit", 23453),
    ("advance", 32680),
    ("submit", 46192),
    ("submit", 22247),
    ("submit", 39875),
    ("advance", 27723),
    ("tree", 28449),
    ("tree", 15745),
    ("advance", 48126),
)


@examples(100)
@given(scenes(happenings=CALM))
@example(PROVISIONAL_ON_ITS_OWN_HOURS)
@example(REPAID_WITH_HOURS_OF_ITS_PROMISE)
@example(MONEY_ELSEWHERE_HIDES_A_RECALL)
@example(EACH_PAYER_HAS_ITS_PLACE)
@example(THE_WIDEST_STAGE_FIRST)
@example(STAGES_ARE_RECLAIMED_TOGETHER)
@example(A_SHRUNK_RUN_GOES_ON)
@example(MOVED_TO_HOURS_OF_ITS_PROMISE)
@example(A_SPARE_BEFORE_A_PROMISE)
@example(STARTED_THIS_VERY_SECOND)
@example(LEASE_AND_PROMISE_OF_ONE_RUN)
def test_nothing_is_lost_and_no_promise_slips(scene: Scene) -> None:
    CalmDay(scene, after=no_promise_slips).play()
