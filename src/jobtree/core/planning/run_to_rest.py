"""Plans and applies until nothing is left to do: the one loop around planning passes."""

from collections.abc import Callable

from jobtree.core.model.actions import Plan
from jobtree.core.planning.planning_pass import plan
from jobtree.core.world.world import World

MAX_ROUNDS = 64


def run_to_rest(
    world: World, apply: Callable[[Plan], None], *, creates_children: bool, max_rounds: int = MAX_ROUNDS
) -> bool:
    """Calls ``apply`` with plan after plan until one leaves nothing to do; returns whether one did.

    ``apply`` applies all actions of the plan to the world. A plan without actions leaves nothing to do,
    unless it names Runs of stages and ``apply`` creates them in the world at once (``creates_children``).
    After ``max_rounds`` plans the loop ends although there may be more to do, and the result is False.
    """
    for _ in range(max_rounds):
        decided = plan(world)
        apply(decided)
        if not decided.actions and not (creates_children and decided.children):
            return True
    return False
