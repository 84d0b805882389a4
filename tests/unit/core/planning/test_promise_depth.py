"""Of the funded Runs that wait for a flavor, only the first ``promiseDepth`` get a date (R13)."""

import pytest

from jobtree.api.kinds.policy import Policy
from jobtree.api.schema.quantities import HOUR
from jobtree.core.reporting.reservation_codec import promise_from_reservation, reservation_object
from tests.unit.core.build import budget, nodes, run, tree
from tests.unit.core.lab import Lab

NAMES = ("a", "b", "c", "d")


def crowd(depth: int = 2) -> Lab:
    """One node in use for an hour, and four Runs of an hour that wait for it."""
    lab = Lab(nodes("nv-a", 1), budget("org", 8), policy=Policy(promise_depth=depth))
    lab.submit(run("first", "org", 8, max_duration="1h"))
    for number, name in enumerate(NAMES, 1):
        lab.submit(run(name, "org", 8, at=number, max_duration="1h"))
    return lab


def dates(lab: Lab) -> list[int | None]:
    return [promise.at and promise.at - lab.world.timers.now for promise in map(lab.promise, NAMES)]


def test_only_the_first_runs_in_line_have_a_date_and_the_others_hold_nothing() -> None:
    lab = crowd()
    assert dates(lab) == [HOUR, 2 * HOUR, None, None]
    behind = lab.promise("c")
    assert (behind.beyond_depth, behind.domain_gpus, behind.funding) == (True, (), ())
    assert not lab["c"].waits_for_funding


def test_a_run_gets_its_date_when_it_moves_up() -> None:
    lab = crowd()
    lab.finish("first")
    assert lab.phase("a") == "Running"
    assert [promise.at is None for promise in map(lab.promise, NAMES[1:])] == [False, False, True]
    assert not lab.promise("c").beyond_depth
    lab.world.drop_run(("ns", "b"))
    lab.settle()
    assert lab.promised_at("d") is not None


def test_a_run_without_a_date_starts_as_soon_as_it_takes_nothing_from_others() -> None:
    lab = crowd(depth=1)
    lab.submit(run("small", "org", 4, at=9, max_duration="30m"))
    assert lab.promise("small").beyond_depth
    lab.put(budget("org", 12), *nodes("nv-b", 1))
    lab.settle()
    assert lab.phase("small") == "Running"


def test_a_date_that_was_told_is_kept_when_an_older_run_comes_back() -> None:
    lab = crowd(depth=1)
    before = lab.promise("a")
    lab.submit(run("older", "org", 8, at=0, max_duration="1h"))
    assert lab.promised_at("older") is not None
    assert lab.promise("a") == before


def test_a_run_that_nobody_can_pay_for_costs_no_other_its_date() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", 8), policy=Policy(promise_depth=1))
    lab.submit(run("first", "org", 8, max_duration="1h"))
    lab.submit(run("poor", "nobody", 8, at=1), run("next", "org", 8, at=2), run("last", "org", 8, at=3))
    assert (lab.promise("poor").at, lab.promise("poor").beyond_depth) == (None, False)
    assert lab.promised_at("next") == HOUR
    assert lab.promise("last").beyond_depth
    assert lab.world.run_queue.line.place(lab["poor"]) is None
    assert lab.world.run_queue.line.place(lab["last"]) == (2, 2)


def test_each_flavor_has_a_line_of_its_own() -> None:
    lab = crowd(depth=1)
    lab.submit(run("other", "org", 8, at=9, flavor="A100"))
    assert lab.world.run_queue.line.place(lab["b"]) == (2, 4)
    assert not lab.promise("other").beyond_depth


def test_a_larger_depth_gives_dates_at_once() -> None:
    lab = crowd()
    lab.world.set_policy(Policy(promise_depth=4))
    lab.settle()
    assert dates(lab) == [HOUR, 2 * HOUR, 3 * HOUR, 4 * HOUR]


def test_an_edit_of_a_run_behind_the_depth_gives_it_no_date() -> None:
    lab = crowd()
    lab.put(run("d", "org", 4, at=4, max_duration="2h"))
    lab.settle()
    assert (lab.promise("d").beyond_depth, lab.promise("d").width) == (True, 4)


def test_stages_that_start_together_wait_in_line_like_one_run() -> None:
    lab = crowd(depth=2)
    lab.advance(10)  # stages are created now
    half = {"resources": {"gpuType": "H100-80GB", "totalGPUs": 4}, "runtime": {"maxDuration": "1h"}}
    lab.submit(tree("gang", "org", [{"name": "one", **half}, {"name": "two", "with": ["one"], **half}], at=9))
    assert [lab.promise(name).beyond_depth for name in ("gang-one", "gang-two")] == [True, True]
    lab.world.set_policy(Policy(promise_depth=9))
    lab.settle()
    promises = [lab.promise(name) for name in ("gang-one", "gang-two")]
    assert promises[0].at == promises[1].at is not None
    assert not any(promise.beyond_depth for promise in promises)


def test_a_reservation_tells_a_restarted_manager_that_only_the_depth_withholds_the_date() -> None:
    lab = crowd()
    written = reservation_object(lab.world, lab["d"], lab.promise("d"))
    assert (written.spec.earliest_start, written.status.terms and written.status.terms.beyond_depth) == (
        None,
        True,
    )
    assert promise_from_reservation(written, lab["d"]) == lab.promise("d")


@pytest.mark.parametrize("moved", ["first", "a", "b"])
def test_the_line_is_what_a_count_of_all_waiting_runs_says(moved: str) -> None:
    lab = crowd()
    lab.finish(moved) if moved == "first" else lab.world.drop_run(("ns", moved))
    lab.settle()
    waiting = sorted(state.creation_order for state in lab.world.runs.values() if state.waiting)
    for number, order in enumerate(waiting, 1):
        assert lab.world.run_queue.line.place(lab.world.runs[order[1:]]) == (number, len(waiting))
