"""Loaned: the place that could come free if an owner's family gave back all that it pays for (C11).

What is recalled may be paid elsewhere, or demoted, and then it gives way to a start, as all unpaid work does.
At first all of it is left out, and whatever goes with it (C13, J3): that costs little, and most who wait find
no place even so. Only then it is tried, once for an owner, whoever of its Runs asks, and taken back: what is
kept is who would still stand in which domain. Less never makes more place than all, so either answer promises
too much and never too little.
"""

from collections.abc import Container

from jobtree.core.availability.availability_profile import Horizon, horizon, horizon_without
from jobtree.core.availability.occupancy import Stand, Tenants, all_tenants
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.operations.reclaim import loans, recalls, reclaims
from jobtree.core.operations.trial import Trial
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.domain import Domain
from jobtree.core.supply.node_slots import Demand
from jobtree.core.world.world import World

Lent = tuple[str, str, bool]  # whose money, of what flavor, and whether it was tried


class Loaned:
    """Domains as they would be without what an owner lends: ask anew when anything has changed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._gone: dict[Lent, dict[str, frozenset[RunKey]]] = {}
        self._remain: dict[Lent, dict[str, Tenants]] = {}
        self._horizons: dict[tuple[Lent, str, Demand], Horizon] = {}

    def left_out(self, state: RunState) -> Lent:
        """All that the Run's owner lends, with whatever goes with it."""
        lent = (state.owner, state.flavor, False)
        if lent not in self._gone:
            self._gone[lent] = self._going(state)
        return lent

    def tried(self, state: RunState) -> Lent:
        """What of it would really go."""
        lent = (state.owner, state.flavor, True)
        if lent not in self._remain:
            self._remain[lent] = self._remaining(state)
        return lent

    def freed(self, lent: Lent) -> Container[str]:
        """Domains in which that makes a difference, by name."""
        return self._remain[lent] if lent in self._remain else self._gone[lent]

    def pods(self, lent: Lent, domain: Domain, demand: Demand, end: int, run: RunKey | None) -> int:
        """What the domain could hold until then for a Run of this owner, if all that it lends came back."""
        now = self._world.now
        if lent in self._remain:
            return self._afterwards(lent, domain, demand).pods(0, now, end, run, None)
        gone = self._gone[lent].get(domain.name)
        if gone is None:
            return horizon(self._world, domain, demand, None).counted(now, end, run)
        return horizon_without(self._world, domain, demand, gone).counted(now, end, run)

    def _afterwards(self, lent: Lent, domain: Domain, demand: Demand) -> Horizon:
        tenants = self._remain[lent].get(domain.name)
        if tenants is None:
            return horizon(self._world, domain, demand, None)
        key = (lent, domain.name, demand)
        known = self._horizons.get(key)
        if known is None:
            ground = Stand(tenants, domain, domain.usable_nodes(demand), None)
            known = self._horizons[key] = Horizon(domain, demand.size, ground)
        return known

    def _going(self, state: RunState) -> dict[str, frozenset[RunKey]]:
        """Runs that would go at the most, in the domains where they stand."""
        world = self._world
        lent = {lease.run for lease in loans(world, state, world.now)}
        queued = (world.runs[order[1:]] for order in world.queue)
        unpaid = {one.key for one in queued if one.unpaid and one.flavor == state.flavor}
        nodes, found = world.fleet.nodes, dict[str, set[RunKey]]()
        for one in {
            one.key: one for key in lent | unpaid for one in world.kin.members(world.runs[key])
        }.values():
            held = (node for lease in one.leases.values() for node, _ in lease.slots if node in nodes)
            for domain in {nodes[node].domain for node in held}:
                if domain.flavor == state.flavor:
                    found.setdefault(domain.name, set()).add(one.key)
        return {name: frozenset(runs) for name, runs in found.items()}

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
