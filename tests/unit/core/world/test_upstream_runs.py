"""Waiting for other Runs (J1): upstreams that run, complete, fail, are deleted, come back or never exist."""

from typing import Any

import msgspec
import pytest

from jobtree.api.kinds.run import Follow, Run
from jobtree.api.schema.quantities import HOUR, MINUTE, format_time
from tests.unit.core.build import NAMESPACE, T0, budget, nodes, run
from tests.unit.core.lab import Lab

RICH = budget("org", 10_000)


def after(name: str, *upstreams: str, gpus: int = 8, **follow: Any) -> Run:  # noqa: ANN401  fields of follow
    """Returns a Run that follows others."""
    follower = run(name, "org", gpus, after=list(upstreams))
    return msgspec.structs.replace(
        follower, spec=msgspec.structs.replace(follower.spec, follow=Follow(after=upstreams, **follow))
    )


def lab_with(*runs: Run, count: int = 4) -> Lab:
    lab = Lab(RICH, nodes("nv-a", count))
    lab.submit(*runs)
    return lab


def test_run_waits_for_its_upstream_without_a_promise_and_names_it() -> None:
    lab = lab_with(run("up", "org", 8), after("down", "up"))
    assert (lab.phase("down"), lab["down"].promise, lab.leases("down")) == ("Waiting", None, [])
    assert [str(cause) for cause in lab.whys("down")] == ["it waits for up"]


def test_run_starts_at_the_instant_at_which_all_upstreams_are_completed() -> None:
    lab = lab_with(run("a", "org", 8), run("b", "org", 8), after("down", "a", "b"))
    lab.live(HOUR)
    lab.finish("a")
    assert lab.phase("down") == "Waiting"
    lab.live(2 * HOUR)
    lab.finish("b")
    assert (lab.phase("down"), lab["down"].since) == ("Running", T0 + 2 * HOUR)


def test_run_does_not_wait_when_its_upstream_is_completed_already() -> None:
    lab = lab_with(run("up", "org", 8))
    lab.finish("up")
    lab.submit(after("down", "up"))
    assert lab.phase("down") == "Running"


def test_runs_released_together_start_in_creation_order() -> None:
    lab = lab_with(run("up", "org", 16), count=2)
    lab.live(HOUR)
    for name, at in (("younger", 2), ("older", 1)):
        follower = after(name, "up", gpus=16)
        created = format_time(T0 + at)
        metadata = msgspec.structs.replace(follower.metadata, creation_timestamp=created)
        lab.submit(msgspec.structs.replace(follower, metadata=metadata))
    lab.finish("up")
    assert (lab["older"].phase, lab.phase("younger")) == ("Running", "Pending")


def test_promise_made_while_a_run_waited_holds_against_it() -> None:
    lab = lab_with(run("up", "org", 16), after("down", "up", gpus=16), count=2)
    lab.submit(run("younger", "org", 16, at=5))
    lab.finish("up")
    assert (lab.phase("down"), lab["younger"].phase) == ("Pending", "Running")


def test_run_fails_at_once_when_its_upstream_failure_policy_is_fail() -> None:
    lab = lab_with(run("up", "org", 8), after("down", "up", on_upstream_failure="fail"))
    lab.live(HOUR)
    lab.finish("up", succeeded=False)
    assert (lab.phase("down"), lab.reasons("down")) == ("Failed", ["UpstreamFailed"])
    assert lab["down"].phase_at == T0 + HOUR


def test_waiting_run_fails_exactly_at_the_end_of_the_grace() -> None:
    lab = lab_with(run("up", "org", 8), after("down", "up", upstream_failure_grace="10m"))
    lab.finish("up", succeeded=False)
    lab.live(10 * MINUTE - 1)
    assert (lab.phase("down"), lab.reasons("down")) == ("Waiting", ["UpstreamFailed"])
    lab.live(10 * MINUTE)
    assert lab.phase("down") == "Failed"


