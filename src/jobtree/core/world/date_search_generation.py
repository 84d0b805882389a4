"""Hopes: what could bring a promise without a date one (R9).

Nothing known will start such a Run; so it is looked at again when something new is known, and then at once:
nodes, budgets or a policy came, a running Run will end sooner, or one of its payers got money back, from a
lease that closed or from a promise that is gone. Each of these is counted where it happens, and whoever has
looked remembers the counts.
"""

from typing import TYPE_CHECKING

from jobtree.core.runs.run_state import DateSearchGeneration, RunState
from jobtree.core.world.payer_candidates import payer_candidates

if TYPE_CHECKING:
    from jobtree.core.world.world import World


def date_search_generation(world: "World", run: RunState) -> DateSearchGeneration:
    """The counts of all that could bring the Run a date."""
    return (
        world.date_search_generation,
        sum([one.envelope.reconsider_generation for one in payer_candidates(world, run)]),
    )


def should_search_date(world: "World", run: RunState) -> bool:
    """Whether the Run is promised something without a date, and something new could bring one."""
    promise = run.promise
    return (
        promise is not None
        and promise.at is None
        and run.date_search_generation != date_search_generation(world, run)
    )
