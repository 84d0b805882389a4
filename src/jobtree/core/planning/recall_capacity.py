"""Loaned: the place that could come free if an owner's family gave back all that it pays for (C11).

What is recalled may be paid elsewhere, or demoted, and then it gives way to a start, as all unpaid work does.
At first all of it is left out, and whatever goes with it (C13, J3): that costs little, and most who wait find
no place even so. Only then it is tried, once for an owner, whoever of its Runs asks, and taken back: what is
kept is who would still stand in which domain. Less never makes more place than all, so either answer promises
too much and never too little.
"""

from collections.abc import Container

from jobtree.core.availability.availability_profile import (
    AvailabilityProfile,
    availability_profile,
    availability_profile_without,
)
from jobtree.core.availability.occupancy import DomainOccupancy, OccupancyView, lease_occupancies
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.operations.reclaim import recall_actions, recallable_leases, reclaim_actions
from jobtree.core.operations.trial import Trial
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.domain import Domain
from jobtree.core.supply.node_slots import PodDemand
from jobtree.core.world.world import World

RecallKey = tuple[str, str, bool]  # whose money, of what flavor, and whether it was tried


class RecallCapacity:
    """Domains as they would be without what an owner lends: ask anew when anything has changed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._gone: dict[RecallKey, dict[str, frozenset[RunKey]]] = {}
        self._remain: dict[RecallKey, dict[str, DomainOccupancy]] = {}
        self._horizons: dict[tuple[RecallKey, str, PodDemand], AvailabilityProfile] = {}

    def all_recallable(self, run: RunState) -> RecallKey:
        """All that the Run's owner lends, with whatever goes with it."""
        lent = (run.owner, run.flavor, False)
        if lent not in self._gone:
            self._gone[lent] = self._going(run)
        return lent

    def actually_recallable(self, run: RunState) -> RecallKey:
        """What of it would really go."""
        lent = (run.owner, run.flavor, True)
        if lent not in self._remain:
            self._remain[lent] = self._remaining(run)
        return lent

    def freed_domains(self, lent: RecallKey) -> Container[str]:
        """Domains in which that makes a difference, by name."""
        return self._remain[lent] if lent in self._remain else self._gone[lent]

    def pods(
        self, lent: RecallKey, domain: Domain, demand: PodDemand, end: int, run_key: RunKey | None
    ) -> int:
        """What the domain could hold until then for a Run of this owner, if all that it lends came back."""
        now = self._world.now
        if lent in self._remain:
            return self._afterwards(lent, domain, demand).pods(0, now, end, run_key, None)
        gone = self._gone[lent].get(domain.name)
        if gone is None:
            return availability_profile(self._world, domain, demand, None).counted_pods(now, end, run_key)
        return availability_profile_without(self._world, domain, demand, gone).counted_pods(now, end, run_key)

    def _afterwards(self, lent: RecallKey, domain: Domain, demand: PodDemand) -> AvailabilityProfile:
        tenants = self._remain[lent].get(domain.name)
        if tenants is None:
            return availability_profile(self._world, domain, demand, None)
        key = (lent, domain.name, demand)
        known = self._horizons.get(key)
        if known is None:
            ground = OccupancyView(tenants, domain, domain.usable_node_names(demand), None)
            known = self._horizons[key] = AvailabilityProfile(domain, demand.size, ground)
        return known

    def _going(self, run: RunState) -> dict[str, frozenset[RunKey]]:
        """Runs that would go at the most, in the domains where they stand."""
        world = self._world
        lent = {lease.run_key for lease in recallable_leases(world, run, world.now)}
        queued = (world.runs[order[1:]] for order in world.queue)
        unpaid = {one.key for one in queued if one.opportunistic_gpus and one.flavor == run.flavor}
        nodes, found = world.fleet.nodes, dict[str, set[RunKey]]()
        for one in {
            one.key: one for key in lent | unpaid for one in world.run_graph.members(world.runs[key])
        }.values():
            held = (node for lease in one.leases.values() for node, _ in lease.slots if node in nodes)
            for domain in {nodes[node].domain for node in held}:
                if domain.flavor == run.flavor:
                    found.setdefault(domain.name, set()).add(one.key)
        return {name: frozenset(runs) for name, runs in found.items()}

    def _remaining(self, run: RunState) -> dict[str, DomainOccupancy]:
        """Who would be left, in the domains where it makes a difference."""
        world, trial = self._world, Trial(self._world)
        domains = world.fleet.flavor(run.flavor).domains.values()
        before = {domain.name: domain.occupancy_version for domain in domains}
        for taking in (*recall_actions(trial, run, world.now), *reclaim_actions(trial, run, world.now)):
            taking()
        touched = [domain for domain in domains if domain.occupancy_version is not before[domain.name]]
        found = {domain.name: lease_occupancies(world, domain) for domain in touched}
        trial.rollback()
        return found
