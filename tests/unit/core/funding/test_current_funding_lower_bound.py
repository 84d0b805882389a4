"""Money of a promise that is surely there, and money that must be looked at exactly (R2)."""

import pytest

from jobtree.api.kinds.budget import Budget
from jobtree.core.funding.current_funding_lower_bound import is_certainly_funded
from tests.unit.core.build import budget, cap, envelope, nodes, run
from tests.unit.core.lab import Lab


def waiting(team: Budget) -> Lab:
    """Two Runs that wait for one node, and are promised it one after the other."""
    lab = Lab(nodes("nv-a", 1), budget("rich", 8), team)
    lab.submit(run("holds", "rich", 8, max_duration="2h"))
    lab.submit(run("first", "team", 8, at=1, max_duration="1h"), run("second", "team", 8, at=2))
    return lab


def surely(lab: Lab, name: str) -> bool:
    return is_certainly_funded(lab.world, lab[name], lab.promise(name))


def test_who_counts_on_money_that_nobody_else_is_promised_is_surely_paid() -> None:
    lab = waiting(budget("team", 8))
    assert (surely(lab, "first"), surely(lab, "second")) == (True, True)


def test_a_budget_that_is_cut_surely_pays_nothing_more() -> None:
    lab = waiting(budget("team", 8))
    lab.world.put_budget(budget("team", 7))
    assert (surely(lab, "first"), surely(lab, "second")) == (False, False)


@pytest.mark.parametrize(
    "team",
    [
        budget("team", envelope(8, maxGPUHours=1000)),
        budget("team", 8, caps=[cap("all", "main", maxConcurrency=8)]),
    ],
    ids=["hours", "cap"],
)
def test_money_with_other_limits_is_looked_at_exactly(team: Budget) -> None:
    lab = waiting(team)
    assert (surely(lab, "first"), surely(lab, "second")) == (False, False)
