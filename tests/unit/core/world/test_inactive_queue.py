"""Who sleeps is not even looked at: counted in Runs that have a turn, whatever the machine does.

That nobody sleeps who could start is a property test's (``test_chances``); here it is that they do sleep.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from benchmarks.replay_speed import crowded
from jobtree.api.schema.quantities import HOUR, SECOND
from jobtree.core.operations.promise_changes import find_date
from jobtree.core.planning import admission, planning_pass as planning
from jobtree.core.planning.admission import admit
from jobtree.core.planning.admission_prefilter import AdmissionPrefilter
from jobtree.core.runs.run_state import RunState
from jobtree.simulation.schedulers.jobtree_scheduler import JobtreeScheduler
from tests.unit.core.build import H100, budget, nodes, run, tree
from tests.unit.core.lab import Lab

A100 = "A100-40GB"


class Turns:
    """Names of the Runs that had a turn, and of those that were asked whether they can start."""

    def __init__(self) -> None:
        self.looked_at: list[str] = []
        self.asked: list[str] = []


@contextmanager
def counted() -> Iterator[Turns]:
    turns, none = Turns(), AdmissionPrefilter.is_certainly_refused

    def look(chances: AdmissionPrefilter, state: RunState) -> bool:
        turns.looked_at.append(state.key[1])
        return none(chances, state)

    def ask(trial: object, state: RunState, help_: object) -> object:
        turns.asked.append(state.key[1])
        return admit(trial, state, help_)  # type: ignore[arg-type]

    with patch.object(AdmissionPrefilter, "is_certainly_refused", look), patch.object(planning, "admit", ask):
        yield turns


def crowd(count: int, gpus: int = 16, owner: str = "org:b") -> Lab:
    """Four nodes that four Runs fill, each certain to end some time; so many wait, each with a promise."""
    lab = Lab(nodes("nv-a", 4), budget("org"), budget("org:a", 32), budget("org:b", 64))
    lab.submit(*(run(f"r{number}", "org:a", 8, max_duration=f"{10 + number}h") for number in range(4)))
    waiting = (run(f"w{number}", owner, gpus, at=SECOND, max_duration="1h") for number in range(count))
    lab.advance(SECOND)
    lab.submit(*waiting)
    assert all(lab.promise(f"w{number}").at for number in range(count))
    lab.advance(HOUR)
    return lab


@pytest.mark.parametrize("count", [5, 40])
def test_too_few_gpus_wake_nobody(count: int) -> None:
    lab = crowd(count)
    with counted() as turns:
        lab.finish("r3")
    assert turns.looked_at == []


@pytest.mark.parametrize("count", [5, 40])
def test_gpus_without_money_for_them_wake_nobody(count: int) -> None:
    """All of org:c's money is in use, and it has no family."""
    lab = Lab(nodes("nv-a", 4), budget("org:a", 24), budget("org:c", 8))
    lab.submit(*(run(f"r{number}", "org:a", 8, max_duration=f"{10 + number}h") for number in range(3)))
    lab.submit(run("own", "org:c", 8, max_duration="20h"))
    lab.submit(*(run(f"w{number}", "org:c", 8, max_duration="1h") for number in range(count)))
    lab.advance(HOUR)
    with counted() as turns:
        lab.finish("r2")
    assert turns.looked_at == []


@pytest.mark.parametrize("count", [5, 40])
def test_of_those_without_a_date_only_the_first_is_asked_until_money_of_their_own_comes_back(
    count: int,
) -> None:
    """Nobody knows when the Runs of either team will end, and they have no family."""
    lab = Lab(nodes("nv-a", 4), budget("org:a", 16), budget("org:c", 16))
    lab.submit(*(run(f"{team}{number}", f"org:{team}", 8) for team in "ac" for number in range(2)))
    lab.submit(*(run(f"w{number}", "org:c", 16) for number in range(count)))
    assert not any(lab.promise(f"w{number}").at for number in range(count))
    lab.advance(HOUR)
    for ended in ("a0", "c0"):
        with counted() as turns:
            lab.finish(ended)
        assert set(turns.looked_at) == {"w0"}
    lab.finish("c1")
    assert lab.phase("w0") == "Running"


def test_stages_under_a_quota_are_asked_each_by_itself() -> None:
    """What their tree may still use decides, too: one of them tells nothing of the others."""
    lab = Lab(nodes("nv-a", 2), budget("org:c", 16))
    lab.submit(*(run(f"c{number}", "org:c", 8) for number in range(2)))
    stages = [{"name": "s", "resources": {"gpuType": H100, "totalGPUs": 16}}]
    lab.submit(*(tree(f"t{number}", "org:c", stages, quota={"maxGPUs": 16}) for number in range(3)))
    lab.advance(HOUR)
    with counted() as turns:
        lab.finish("c0")
    assert set(turns.looked_at) == {"t0-s", "t1-s", "t2-s"}


def test_who_needs_no_more_than_came_free_is_asked() -> None:
    lab = crowd(30)
    lab.submit(run("small", "org:b", 8, at=HOUR, max_duration="1h"))
    with counted() as turns:
        lab.finish("r3")
    assert set(turns.looked_at) == {"small"}
    assert lab.phase("small") == "Running"


def test_what_another_kind_of_gpu_frees_wakes_nobody() -> None:
    lab = crowd(30)
    lab.put(nodes("nv-z", 1, flavor=A100), budget("org:z", {"name": "z", "flavor": A100, "concurrency": 8}))
    lab.submit(run("other", "org:z", 8, flavor=A100))
    with counted() as turns:
        lab.finish("other")
    assert turns.looked_at == []


def test_a_run_that_changed_is_asked_and_the_others_sleep_on() -> None:
    lab = crowd(30)
    with counted() as turns:
        lab.submit(run("w9", "org:b", 24, at=SECOND, max_duration="2h"))
    assert set(turns.looked_at) == {"w9"}


def test_four_times_as_many_who_wait_are_not_asked_four_times_as_often() -> None:
    """On a fleet at three times its load the queue grows and grows; who is asked must not grow with it."""
    replay = JobtreeScheduler(crowded(200, 64, 400))
    asked = []
    for waiting in (10, 40):
        while len(replay.world.queue) < waiting:
            assert replay.step()
        with counted() as turns:
            for _ in range(40):
                replay.step()
        asked.append(len(turns.asked))
    few, many = asked
    assert many <= 2 * few, f"{few} were asked, then {many}"


def test_of_many_alike_without_a_date_only_the_first_looks_for_one() -> None:
    lab = Lab(nodes("nv-a", 2), budget("a", 64))
    lab.submit(run("first", "a", 8))
    lab.submit(*(run(f"w{number:02}", "a", 32, at=number + 1) for number in range(20)))  # no fleet holds it
    assert {lab.promised_at(f"w{number:02}") for number in range(20)} == {None}
    with patch.object(admission, "find_date", wraps=find_date) as looks:
        lab.finish("first")
    assert looks.call_count == 1


def test_where_there_will_never_be_enough_money_nobody_looks_for_a_date() -> None:
    lab = Lab(nodes("nv-a", 4), budget("a", 16))
    lab.submit(run("first", "a", 8), run("second", "a", 8))
    lab.submit(*(run(f"w{number:02}", "a", 8, at=number + 1) for number in range(20)))
    assert {lab.promised_at(f"w{number:02}") for number in range(20)} == {None}
    with patch.object(admission, "find_date", wraps=find_date) as looks:
        lab.finish("first")
    assert lab["w00"].phase == "Running"
    assert looks.call_count == 0
