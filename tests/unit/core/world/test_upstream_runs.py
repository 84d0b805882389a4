"""Waiting for other Runs (J1): upstreams that run, fail, vanish, come back, or never were."""

from typing import Any

import msgspec
import pytest

from jobtree.api.kinds.run import Follow, Run
from jobtree.api.schema.quantities import HOUR, MINUTE, format_time
from tests.unit.core.build import NAMESPACE, T0, budget, nodes, run
from tests.unit.core.lab import Lab

RICH = budget("org", 10_000)


def after(name: str, *upstreams: str, gpus: int = 8, **follow: Any) -> Run:  # noqa: ANN401  fields of follow
    """A Run that follows others."""
    known = run(name, "org", gpus, after=list(upstreams))
    return msgspec.structs.replace(
        known, spec=msgspec.structs.replace(known.spec, follow=Follow(after=upstreams, **follow))
    )


def lab_with(*runs: Run, count: int = 4) -> Lab:
    lab = Lab(RICH, nodes("nv-a", count))
    lab.submit(*runs)
    return lab


def test_j1_it_waits_and_says_for_whom_and_has_no_reservation() -> None:
    lab = lab_with(run("up", "org", 8), after("down", "up"))
    assert (lab.phase("down"), lab["down"].promise, lab.leases("down")) == ("Waiting", None, [])
    assert [str(why) for why in lab.whys("down")] == ["it waits for up"]


def test_j1_it_starts_at_the_instant_at_which_all_upstreams_are_completed() -> None:
    lab = lab_with(run("a", "org", 8), run("b", "org", 8), after("down", "a", "b"))
    lab.live(HOUR)
    lab.finish("a")
    assert lab.phase("down") == "Waiting"
    lab.live(2 * HOUR)
    lab.finish("b")
    assert (lab.phase("down"), lab["down"].since) == ("Running", T0 + 2 * HOUR)


def test_j1_one_that_was_completed_before_is_not_waited_for() -> None:
    lab = lab_with(run("up", "org", 8))
    lab.finish("up")
    lab.submit(after("down", "up"))
    assert lab.phase("down") == "Running"


def test_j1_those_released_together_queue_by_their_age() -> None:
    lab = lab_with(run("up", "org", 16), count=2)
    lab.live(HOUR)
    for name, at in (("younger", 2), ("older", 1)):
        known = after(name, "up", gpus=16)
        created = format_time(T0 + at)
        meta = msgspec.structs.replace(known.metadata, creation_timestamp=created)
        lab.submit(msgspec.structs.replace(known, metadata=meta))
    lab.finish("up")
    assert (lab["older"].phase, lab.phase("younger")) == ("Running", "Pending")


def test_j1_a_promise_made_while_it_waited_holds_against_it() -> None:
    lab = lab_with(run("up", "org", 16), after("down", "up", gpus=16), count=2)
    lab.submit(run("younger", "org", 16, at=5))
    lab.finish("up")
    assert (lab.phase("down"), lab["younger"].phase) == ("Pending", "Running")


def test_j1_fail_fails_at_once_with_the_upstream() -> None:
    lab = lab_with(run("up", "org", 8), after("down", "up", on_upstream_failure="fail"))
    lab.live(HOUR)
    lab.finish("up", succeeded=False)
    assert (lab.phase("down"), lab.reasons("down")) == ("Failed", ["UpstreamFailed"])
    assert lab["down"].phase_at == T0 + HOUR


def test_j1_wait_fails_after_the_grace_to_the_millisecond() -> None:
    lab = lab_with(run("up", "org", 8), after("down", "up", upstream_failure_grace="10m"))
    lab.finish("up", succeeded=False)
    lab.live(10 * MINUTE - 1)
    assert (lab.phase("down"), lab.reasons("down")) == ("Waiting", ["UpstreamFailed"])
    lab.live(10 * MINUTE)
    assert lab.phase("down") == "Failed"


def test_j1_the_grace_is_half_an_hour_unless_said_otherwise() -> None:
    lab = lab_with(run("up", "org", 8), after("down", "up"))
    lab.finish("up", succeeded=False)
    lab.live(30 * MINUTE - 1)
    assert lab.phase("down") == "Waiting"
    lab.live(30 * MINUTE)
    assert lab.phase("down") == "Failed"


