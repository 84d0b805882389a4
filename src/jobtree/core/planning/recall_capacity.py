"""Bounds the room that a recall by one owner could free (C11).

A lease that is recalled may get another payer, or is demoted and may then be reclaimed. The first bound
leaves out all family charges and what ends with them (C13, J3): it costs little, and most waiting Runs do not
fit even so. The second applies the recall once for each owner, keeps the leases that remain in each domain,
and rolls back. Less recalled work never makes more room, so both are upper bounds.
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

RecallKey = tuple[str, str, bool]  # owner, flavor, and whether the recall was applied


class RecallCapacity:
    """Domains as they would be without an owner's family charges; valid until the world changes."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._runs_ended: dict[RecallKey, dict[str, frozenset[RunKey]]] = {}
        self._occupancies_left: dict[RecallKey, dict[str, DomainOccupancy]] = {}
        self._profiles: dict[tuple[RecallKey, str, PodDemand], AvailabilityProfile] = {}

    def all_recallable(self, run: RunState) -> RecallKey:
        """The key of the first bound: without all family charges of the Run's owner."""
        recall_key = (run.owner, run.flavor, False)
        if recall_key not in self._runs_ended:
            self._runs_ended[recall_key] = self._runs_that_may_end(run)
        return recall_key

    def actually_recallable(self, run: RunState) -> RecallKey:
        """The key of the second bound: without the work that the recall would really end."""
        recall_key = (run.owner, run.flavor, True)
        if recall_key not in self._occupancies_left:
            self._occupancies_left[recall_key] = self._occupancies_after_recall(run)
        return recall_key

    def freed_domains(self, recall_key: RecallKey) -> Container[str]:
        """Names of the domains in which the recall makes a difference."""
        return (
            self._occupancies_left[recall_key]
            if recall_key in self._occupancies_left
            else self._runs_ended[recall_key]
        )

    def pods(
        self, recall_key: RecallKey, domain: Domain, demand: PodDemand, end: int, run_key: RunKey | None
    ) -> int:
        """Pods that the domain could hold until ``end`` for a Run of this owner after the recall."""
        now = self._world.now
        if recall_key in self._occupancies_left:
            return self._afterwards(recall_key, domain, demand).pods(0, now, end, run_key, None)
        ended = self._runs_ended[recall_key].get(domain.name)
        if ended is None:
            return availability_profile(self._world, domain, demand, None).counted_pods(now, end, run_key)
        return availability_profile_without(self._world, domain, demand, ended).counted_pods(
            now, end, run_key
        )

    def _afterwards(self, recall_key: RecallKey, domain: Domain, demand: PodDemand) -> AvailabilityProfile:
        occupancy = self._occupancies_left[recall_key].get(domain.name)
        if occupancy is None:
            return availability_profile(self._world, domain, demand, None)
        key = (recall_key, domain.name, demand)
        cached = self._profiles.get(key)
        if cached is None:
            view = OccupancyView(occupancy, domain, domain.usable_node_names(demand), None)
            cached = self._profiles[key] = AvailabilityProfile(domain, demand.size, view)
        return cached

    def _runs_that_may_end(self, run: RunState) -> dict[str, frozenset[RunKey]]:
        """Runs that could end at most, by domain."""
        world = self._world
        recallable = {lease.run_key for lease in recallable_leases(world, run, world.now)}
        queued = (world.runs[creation_order[1:]] for creation_order in world.queue)
        opportunistic = {
            other.key for other in queued if other.opportunistic_gpus and other.flavor == run.flavor
        }
        domains, runs_by_domain = world.fleet.domain_by_node, dict[str, set[RunKey]]()
        for member in {
            member.key: member
            for key in recallable | opportunistic
            for member in world.run_graph.members(world.runs[key])
        }.values():
            occupied = (
                node for lease in member.leases.values() for node, _ in lease.slots if node in domains
            )
            for domain in {domains[node] for node in occupied}:
                if domain.flavor == run.flavor:
                    runs_by_domain.setdefault(domain.name, set()).add(member.key)
        return {name: frozenset(runs) for name, runs in runs_by_domain.items()}

    def _occupancies_after_recall(self, run: RunState) -> dict[str, DomainOccupancy]:
        """The occupancy after the recall, of the domains in which it makes a difference."""
        world, trial = self._world, Trial(self._world)
        domains = world.fleet.flavor(run.flavor).domains.values()
        before = {domain.name: domain.occupancy_version for domain in domains}
        for action in (*recall_actions(trial, run, world.now), *reclaim_actions(trial, run, world.now)):
            action()
        touched = [domain for domain in domains if domain.occupancy_version is not before[domain.name]]
        occupancies = {domain.name: lease_occupancies(world, domain) for domain in touched}
        trial.rollback()
        return occupancies
