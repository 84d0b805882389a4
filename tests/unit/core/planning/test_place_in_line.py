"""What an envelope gets back is kept for the oldest Run in line, its owner's own Runs first (C12)."""

import pytest

from jobtree.api.schema.quantities import HOUR, MINUTE
from tests.unit.core.build import budget, node, nodes, run
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
