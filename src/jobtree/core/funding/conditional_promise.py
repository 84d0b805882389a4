"""Says on which owners a promise depends: those of its family whose envelopes it counts on (R10)."""

from jobtree.core.funding.payer_candidates import funding_class
from jobtree.core.model.promise import Promise
from jobtree.core.world.world import World


def owners_counted_on(world: World, promise: Promise) -> tuple[str, ...]:
    """Returns the other owners of the family whose envelopes the promise counts on: they may recall them."""
    run, envelopes = world.runs[promise.run_key], world.budgets.envelopes
    payers = [envelopes[key] for key, _ in promise.funding if key in envelopes]
    return tuple(sorted({payer.owner for payer in payers if funding_class(world, payer, run) == "Shared"}))


def is_conditional(world: World, promise: Promise) -> bool:
    """Whether the promise depends on other owners, and not only on its own owner and sponsors."""
    return bool(owners_counted_on(world, promise))
