"""The domains of a flavor, ordered by when they can first hold a number of pods.

A start search asks for the first instant at which any domain can hold so many pods. The index orders the
domains by that instant, or by a lower bound of it. So a search reads the domains in this order and stops when
the next one cannot be earlier than the best so far. An index is cached until a lease, a node or the window of
a payer changes in one of its domains. Promises may change meanwhile.
"""

from enum import IntEnum
from operator import itemgetter

from jobtree.core.availability.availability_profile import AvailabilityProfile, availability_profile
from jobtree.core.availability.payer_placement import pays_in
from jobtree.core.funding.payer_candidates import payer_candidates
from jobtree.core.model.promise import Disruption, Precedence
from jobtree.core.model.versioned_cache import VersionedCache
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.flavor_pool import FlavorPool
from jobtree.core.supply.node_slots import NodeSelector, PodDemand
from jobtree.core.world.world import World

Selectors = frozenset[NodeSelector]


class PromiseScope(IntEnum):
    """Which promises count when the index computes the first instant of a domain."""

    NONE = 0  # no promise
    OPEN_ENDED = 1  # all promises, also those that begin later: as for an open-ended Run
    AT_START = 2  # all promises that have begun at that instant: as for a Run of any duration


FitEntry = tuple[int, int, AvailabilityProfile]  # the first instant, and the position in pack order


class EarliestFitIndex:
    """The profiles of some domains in pack order, and in the order in which pods first fit."""

    def __init__(self, profiles: list[AvailabilityProfile]) -> None:
        self.profiles = profiles
        self.largest_capacity = max((profile.capacity_pods for profile in profiles), default=0)
        self._capacity_by_chunk: dict[int, int] = {}
        self._orders: dict[tuple[PromiseScope, Disruption, int], EarliestFitOrder] = {}

    def by_earliest_fit(self, scope: PromiseScope, disruption: Disruption, pods: int) -> list[FitEntry]:
        """Returns the domains by the first instant at which each might hold the pods; never earlier."""
        order = self._orders.get((scope, disruption, pods))
        if order is None:
            order = self._orders[scope, disruption, pods] = EarliestFitOrder(
                self.profiles, scope, disruption, pods
            )
        return order.entries()

    def capacity_in_chunks(self, chunk: int) -> int:
        """Returns how many chunks of that many pods all domains could hold if nothing ran there."""
        capacity = self._capacity_by_chunk.get(chunk)
        if capacity is None:
            capacity = sum(profile.capacity_pods // chunk for profile in self.profiles)
            self._capacity_by_chunk[chunk] = capacity
        return capacity


class EarliestFitOrder:
    """The domains by the first instant at which each might hold a number of pods.

    If promises count, the domains whose promises have changed are computed again before each use.
    """

    def __init__(
        self, profiles: list[AvailabilityProfile], scope: PromiseScope, disruption: Disruption, pods: int
    ) -> None:
        self._profiles = profiles
        self._scope, self._disruption, self._pods = scope, disruption, pods
        self._promise_versions = [profile.domain.promise_version for profile in profiles]
        self._first_fits = [self._first_fit(profile) for profile in profiles]
        self._entries: list[FitEntry] | None = None

    def _first_fit(self, profile: AvailabilityProfile) -> int | None:
        if self._scope is PromiseScope.NONE:
            return profile.first_fit(self._disruption, self._pods)
        return profile.behind_promises(self._disruption).first_fit(
            self._pods, open_ended=self._scope is PromiseScope.OPEN_ENDED
        )

    def entries(self) -> list[FitEntry]:
        if self._scope is not PromiseScope.NONE:
            self._update_changed()
        if self._entries is None:
            positions = enumerate(zip(self._first_fits, self._profiles, strict=True))
            entries = [
                (first, position, profile) for position, (first, profile) in positions if first is not None
            ]
            entries.sort(key=itemgetter(0, 1))
            self._entries = entries
        return self._entries

    def _update_changed(self) -> None:
        versions = [profile.domain.promise_version for profile in self._profiles]
        if versions != self._promise_versions:
            for position, profile in enumerate(self._profiles):
                if versions[position] != self._promise_versions[position]:
                    self._first_fits[position] = self._first_fit(profile)
            self._promise_versions, self._entries = versions, None


# By pod, by the instant from which on provisional work counts as free, and by the selectors of the payers.
EARLIEST_FIT_INDEXES = VersionedCache[tuple[PodDemand, int | None, Selectors | None], EarliestFitIndex]()


def earliest_fit_index(
    world: World, run: RunState, demand: PodDemand, precedence: Precedence | None
) -> EarliestFitIndex:
    """Returns the index of the domains of the Run's flavor in which a payer of the Run pays.

    Its profiles are those for a promise of that precedence.
    """
    flavor: FlavorPool = world.fleet.flavor(run.flavor)
    selectors: Selectors | None = frozenset(payer.envelope.selector for payer in payer_candidates(world, run))
    if not selectors or () in selectors:
        selectors = None  # all domains
    key = (demand, world.promise_index.first_provisional_after(precedence), selectors)
    cached = EARLIEST_FIT_INDEXES.at(flavor.fit_version)
    index = cached.get(key)
    if index is None:
        domains = (flavor.domains[name] for _, _, name in flavor.packing_order)
        index = cached[key] = EarliestFitIndex(
            [
                availability_profile(world, domain, demand, precedence)
                for domain in domains
                if domain.capacity >= demand.size and (selectors is None or pays_in(domain, selectors))
            ]
        )
    return index
