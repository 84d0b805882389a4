"""The loop around planning passes: when it ends, and when it stops at its bound."""

import msgspec
import pytest

from jobtree.core.model.actions import Plan
from jobtree.core.planning.planning_pass import plan
from jobtree.core.planning.run_to_rest import run_to_rest
from jobtree.core.world.world import World
from tests.unit.core.build import H100, T0, budget, node, run, tree

STAGES = [{"name": "train", "resources": {"gpuType": H100, "totalGPUs": 8}}]


def a_world() -> World:
    world = World(now=T0)
    world.lottery_key = bytes(32)
    world.put_node(node("n"))
    world.put_budget(budget("org", 8))
    return world


def create_children(world: World, decided: Plan) -> None:
    for child in decided.children:
        metadata = msgspec.structs.replace(child.metadata, uid=child.metadata.name)
        world.put_run(msgspec.structs.replace(child, metadata=metadata))


def test_run_to_rest_hands_over_every_plan_until_one_has_no_actions() -> None:
    world, plans = a_world(), list[Plan]()
    world.put_run(run("r", "org", 8))

    def apply(decided: Plan) -> None:
        plans.append(decided)
        world.apply_plan(decided)

    assert run_to_rest(world, apply, creates_children=True)
    assert [[action.kind for action in decided.actions] for decided in plans] == [["Start"], []]
    assert plan(world).actions == ()


def test_run_to_rest_applies_one_plan_when_nothing_is_to_do() -> None:
    world, plans = a_world(), list[Plan]()
    assert run_to_rest(world, plans.append, creates_children=True)
    assert len(plans) == 1


def test_run_to_rest_stops_at_its_bound() -> None:
    """A plan that is not applied is made again and again."""
    world, plans = a_world(), list[Plan]()
    world.put_run(run("r", "org", 8))
    assert not run_to_rest(world, plans.append, creates_children=True, max_rounds=3)
    assert [len(decided.actions) for decided in plans] == [1, 1, 1]


@pytest.mark.parametrize("creates_children", [True, False])
def test_run_to_rest_plans_again_after_children_when_the_caller_creates_them(
    creates_children: bool,
) -> None:
    world = a_world()
    world.put_run(tree("t", "org", STAGES))

    def apply(decided: Plan) -> None:
        world.apply_plan(decided)
        create_children(world, decided)

    assert run_to_rest(world, apply, creates_children=creates_children)
    assert world.runs["ns", "t-train"].phase == ("Running" if creates_children else "Pending")
