"""Promises that are certainly funded, and promises that need the exact computation (R2)."""

import pytest

from jobtree.api.kinds.budget import Budget
from jobtree.core.funding.current_funding_lower_bound import is_certainly_funded
from tests.unit.core.build import budget, cap, envelope, nodes, run
from tests.unit.core.lab import Lab


def lab_with_two_promises(team: Budget) -> Lab:
    """Two Runs that wait for the same node; their promises follow each other."""
    lab = Lab(nodes("nv-a", 1), budget("rich", 8), team)
    lab.submit(run("holds", "rich", 8, max_duration="2h"))
    lab.submit(run("first", "team", 8, at=1, max_duration="1h"), run("second", "team", 8, at=2))
    return lab


def certainly_funded(lab: Lab, name: str) -> bool:
    return is_certainly_funded(lab.world, lab[name], lab.promise(name))


def test_promises_are_certainly_funded_when_they_do_not_overlap() -> None:
    lab = lab_with_two_promises(budget("team", 8))
    assert (certainly_funded(lab, "first"), certainly_funded(lab, "second")) == (True, True)


def test_no_promise_is_certainly_funded_when_its_budget_is_cut() -> None:
    lab = lab_with_two_promises(budget("team", 8))
    lab.world.put_budget(budget("team", 7))
    assert (certainly_funded(lab, "first"), certainly_funded(lab, "second")) == (False, False)


@pytest.mark.parametrize(
    "team",
    [
        budget("team", envelope(8, maxGPUHours=1000)),
        budget("team", 8, caps=[cap("all", "main", maxConcurrency=8)]),
    ],
    ids=["hours", "cap"],
)
def test_no_promise_is_certainly_funded_when_its_payer_has_other_limits(team: Budget) -> None:
    lab = lab_with_two_promises(team)
    assert (certainly_funded(lab, "first"), certainly_funded(lab, "second")) == (False, False)
