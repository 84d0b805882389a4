"""Loaned: the place that could come free if an owner's family gave back all that it pays for (C11).

What is recalled may be paid elsewhere, or demoted, and then it gives way to a start, as all unpaid work does.
All of that is tried once for an owner, whoever of its Runs asks, and taken back: what is kept is who would
still stand in which domain. Less never makes more place than all, so an answer from here promises too much
and never too little.
"""

from jobtree.core.domain import Domain
from jobtree.core.giveway import recalls, reclaims
from jobtree.core.horizon import Horizon, horizon
from jobtree.core.room import Demand
from jobtree.core.runs import RunState
from jobtree.core.stands import Stand, Tenants
from jobtree.core.trial import Trial
from jobtree.core.world import World

Owner = tuple[str, str]  # and the flavor


class Loaned:
    """Domains as they would be without what an owner lends: ask anew when anything has changed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._tenants: dict[Owner, dict[str, Tenants]] = {}
        self._stands: dict[tuple[Owner, str, tuple[str, ...]], Stand] = {}
        self._horizons: dict[tuple[Owner, str, Demand], Horizon] = {}

    def horizon(self, state: RunState, domain: Domain, demand: Demand) -> Horizon:
        """What the domain could hold for a Run of this owner, if all that it lends came back."""
        owner = (state.owner, state.flavor)
        if owner not in self._tenants:
            self._tenants[owner] = self._remaining(state)
        tenants = self._tenants[owner].get(domain.name)
        if tenants is None:
            return horizon(self._world, domain, demand, None)
        known = self._horizons.get((owner, domain.name, demand))
        if known is None:
            ground = self._stand(owner, domain, tenants, domain.usable_nodes(demand))
            known = self._horizons[owner, domain.name, demand] = Horizon(domain, demand.size, ground)
        return known

    def _stand(self, owner: Owner, domain: Domain, tenants: Tenants, usable: tuple[str, ...]) -> Stand:
        key = (owner, domain.name, usable)
        known = self._stands.get(key)
        if known is None:
            known = self._stands[key] = Stand(tenants, domain, usable, None)
        return known

    def _remaining(self, state: RunState) -> dict[str, Tenants]:
        """Who would be left, in the domains where it makes a difference."""
        world, trial = self._world, Trial(self._world)
        domains = world.fleet.flavor(state.flavor).domains.values()
        before = {domain.name: domain.stands for domain in domains}
        for taking in (*recalls(trial, state, world.now), *reclaims(trial, state, world.now)):
            taking()
        touched = [domain for domain in domains if domain.stands is not before[domain.name]]
        found = {domain.name: Tenants(world, domain) for domain in touched}
        trial.rollback()
        return found
