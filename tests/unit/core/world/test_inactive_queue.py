"""A pass skips inactive Runs: the tests record which Runs it considers and which it tries to start.

Property tests check the other direction: no Run that could start is skipped.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import msgspec
import pytest

from jobtree.api.schema.quantities import HOUR, SECOND
from jobtree.core.operations.promise_changes import find_date
from jobtree.core.planning import admission, planning_pass as planning
from jobtree.core.planning.admission import admit
from jobtree.core.planning.admission_prefilter import AdmissionPrefilter
from jobtree.core.runs.run_state import RunState
from tests.unit.core.build import H100, budget, nodes, run, tree
from tests.unit.core.lab import Lab

A100 = "A100-40GB"


class RecordedRuns:
    """Names of the Runs that passes considered, and of those that they tried to start."""

    def __init__(self) -> None:
        self.considered: list[str] = []
        self.tried: list[str] = []


@contextmanager
def recorded() -> Iterator[RecordedRuns]:
    runs, is_certainly_refused = RecordedRuns(), AdmissionPrefilter.is_certainly_refused

    def record_considered(prefilter: AdmissionPrefilter, state: RunState) -> bool:
        runs.considered.append(state.key[1])
        return is_certainly_refused(prefilter, state)

    def record_tried(trial: object, state: RunState, hints: object) -> object:
        runs.tried.append(state.key[1])
        return admit(trial, state, hints)  # type: ignore[arg-type]

    with (
        patch.object(AdmissionPrefilter, "is_certainly_refused", record_considered),
        patch.object(planning, "admit", record_tried),
    ):
        yield runs


def crowd(count: int, gpus: int = 16, owner: str = "org:b") -> Lab:
    """Four full nodes, whose Runs all have a known end, and so many waiting Runs with dated promises."""
    lab = Lab(nodes("nv-a", 4), budget("org"), budget("org:a", 32), budget("org:b", 64))
    lab.submit(*(run(f"r{number}", "org:a", 8, max_duration=f"{10 + number}h") for number in range(4)))
    waiting = (run(f"w{number}", owner, gpus, at=SECOND, max_duration="1h") for number in range(count))
    lab.advance(SECOND)
    lab.submit(*waiting)
    assert all(lab.promise(f"w{number}").at for number in range(count))
    lab.advance(HOUR)
    return lab


@pytest.mark.parametrize("count", [5, 40])
def test_pass_considers_no_inactive_run_when_too_few_gpus_are_freed(count: int) -> None:
    lab = crowd(count)
    with recorded() as runs:
        lab.finish("r3")
    assert runs.considered == []


@pytest.mark.parametrize("count", [5, 40])
def test_pass_considers_no_inactive_run_when_its_payers_have_no_budget(count: int) -> None:
    """The whole budget of org:c is in use, and org:c has no family."""
    lab = Lab(nodes("nv-a", 4), budget("org:a", 24), budget("org:c", 8))
    lab.submit(*(run(f"r{number}", "org:a", 8, max_duration=f"{10 + number}h") for number in range(3)))
    lab.submit(run("own", "org:c", 8, max_duration="20h"))
    lab.submit(*(run(f"w{number}", "org:c", 8, max_duration="1h") for number in range(count)))
    lab.advance(HOUR)
    with recorded() as runs:
        lab.finish("r2")
    assert runs.considered == []


@pytest.mark.parametrize("count", [5, 40])
def test_pass_considers_only_the_first_run_without_a_date_until_enough_budget_is_free(count: int) -> None:
    """The Runs of both teams are open-ended, and the teams have no family."""
    lab = Lab(nodes("nv-a", 4), budget("org:a", 16), budget("org:c", 16))
    lab.submit(*(run(f"{team}{number}", f"org:{team}", 8) for team in "ac" for number in range(2)))
    lab.submit(*(run(f"w{number}", "org:c", 16) for number in range(count)))
    assert not any(lab.promise(f"w{number}").at for number in range(count))
    lab.advance(HOUR)
    for ended in ("a0", "c0"):
        with recorded() as runs:
            lab.finish(ended)
        assert set(runs.considered) == {"w0"}
    lab.finish("c1")
    assert lab.phase("w0") == "Running"


def test_pass_considers_each_stage_without_a_date_when_trees_have_quotas() -> None:
    """The free part of a quota differs from tree to tree, so one refusal says nothing about other stages."""
    lab = Lab(nodes("nv-a", 2), budget("org:c", 16))
    lab.submit(*(run(f"c{number}", "org:c", 8) for number in range(2)))
    stages = [{"name": "s", "resources": {"gpuType": H100, "totalGPUs": 16}}]
    lab.submit(*(tree(f"t{number}", "org:c", stages, quota={"maxGPUs": 16}) for number in range(3)))
    lab.advance(HOUR)
    with recorded() as runs:
        lab.finish("c0")
    assert set(runs.considered) == {"t0-s", "t1-s", "t2-s"}


def test_pass_considers_the_inactive_runs_that_need_no_more_gpus_than_were_freed() -> None:
    lab = crowd(30)
    lab.submit(run("small", "org:b", 8, at=HOUR, max_duration="1h"))
    with recorded() as runs:
        lab.finish("r3")
    assert set(runs.considered) == {"small"}
    assert lab.phase("small") == "Running"


def test_pass_considers_no_inactive_run_when_gpus_of_another_flavor_are_freed() -> None:
    lab = crowd(30)
    lab.put(nodes("nv-z", 1, flavor=A100), budget("org:z", {"name": "z", "flavor": A100, "concurrency": 8}))
    lab.submit(run("other", "org:z", 8, flavor=A100))
    with recorded() as runs:
        lab.finish("other")
    assert runs.considered == []


def test_pass_considers_only_the_edited_run_among_inactive_ones() -> None:
    lab = crowd(30)
    with recorded() as runs:
        lab.submit(run("w9", "org:b", 24, at=SECOND, max_duration="2h"))
    assert set(runs.considered) == {"w9"}


def test_pass_considers_no_inactive_run_when_a_node_fails_or_is_healed_elsewhere() -> None:
    """R5: the promises in its domain are checked, and no Run could start on a node that is in use."""
    lab = crowd(30)
    (spare,) = nodes("nv-b", 1)
    lab.put([spare], budget("org:z", 8))
    lab.submit(run("other", "org:z", 8, max_duration="50h"))
    with recorded() as runs:
        lab.put(msgspec.structs.replace(spare, failed=True))
        lab.settle()
    assert set(runs.considered) == {"other"}
    with recorded() as runs:
        lab.put(spare)
        lab.settle()
    assert set(runs.considered) == {"other"}
    assert lab.phase("other") == "Running"


def test_pass_considers_no_inactive_run_when_the_budget_of_a_stranger_is_edited() -> None:
    lab = crowd(30)
    lab.put(budget("elsewhere", 8))
    lab.settle()
    with recorded() as runs:
        lab.put(budget("elsewhere", 16))
        lab.settle()
    assert runs.considered == []
    with recorded() as runs:
        lab.put(budget("org:b", 56))
        lab.settle()
    assert len(set(runs.considered)) == 30


def test_only_the_first_of_many_alike_runs_searches_a_date() -> None:
    lab = Lab(nodes("nv-a", 2), budget("a", 64))
    lab.submit(run("first", "a", 8))
    # no fleet can hold these Runs
    lab.submit(*(run(f"w{number:02}", "a", 32, at=number + 1) for number in range(20)))
    assert {lab.promised_at(f"w{number:02}") for number in range(20)} == {None}
    with patch.object(admission, "find_date", wraps=find_date) as searches:
        lab.finish("first")
    assert searches.call_count == 1


def test_no_run_searches_a_date_when_its_payers_will_never_have_enough_budget() -> None:
    lab = Lab(nodes("nv-a", 4), budget("a", 16))
    lab.submit(run("first", "a", 8), run("second", "a", 8))
    lab.submit(*(run(f"w{number:02}", "a", 8, at=number + 1) for number in range(20)))
    assert {lab.promised_at(f"w{number:02}") for number in range(20)} == {None}
    with patch.object(admission, "find_date", wraps=find_date) as searches:
        lab.finish("first")
    assert lab["w00"].phase == "Running"
    assert searches.call_count == 0
