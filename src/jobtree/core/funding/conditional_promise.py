"""Says whether a promise depends on the owners of family money."""

from jobtree.core.funding.payer_candidates import funding_class
from jobtree.core.model.promise import Promise
from jobtree.core.world.world import World


def is_conditional(world: World, promise: Promise) -> bool:
    """Whether the promise counts on an envelope of the family, not only of the owner or of sponsors."""
    run, envelopes = world.runs[promise.run_key], world.budgets.envelopes
    return any(funding_class(world, envelopes[key], run) == "Shared" for key, _ in promise.funding)
