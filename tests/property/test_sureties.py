"""What is surely paid is paid, and what bounds refuse is refused: the exact answers say so too."""

from unittest.mock import patch

from hypothesis import given

from benchmarks.replay_speed import crowded
from jobtree.core.availability import start_search
from jobtree.core.availability.payer_placement import payers_in_slice
from jobtree.core.availability.start_search import StartSearch
from jobtree.core.funding.current_funding_lower_bound import is_certainly_funded
from jobtree.core.funding.future_funding import fundable_ever, funding_at
from jobtree.core.funding.future_funding_upper_bound import FutureFundingUpperBound
from jobtree.core.model.promise import Promise
from jobtree.core.operations import promise_changes
from jobtree.core.operations.promise_changes import funding_then
from jobtree.core.planning.promise_repair import runs_by_promise_order
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.world import World
from jobtree.simulation.replay.saved_replay import run
from jobtree.simulation.schedulers.jobtree_scheduler import JobtreeScheduler
from tests.property.drive import Drive
from tests.property.examples import examples
from tests.property.scenes import Scene, scenes


def checked(world: World, state: RunState, promise: Promise) -> bool:
    sure = is_certainly_funded(world, state, promise)
    if sure:
        assert not funding_then(world, state, promise, payers_in_slice(world, state, promise))[1]
        assert promise_changes.payers_can_pay(world, state, promise)
    return sure


@examples(150)
@given(scenes())
def test_what_is_surely_paid_is_paid_by_the_exact_answer(scene: Scene) -> None:
    with patch.object(promise_changes, "is_certainly_funded", checked):
        Drive(scene).play()


def looked_for(world: World, state: RunState, size: int) -> bool:
    might = fundable_ever(world, state, size)
    assert might or StartSearch(world, state, size, None).find() is None
    return might


@examples(150)
@given(scenes())
def test_who_can_never_be_paid_for_finds_no_date(scene: Scene) -> None:
    with patch.object(promise_changes, "fundable_ever", looked_for):
        Drive(scene).play()


class CheckedFunds(FutureFundingUpperBound):
    def __init__(self, world: World, state: RunState, size: int) -> None:
        super().__init__(world, state, size)
        self.asked = (world, state, size)

    def gpus(self, at: int) -> int:
        found, (world, state, size) = super().gpus(at), self.asked
        _, lacking = funding_at(world, state, found + size, size, at, None)
        assert lacking
        return found


@examples(150)
@given(scenes())
def test_nobody_is_paid_more_than_funds_could_have(scene: Scene) -> None:
    with patch.object(start_search, "FutureFundingUpperBound", CheckedFunds):
        Drive(scene).play()


def test_so_say_the_exact_answers_where_a_fleet_is_overloaded() -> None:
    with (
        patch.object(promise_changes, "is_certainly_funded", checked),
        patch.object(promise_changes, "fundable_ever", looked_for),
        patch.object(start_search, "FutureFundingUpperBound", CheckedFunds),
    ):
        assert run(JobtreeScheduler(crowded(500, 256, 150)))


def test_each_payer_that_a_promise_counts_on_has_its_part_whatever_happens() -> None:
    replay = JobtreeScheduler(crowded(300, 128, 150))
    world = replay.world
    while replay.step():
        for state in runs_by_promise_order(world):
            promise = state.promise
            assert promise is not None
            assert promise.at is None or promise_changes.payers_can_pay(world, state, promise), (
                replay.now,
                promise,
            )
