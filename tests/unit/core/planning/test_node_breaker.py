"""The breaker (F2c): nodes lost together keep their leases until they return or are out of service."""

from random import Random

import msgspec
from hypothesis import given, strategies as st

from jobtree.api.kubernetes.node import Node
from jobtree.api.schema.quantities import HOUR, MINUTE
from jobtree.core.runs.run_state import RankLoss
from jobtree.core.supply.fleet import Fleet
from jobtree.core.world.node_breaker import NodeBreaker
from tests.property.examples import examples
from tests.unit.core.build import T0, budget, node, nodes, run
from tests.unit.core.lab import Lab

RICH = budget("org", 10_000)
GRACE = 2 * MINUTE


def lost(name: str, since: int, domain: str = "nv-a", *, failed: bool = False) -> Node:
    """A node that has not been Ready since so many milliseconds after T0."""
    return msgspec.structs.replace(
        node(name, domain, ready=False, failed=failed), not_ready_since_ms=T0 + since
    )


def back(name: str, since: int, domain: str = "nv-a") -> Node:
    return msgspec.structs.replace(node(name, domain), ready_since_ms=T0 + since)


def lose(lab: Lab, *numbers: int, at: int, failed: bool = False) -> None:
    lab.live(at)
    lab.put([lost(f"nv-a-{number:02}", at, failed=failed) for number in numbers])
    lab.settle()


def gang_on_four_nodes() -> Lab:
    lab = Lab(RICH, nodes("nv-a", 4))
    lab.submit(run("r", "org", 32, per_pod=8))
    return lab


def test_f2c_nothing_closes_and_nothing_is_cordoned_when_most_nodes_are_lost_together() -> None:
    lab = gang_on_four_nodes()
    lose(lab, 0, 1, at=MINUTE)
    lose(lab, 2, at=2 * MINUTE)
    lab.live(10 * HOUR)
    assert (lab.phase("r"), lab.endings("r")) == ("Running", [])
    assert lab.world.nodes_to_cordon == {}
    assert lab.world.node_lifecycle.held_nodes() == ("nv-a-00", "nv-a-01", "nv-a-02")


def test_f2_half_of_the_nodes_fail_after_their_grace() -> None:
    lab = gang_on_four_nodes()
    lose(lab, 0, 1, at=MINUTE)
    lab.live(MINUTE + GRACE)
    assert lab.endings("r") == [("CapacityLost", MINUTE + GRACE)]


def test_f2_nodes_that_are_lost_one_after_the_other_fail() -> None:
    lab = gang_on_four_nodes()
    for number in range(4):
        lose(lab, number, at=(number + 1) * 3 * MINUTE)
    assert lab.endings("r") == [("CapacityLost", 3 * MINUTE + GRACE)]


def test_f2_all_nodes_of_a_fleet_of_three_fail_after_their_grace() -> None:
    lab = Lab(RICH, nodes("nv-a", 3))
    lab.submit(run("r", "org", 24, per_pod=8))
    lose(lab, 0, 1, 2, at=MINUTE)
    lab.live(MINUTE + GRACE)
    assert lab.endings("r") == [("CapacityLost", MINUTE + GRACE)]


def test_f2c_a_domain_is_held_when_the_fleet_is_not() -> None:
    lab = Lab(RICH, nodes("nv-a", 4), nodes("nv-b", 20))
    lab.submit(run("r", "org", 32, per_pod=8))
    lose(lab, 0, 1, 2, at=MINUTE)
    lab.put(lost("nv-b-00", MINUTE, "nv-b"))
    lab.live(HOUR)
    assert lab.endings("r") == []
    assert lab.world.node_lifecycle.failed_nodes() == {"nv-b-00"}


def test_f2c_an_administrator_takes_held_nodes_out_of_service() -> None:
    lab = gang_on_four_nodes()
    lose(lab, 0, 1, 2, at=MINUTE)
    lab.live(HOUR)
    lose(lab, 0, at=MINUTE + HOUR, failed=True)
    assert lab.endings("r") == [("CapacityLost", MINUTE + HOUR)]
    lab.put(lost("nv-a-00", MINUTE, failed=True))
    assert lab.world.node_lifecycle.held_nodes() == ("nv-a-01", "nv-a-02"), "the others are still held"


