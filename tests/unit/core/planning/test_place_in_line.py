"""What an envelope gets back is kept for the oldest Run in line, its owner's own Runs first (C12)."""

import pytest

from jobtree.api.kinds.policy import Policy
from jobtree.api.kinds.reservation import IdleUsage
from jobtree.api.schema.quantities import HOUR, MINUTE, format_time
from jobtree.core.reporting.reservation_codec import (
    load_promise,
    promise_from_reservation,
    reservation_object,
)
from tests.unit.core.build import T0, budget, node, nodes, run
from tests.unit.core.lab import Lab


@pytest.mark.parametrize("opportunistic", [True, False], ids=["opportunistic", "undated"])
def test_a_run_that_lost_its_node_comes_before_newer_runs_of_its_team(opportunistic: bool) -> None:
    lab = Lab(nodes("nv-a", 1), nodes("nv-b", 1), budget("org", 8))
    lab.submit(run("old", "org", 8))
    lab.submit(run("new", "org", 8, at=1, opportunistic=opportunistic))
    lab.put(node(next(iter(lab.on("old"))), failed=True))
    lab.settle()
    assert (lab.paid("old"), lab.phase("new")) == ({"Owned org/main": 8}, "Pending")


def test_budget_is_kept_for_the_oldest_run_whenever_it_was_promised() -> None:
    """The older Run is promised later, since it lost its leases after the younger one had come."""
    lab = Lab(nodes("nv-a", 2), budget("org", 16))
    lab.submit(run("wide", "org", 16))
    lab.submit(run("young", "org", 16, at=1))
    assert lab.promised_at("young") is None
    first, second = lab.on("wide")
    lab.put(node(first, failed=True))
    lab.settle()
    assert lab.phase("wide") == "Pending"
    lab.put(node(first))
    lab.settle()
    assert (lab.paid("wide"), lab.phase("young"), second) == ({"Owned org/main": 16}, "Pending", second)


def test_budget_is_kept_for_own_runs_before_those_of_the_family() -> None:
    lab = Lab(nodes("nv-a", 2), budget("org"), budget("org:own", 16), budget("org:kin"))
    lab.submit(run("first", "org:own", 8), run("second", "org:own", 8, at=1))
    lab.submit(run("kin", "org:kin", 16, at=2))
    lab.submit(run("own", "org:own", 16, at=3))
    lab.finish("first")
    lab.live(HOUR)
    lab.finish("second")
    lab.live(HOUR + MINUTE)
    assert (lab.paid("own"), lab.phase("kin")) == ({"Owned org-own/main": 16}, "Pending")


# Budget that is left idle is kept for a Run without a date until keepIdle is used up


def waiting_for_budget(keep_idle: int = 8 * HOUR) -> Lab:
    """``wide`` waits for the budget of ``old``; meanwhile budget for 8 GPUs and two nodes are idle."""
    lab = Lab(nodes("nv-a", 3), budget("org", 16), policy=Policy(keep_idle_ms=keep_idle))
    lab.submit(run("old", "org", 8))
    lab.submit(run("wide", "org", 16, at=1))
    lab.submit(run("young", "org", 8, at=2))
    assert (lab.promised_at("wide"), lab.phase("young")) == (None, "Pending")
    return lab


def test_budget_is_kept_until_the_idle_gpu_hours_reach_the_width_times_keep_idle() -> None:
    """16 GPUs × 8 h are reached after 16 hours, since 8 GPUs are left idle."""
    lab = waiting_for_budget()
    lab.live(16 * HOUR - 1)
    assert lab.phase("young") == "Pending"
    lab.live(16 * HOUR)
    assert (lab.paid("young"), lab.phase("wide")) == ({"Owned org/main": 8}, "Pending")
    assert sum("BudgetLeftIdle" in line and " wide " in line for line in lab.story) == 1


def test_budget_that_a_younger_run_uses_provisionally_is_not_idle() -> None:
    lab = waiting_for_budget()
    lab.submit(run("early", "org", 8, at=3, checkpoint="10m"))
    assert lab["early"].provisional
    lab.live(48 * HOUR)
    assert (lab.phase("young"), lab["early"].provisional) == ("Pending", True)


def test_no_budget_is_kept_with_keep_idle_0() -> None:
    lab = Lab(nodes("nv-a", 3), budget("org", 16), policy=Policy(keep_idle_ms=0))
    lab.submit(run("old", "org", 8), run("wide", "org", 16, at=1), run("young", "org", 8, at=2))
    assert (lab.phase("wide"), lab.paid("young")) == ("Pending", {"Owned org/main": 8})


def test_a_run_whose_budget_is_kept_no_longer_starts_when_it_is_free() -> None:
    lab = waiting_for_budget()
    lab.live(17 * HOUR)
    lab.finish("old")
    lab.finish("young")
    assert lab.paid("wide") == {"Owned org/main": 16}


def test_a_lower_keep_idle_counts_from_the_start_and_survives_a_restart() -> None:
    lab = waiting_for_budget()
    lab.live(10 * HOUR)
    wide = lab["wide"]
    written = reservation_object(lab.world, wide, lab.promise("wide"))
    assert written.status.terms is not None
    assert written.status.terms.idle == IdleUsage(gpu_seconds="0", gpus="8", since=format_time(T0))
    load_promise(lab.world, written, wide)
    lab.world.set_policy(Policy(keep_idle_ms=6 * HOUR))
    lab.live(12 * HOUR - 1)
    assert lab.phase("young") == "Pending"
    lab.live(12 * HOUR)
    assert lab.phase("young") == "Running"
    released = reservation_object(lab.world, wide, lab.promise("wide"))
    assert promise_from_reservation(released, wide) == lab.promise("wide")
