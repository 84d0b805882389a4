"""Bounds on funding agree with the exact computation: what they accept is funded, what they refuse is not."""

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
from jobtree.simulation.replay.saved_replay import run as run_replay
from jobtree.simulation.schedulers.jobtree_scheduler import JobtreeScheduler
from tests.property.examples import examples
from tests.property.history_player import HistoryPlayer
from tests.property.random_histories import RandomHistory, random_histories


def is_certainly_funded_checked(world: World, run: RunState, promise: Promise) -> bool:
    certain = is_certainly_funded(world, run, promise)
    if certain:
        _, lacking = funding_then(world, run, promise, payers_in_slice(world, run, promise))
        assert not lacking
        assert promise_changes.payers_can_pay(world, run, promise)
    return certain


@examples(150)
@given(random_histories())
def test_certainly_funded_promise_is_funded(history: RandomHistory) -> None:
    with patch.object(promise_changes, "is_certainly_funded", is_certainly_funded_checked):
        HistoryPlayer(history).play()


def fundable_ever_checked(world: World, run: RunState, pod_size: int) -> bool:
    fundable = fundable_ever(world, run, pod_size)
    assert fundable or StartSearch(world, run, pod_size, None).find() is None
    return fundable


@examples(150)
@given(random_histories())
def test_run_that_is_never_fundable_finds_no_date(history: RandomHistory) -> None:
    with patch.object(promise_changes, "fundable_ever", fundable_ever_checked):
        HistoryPlayer(history).play()


class CheckedUpperBound(FutureFundingUpperBound):
    def __init__(self, world: World, run: RunState, pod_size: int) -> None:
        super().__init__(world, run, pod_size)
        self.checked_for = (world, run, pod_size)

    def gpus(self, at: int) -> int:
        """Returns the bound, and checks that more GPUs than that cannot be paid."""
        bound, (world, run, pod_size) = super().gpus(at), self.checked_for
        _, lacking = funding_at(world, run, bound + pod_size, pod_size, at, None)
        assert lacking
        return bound


@examples(150)
@given(random_histories())
def test_funding_stays_below_its_upper_bound(history: RandomHistory) -> None:
    with patch.object(start_search, "FutureFundingUpperBound", CheckedUpperBound):
        HistoryPlayer(history).play()


def test_bounds_agree_with_the_exact_funding_on_an_overloaded_fleet() -> None:
    with (
        patch.object(promise_changes, "is_certainly_funded", is_certainly_funded_checked),
        patch.object(promise_changes, "fundable_ever", fundable_ever_checked),
        patch.object(start_search, "FutureFundingUpperBound", CheckedUpperBound),
    ):
        assert run_replay(JobtreeScheduler(crowded(500, 256, 150)))


def test_payers_of_a_promise_can_always_pay_their_shares() -> None:
    """R2: after every step of a replay on an overloaded fleet."""
    replay = JobtreeScheduler(crowded(300, 128, 150))
    world = replay.world
    while replay.step():
        for run in runs_by_promise_order(world):
            promise = run.promise
            assert promise is not None
            assert promise.at is None or promise_changes.payers_can_pay(world, run, promise), (
                replay.now,
                promise,
            )