def test_f2c_the_last_node_fails_a_grace_after_the_others_returned() -> None:
    lab = gang_on_four_nodes()
    lose(lab, 0, 1, 2, at=MINUTE)
    lab.live(HOUR)
    for number in (0, 1):
        at = MINUTE + HOUR + number * 1000
        lab.live(at)
        lab.put(back(f"nv-a-0{number}", at))
        lab.settle()
        assert lab.endings("r") == []
    lab.live(3 * HOUR)
    assert lab.endings("r") == [("CapacityLost", MINUTE + HOUR + GRACE)]


def test_f2c_pods_that_are_evicted_from_held_nodes_restart_when_these_return() -> None:
    """Kubernetes deletes pods on a lost node after five minutes, though nobody there ends them."""
    lab = gang_on_four_nodes()
    lose(lab, 0, 1, 2, at=MINUTE)
    lab.live(5 * MINUTE)
    group_rank = next(rank for rank, (on, _) in lab["r"].rank_slots.items() if on == "nv-a-00")
    lab.world.lose_rank(lab["r"].key, RankLoss(lab.world.now, group_rank, 1, failed=False))
    lab.settle()
    assert (lab["r"].attempt, lab.endings("r")) == (1, [])
    lab.put([back(f"nv-a-0{number}", 6 * MINUTE) for number in range(3)])
    lab.settle()
    assert (lab["r"].attempt, lab.endings("r")) == (2, [])


def test_f2c_a_promise_on_held_nodes_slips() -> None:
    lab = Lab(RICH, nodes("nv-a", 4))
    lab.submit(run("r", "org", 32, per_pod=8, max_duration="2h"))
    lab.submit(run("next", "org", 32, per_pod=8, at=1))
    assert lab.promise("next").at is not None
    lose(lab, 0, 1, 2, at=MINUTE)
    assert lab.phase("r") == "Running"
    assert "NodesLost" in "\n".join(lab.story)


# An independent oracle


def held_by_definition(fleet: list[Node], name: str, now: int) -> bool:
    """F2c, word by word, by trying every window."""
    (asked,) = [each for each in fleet if each.name == name]
    since = asked.not_ready_since_ms
    if since is None or asked.failed:
        return False
    for scope in (fleet, [each for each in fleet if each.domain == asked.domain]):
        if len(scope) < 4:
            continue
        returned = sum(
            each.ready_since_ms is not None and each.ready_since_ms > now - GRACE for each in scope
        )
        for first in range(since - GRACE, since + 1, MINUTE // 2):
            window = [
                each
                for each in scope
                if each.not_ready_since_ms is not None and first <= each.not_ready_since_ms <= first + GRACE
            ]
            if 2 * (len(window) + returned) > len(scope):
                return True
    return False


@examples(200)
@given(st.integers(min_value=0, max_value=2**32))
def test_f2c_the_breaker_holds_exactly_the_nodes_of_its_definition(seed: int) -> None:
    dice = Random(seed)
    world_fleet, fleet = Fleet(GRACE), dict[str, Node]()
    breaker = NodeBreaker(world_fleet)
    for _ in range(40):
        name = f"n{dice.randrange(9)}"
        if name in fleet:
            breaker.change(fleet.pop(name), -1)
        since, domain = dice.randrange(20) * MINUTE // 2, f"nv-{dice.choice('ab')}"
        kind = dice.choice(("lost", "lost", "failed", "back", "plain", "gone"))
        if kind != "gone":
            made = {
                "lost": lost(name, since, domain),
                "failed": lost(name, since, domain, failed=True),
                "back": back(name, since, domain),
                "plain": node(name, domain),
            }
            fleet[name] = made[kind]
            breaker.change(fleet[name], 1)
        now = T0 + dice.randrange(24) * MINUTE // 2
        held = {each.name for each in fleet.values() if breaker.holds(each, now)}
        assert held == {each for each in fleet if held_by_definition([*fleet.values()], each, now)}