def test_waiting_run_fails_after_half_an_hour_by_default() -> None:
    lab = lab_with(run("up", "org", 8), after("down", "up"))
    lab.finish("up", succeeded=False)
    lab.live(30 * MINUTE - 1)
    assert lab.phase("down") == "Waiting"
    lab.live(30 * MINUTE)
    assert lab.phase("down") == "Failed"


def test_failure_fails_a_chain_of_runs() -> None:
    lab = lab_with(
        run("a", "org", 8),
        after("b", "a", on_upstream_failure="fail"),
        after("c", "b", on_upstream_failure="fail"),
    )
    lab.finish("a", succeeded=False)
    assert (lab["b"].phase, lab["c"].phase) == ("Failed", "Failed")


def test_waiting_run_goes_on_when_its_upstream_is_submitted_again_within_the_grace() -> None:
    lab = lab_with(run("up", "org", 8), after("down", "up"))
    lab.finish("up", succeeded=False)
    lab.live(10 * MINUTE)
    lab.world.drop_run((NAMESPACE, "up"))
    successor = run("up", "org", 8, at=10 * MINUTE)
    metadata = msgspec.structs.replace(successor.metadata, uid="up-2")
    lab.submit(msgspec.structs.replace(successor, metadata=metadata))
    lab.live(2 * HOUR)
    assert (lab["up"].phase, lab["down"].phase) == ("Running", "Waiting")
    lab.finish("up")
    assert lab.phase("down") == "Running"


def test_run_waits_for_an_upstream_that_does_not_exist_and_names_it() -> None:
    lab = lab_with(after("down", "missing"))
    lab.live(10 * HOUR)
    assert (lab.phase("down"), lab.reasons("down")) == ("Waiting", ["UpstreamMissing"])
    lab.submit(run("missing", "org", 8, at=10 * HOUR))
    assert lab.reasons("down") == ["Upstream"]
    lab.finish("missing")
    assert lab.phase("down") == "Running"


def test_upstream_is_missing_when_it_is_deleted() -> None:
    lab = lab_with(run("up", "org", 8), after("down", "up"))
    lab.world.drop_run((NAMESPACE, "up"))
    lab.settle()
    assert (lab.phase("down"), lab.reasons("down")) == ("Waiting", ["UpstreamMissing"])


def test_upstream_is_missing_when_its_name_is_in_another_namespace() -> None:
    up = run("up", "org", 8)
    metadata = msgspec.structs.replace(up.metadata, namespace="other")
    lab = lab_with(msgspec.structs.replace(up, metadata=metadata), after("down", "up"))
    assert lab.reasons("down") == ["UpstreamMissing"]


def test_requeued_run_does_not_wait_for_its_upstream() -> None:
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


def test_waiting_run_waits_for_another_upstream_when_it_is_edited() -> None:
    lab = lab_with(run("a", "org", 8), run("b", "org", 8), after("down", "a"))
    lab.submit(after("down", "b"))
    lab.finish("a")
    assert lab.phase("down") == "Waiting"
    lab.finish("b")
    assert lab.phase("down") == "Running"


def test_waiting_run_starts_when_it_is_edited_to_follow_no_run() -> None:
    lab = lab_with(run("a", "org", 8), after("down", "a"))
    lab.submit(run("down", "org", 8))
    assert lab.phase("down") == "Running"


@pytest.mark.parametrize("names", [("a", "b"), ("b", "c", "d")])
def test_cycle_is_found_when_runs_wait_for_each_other(names: tuple[str, ...]) -> None:
    lab = lab_with(*(after(name, names[number - 1]) for number, name in enumerate(names)))
    assert {name for _, name in lab.world.run_graph.find_cycle()} == set(names)


def test_no_cycle_is_found_when_two_runs_share_an_upstream() -> None:
    lab = lab_with(run("a", "org", 8), after("b", "a"), after("c", "a"), after("d", "b", "c"))
    assert lab.world.run_graph.find_cycle() == []