def test_j1_failure_goes_on_down_the_line() -> None:
    lab = lab_with(
        run("a", "org", 8),
        after("b", "a", on_upstream_failure="fail"),
        after("c", "b", on_upstream_failure="fail"),
    )
    lab.finish("a", succeeded=False)
    assert (lab["b"].phase, lab["c"].phase) == ("Failed", "Failed")


def test_j1_an_upstream_submitted_again_within_the_grace_saves_the_waiting_run() -> None:
    lab = lab_with(run("up", "org", 8), after("down", "up"))
    lab.finish("up", succeeded=False)
    lab.live(10 * MINUTE)
    lab.world.drop_run((NAMESPACE, "up"))
    again = run("up", "org", 8, at=10 * MINUTE)
    lab.submit(msgspec.structs.replace(again, metadata=msgspec.structs.replace(again.metadata, uid="up-2")))
    lab.live(2 * HOUR)
    assert (lab["up"].phase, lab["down"].phase) == ("Running", "Waiting")
    lab.finish("up")
    assert lab.phase("down") == "Running"


def test_j1_what_does_not_exist_is_waited_for_and_the_run_says_so() -> None:
    lab = lab_with(after("down", "nobody"))
    lab.live(10 * HOUR)
    assert (lab.phase("down"), lab.reasons("down")) == ("Waiting", ["UpstreamMissing"])
    lab.submit(run("nobody", "org", 8, at=10 * HOUR))
    assert lab.reasons("down") == ["Upstream"]
    lab.finish("nobody")
    assert lab.phase("down") == "Running"


def test_j1_an_upstream_that_is_deleted_while_others_wait_is_missing() -> None:
    lab = lab_with(run("up", "org", 8), after("down", "up"))
    lab.world.drop_run((NAMESPACE, "up"))
    lab.settle()
    assert (lab.phase("down"), lab.reasons("down")) == ("Waiting", ["UpstreamMissing"])


def test_j1_an_upstream_of_another_namespace_is_another_run() -> None:
    up = run("up", "org", 8)
    elsewhere = msgspec.structs.replace(up.metadata, namespace="other")
    lab = lab_with(msgspec.structs.replace(up, metadata=elsewhere), after("down", "up"))
    assert lab.reasons("down") == ["UpstreamMissing"]


def test_j1_a_run_that_waits_again_for_capacity_does_not_wait_for_its_upstream_again() -> None:
    lab = lab_with(run("up", "org", 8), after("down", "up"), count=1)
    lab.finish("up")
    assert lab.phase("down") == "Running"
    lab.world.drop_node("nv-a-00")
    lab.settle()
    assert lab.phase("down") == "Pending"
    lab.world.drop_run((NAMESPACE, "up"))
    lab.put(nodes("nv-a", 1))
    lab.settle()
    assert lab.phase("down") == "Running"


def test_j1_a_waiting_run_may_be_edited_to_follow_somebody_else() -> None:
    lab = lab_with(run("a", "org", 8), run("b", "org", 8), after("down", "a"))
    lab.submit(after("down", "b"))
    lab.finish("a")
    assert lab.phase("down") == "Waiting"
    lab.finish("b")
    assert lab.phase("down") == "Running"


def test_j1_a_waiting_run_that_follows_nobody_any_more_starts() -> None:
    lab = lab_with(run("a", "org", 8), after("down", "a"))
    lab.submit(run("down", "org", 8))
    assert lab.phase("down") == "Running"


@pytest.mark.parametrize("names", [("a", "b"), ("b", "c", "d")])
def test_j1_runs_that_wait_for_each_other_are_found(names: tuple[str, ...]) -> None:
    lab = lab_with(*(after(name, names[number - 1]) for number, name in enumerate(names)))
    assert {name for _, name in lab.world.run_graph.find_cycle()} == set(names)


def test_j1_a_diamond_is_no_circle() -> None:
    lab = lab_with(run("a", "org", 8), after("b", "a"), after("c", "a"), after("d", "b", "c"))
    assert lab.world.run_graph.find_cycle() == []
