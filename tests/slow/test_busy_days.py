"""Replays of whole days under Jobtree; tests/unit/simulation replays a few hours."""

from pathlib import Path

import pytest

from jobtree.simulation.replay.saved_replay import run
from jobtree.simulation.schedulers.jobtree_scheduler import JobtreeScheduler
from jobtree.simulation.schedulers.scheduler_names import POLICIES
from tests.unit.simulation.replay.test_saved_replay import check_every_instant, check_resumed
from tests.unit.simulation.schedulers.test_jobtree_scheduler import (
    check_counts,
    check_ends_agree,
    check_nothing_is_left,
)
from tests.unit.simulation.small_replays import busy_day


@pytest.mark.parametrize("seed", range(3))
def test_replay_ends_jobs_when_the_simulated_cluster_does(seed: int) -> None:
    check_ends_agree(busy_day(seed))


@pytest.mark.parametrize("seed", range(3))
def test_promises_and_stops_are_counted(seed: int) -> None:
    simulation = JobtreeScheduler(busy_day(seed))
    assert run(simulation)
    check_counts(simulation)


@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_left_of_jobs_that_ended(seed: int) -> None:
    check_nothing_is_left(JobtreeScheduler(busy_day(seed)))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("after", [1, 40])
def test_interrupted_replay_continues_to_the_same_report(tmp_path: Path, policy: str, after: int) -> None:
    check_resumed(busy_day(1), policy, after, tmp_path / "replay")


def test_replay_can_be_saved_at_any_instant(tmp_path: Path) -> None:
    check_every_instant(busy_day(1), tmp_path / "replay")
