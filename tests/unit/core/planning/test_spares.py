"""Spares (P5): where they stand, and that a start never waits for them."""

import pytest

from tests.unit.core.build import budget, node, nodes, run
from tests.unit.core.lab import Lab

RICH = budget("org", 10_000)


def test_spares_sit_in_their_groups_domain_on_other_nodes() -> None:
    lab = Lab(RICH, nodes("nv-a", 4))
    lab.submit(run("r", "org", 8, per_pod=4, spares=1))
    assert (lab.on("r"), lab.on("r", "Spare")) == ({"nv-a-00": 8}, {"nv-a-01": 4})


def test_a_node_with_ranks_is_no_place_for_a_spare_though_it_would_be_tighter() -> None:
    lab = Lab(RICH, nodes("nv-a", 2))
    lab.submit(run("r", "org", 4, spares=1))
    assert (lab.on("r"), lab.on("r", "Spare")) == ({"nv-a-00": 4}, {"nv-a-01": 4})


def test_spares_stand_beside_their_ranks_only_where_there_is_no_other_node() -> None:
    lab = Lab(RICH, node("a", gpus=4), node("b", gpus=4))
    lab.submit(run("r", "org", 2, per_pod=2, spares=3))
    assert (lab.on("r"), lab.on("r", "Spare")) == ({"a": 2}, {"b": 4, "a": 2})


def test_a_group_goes_where_its_spares_fit_too() -> None:
    lab = Lab(RICH, nodes("nv-a", 2), nodes("nv-b", 3))
    lab.submit(run("r", "org", 16, spares=1))
    assert (lab.domains("r"), lab.spares("r")) == ({0: {"nv-b"}}, 8)


@pytest.mark.parametrize("spread", [True, False])
def test_spares_never_delay_a_start_for_want_of_room(spread: bool) -> None:
    lab = Lab(RICH, nodes("nv-a", 4))
    lab.submit(run("r", "org", 32, group=16, spares=1, spread=spread))
    assert (lab.phase("r"), lab.spares("r")) == ("Running", 0)


def test_spares_never_delay_a_start_for_want_of_money() -> None:
    lab = Lab(nodes("nv-a", 4), budget("org", 9))
    lab.submit(run("r", "org", 8, spares=1))
    assert (lab.phase("r"), lab.spares("r")) == ("Running", 0)


def test_an_opportunistic_start_has_no_spares() -> None:
    lab = Lab(nodes("nv-a", 4), budget("org", 1))
    lab.submit(run("r", "org", 8, spares=1, opportunistic=True))
    assert (lab.phase("r"), lab.spares("r"), lab.envelope("org").account.charge) == ("Running", 0, 0)


def test_a_groups_spare_may_stand_without_those_of_others() -> None:
    lab = Lab(RICH, nodes("nv-a", 3), nodes("nv-b", 2))
    lab.submit(run("r", "org", 32, group=16, spares=1))
    assert {lease.group for lease in lab.leases("r") if lease.role == "Spare"} == {0}
