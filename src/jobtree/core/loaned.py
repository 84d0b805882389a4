"""Loaned: the place that could come free if an owner's family gave back all that it pays for (C11).

What is recalled may be paid elsewhere, or demoted, and then it gives way to a start, as all unpaid work does.
At first all of it is left out, and whatever goes with it (C13, J3): that costs little, and most who wait find
no place even so. Only then it is tried, once for an owner, whoever of its Runs asks, and taken back: what is
kept is who would still stand in which domain. Less never makes more place than all, so either answer promises
too much and never too little.
"""

from jobtree.core.domain import Domain
from jobtree.core.giveway import loans, recalls, reclaims
from jobtree.core.horizon import Horizon, horizon
from jobtree.core.room import Demand
from jobtree.core.runs import RunState
from jobtree.core.stands import Stand, Tenants, all_tenants, tenants_of
from jobtree.core.trial import Trial
from jobtree.core.world import World

Owner = tuple[str, str]  # and the flavor


class Loaned:
    """Domains as they would be without what an owner lends: ask anew when anything has changed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._tenants: dict[tuple[Owner, bool], dict[str, Tenants]] = {}
        self._stands: dict[tuple[Owner, bool, str, tuple[str, ...]], Stand] = {}
        self._horizons: dict[tuple[Owner, bool, str, Demand], Horizon] = {}

    def horizon(self, state: RunState, domain: Domain, demand: Demand, *, tried: bool) -> Horizon:
        """What the domain could hold for a Run of this owner, if all that it lends came back."""
        owner = (state.owner, state.flavor)
        if (owner, tried) not in self._tenants:
            found = self._remaining(state) if tried else self._left_out(state)
            self._tenants[owner, tried] = found
        tenants = self._tenants[owner, tried].get(domain.name)
        if tenants is None:
            return horizon(self._world, domain, demand, None)
        key = (owner, tried, domain.name, demand)
        known = self._horizons.get(key)
        if known is None:
            usable = domain.usable_nodes(demand)
            ground = self._stands.get((owner, tried, domain.name, usable))
            if ground is None:
                ground = self._stands[owner, tried, domain.name, usable] = Stand(
                    tenants, domain, usable, None
                )
            known = self._horizons[key] = Horizon(domain, demand.size, ground)
        return known

    def _left_out(self, state: RunState) -> dict[str, Tenants]:
        """Who would be left at the least."""
        world = self._world
        lent = {lease.run for lease in loans(world, state, world.now)}
        queued = (world.runs[order[1:]] for order in world.queue)
        unpaid = {one.key for one in queued if one.unpaid and one.flavor == state.flavor}
        gone = {one.key for key in lent | unpaid for one in world.kin.members(world.runs[key])}
        held = [lease for key in gone for lease in world.runs[key].leases.values()]
        nodes = world.fleet.nodes
        touched = {nodes[node].domain for lease in held for node, _ in lease.slots if node in nodes}
        return {
            domain.name: tenants_of(world, domain).without(gone)
            for domain in touched
            if domain.flavor == state.flavor
        }

    def _remaining(self, state: RunState) -> dict[str, Tenants]:
        """Who would be left, in the domains where it makes a difference."""
        world, trial = self._world, Trial(self._world)
        domains = world.fleet.flavor(state.flavor).domains.values()
        before = {domain.name: domain.stands for domain in domains}
        for taking in (*recalls(trial, state, world.now), *reclaims(trial, state, world.now)):
            taking()
        touched = [domain for domain in domains if domain.stands is not before[domain.name]]
        found = {domain.name: all_tenants(world, domain) for domain in touched}
        trial.rollback()
        return found
