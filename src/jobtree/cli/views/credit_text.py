"""Formats credits, where the policy sets the price of a flavor."""

from jobtree.api.schema.quantities import HOUR, MILLI, format_milli
from jobtree.core import RunState, World


def credits_per_hour(world: World, flavor: str, charge: int) -> str:
    """Returns ``, 16 credits an hour`` for a charge in thousandths of a GPU; empty without a price."""
    if flavor not in world.policy.prices_milli:
        return ""
    return f", {format_milli(charge * world.policy.price_milli(flavor) // MILLI)} credits an hour"


def credits_paid(world: World, run: RunState) -> str:
    """Returns ``48 credits``: what envelopes paid for a Run at the present price; empty without a price."""
    if run.flavor not in world.policy.prices_milli:
        return ""
    open_charge = sum(
        lease.charge * (world.now - lease.start)
        for lease in run.leases.values()
        if lease.role != "Opportunistic"
    )
    charged = run.usage.closed_charge + open_charge
    return f"{format_milli(charged * world.policy.price_milli(run.flavor) // (MILLI * HOUR))} credits"
