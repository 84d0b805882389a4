"""A crowd that was once told wrong odds: 24 Runs run and 11 wait (R12, X9)."""

import os
from collections import Counter
from pathlib import Path

import pytest

from jobtree.api.schema.quantities import MINUTE
from jobtree.core import RunKey, reservation_forecast
from jobtree.core.runs.notice import draw_notice_ms
from jobtree.simulation.cluster.simulated_cluster import SimulatedCluster
from jobtree.snapshot.state_file import parse_cluster

REPOSITORY = Path(__file__).parents[2]
PAGES = Path(os.environ.get("JOBTREE_PAGES", REPOSITORY.parent / "shared" / "pages"))

pytestmark = pytest.mark.skipif(not PAGES.exists(), reason="the shared crowd is not on this machine")

Told = dict[RunKey, dict[str, int]]  # by Run and Reservation, in thousandths


@pytest.fixture(name="crowd")
def _crowd() -> SimulatedCluster:
    return parse_cluster((PAGES / "cluster.yaml").read_text(), "the crowd", SimulatedCluster)


def told_in(crowd: SimulatedCluster) -> Told:
    told: Told = {}
    keys = {run.uid: run.key for run in crowd.world.runs.values()}
    for run in crowd.world.runs.values():
        promise = run.promise
        if promise is not None and promise.at is not None:
            for uid, odds in reservation_forecast(crowd.world, run, promise).odds.items():
                told.setdefault(keys[uid], {})[promise.name] = odds
    return told


def test_the_probabilities_of_a_run_are_those_of_the_whole_sequence(crowd: SimulatedCluster) -> None:
    """One Run read 0.402, 1 for certain and 0.107 for three draws in a row."""
    for run_key, odds in told_in(crowd).items():
        assert sum(odds.values()) <= 1000 + len(odds), run_key  # none is told less than 0.001


def test_the_conflict_set_has_everybody_who_could_be_drawn(crowd: SimulatedCluster) -> None:
    """Two Runs with 0.419 in their ``risk[]`` were left out, and lost."""
    told = told_in(crowd)
    for run in crowd.world.runs.values():
        if run.promise is not None and run.promise.at is not None:
            forecast = reservation_forecast(crowd.world, run, run.promise)
            listed = {conflict.key for conflict in forecast.conflict_set()}
            at_risk = {key for key, odds in told.items() if odds.get(run.promise.name, 0) > 1}
            assert at_risk <= listed, run.promise.name


def test_whoever_loses_was_told_its_notice_before(crowd: SimulatedCluster) -> None:
    """One Run was told nothing of the draw of 09:44 until 09:34."""
    began, history = crowd.now, [(crowd.now, told_in(crowd))]
    lost: Counter[RunKey] = Counter()
    for minute in range(5, 6 * 60, 5):
        running = {run.key: run for run in crowd.world.runs.values() if run.phase == "Running"}
        seen = len(crowd.events)
        crowd.advance(began + minute * MINUTE)
        for event in crowd.events[seen:]:
            if event.name == "RandomPreempt":
                notice = draw_notice_ms(crowd.world.policy, running[event.run].checkpoint_ms)
                told = [odds for at, odds in history if at <= event.at - notice]
                assert any(any(odds.get(event.run, {}).values()) for odds in told), event
                lost[event.run] += 1
        history.append((crowd.now, told_in(crowd)))
    assert lost
    assert max(lost.values()) == 1, "peace and immunity: nobody loses twice in six hours"
