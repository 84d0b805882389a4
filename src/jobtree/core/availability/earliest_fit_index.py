"""The skyline of a flavor: the horizons of all its domains for one kind of pod, side by side.

Whoever looks ahead asks every domain when it could first hold so many pods. Here the domains stand in the
order of that instant, or of one that is never later, so a search reads them from the front and stops as soon
as the next could not be sooner than what it has. A skyline is remembered until a lease, a node or a payer's
window changes in one of its domains; promises come and go under it.
"""

from enum import IntEnum
from operator import itemgetter

from jobtree.core.availability.availability_profile import AvailabilityProfile, availability_profile
from jobtree.core.availability.payer_placement import pays_in
from jobtree.core.model.promise import Disruption, Precedence
from jobtree.core.model.versioned_cache import VersionedCache
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.flavor_pool import FlavorPool
from jobtree.core.supply.node_slots import NodeSelector, PodDemand
from jobtree.core.world.payer_candidates import payer_candidates
from jobtree.core.world.world import World

Selectors = frozenset[NodeSelector]


class PromiseScope(IntEnum):
    """Whose promises count for somebody who looks ahead."""

    APART = 0  # none that is known here: only who stands there now
    STAYING = 1  # all of them, for as long as it may stay
    PASSING = 2  # all of them, as of the instant at which it comes


FitEntry = tuple[int, int, AvailabilityProfile]  # the first instant, the place in pack order


class EarliestFitIndex:
    """Horizons in pack order, and in the order in which they could first hold so many pods."""

    def __init__(self, horizons: list[AvailabilityProfile]) -> None:
        self.horizons = horizons
        self.roomiest = max((one.capacity for one in horizons), default=0)
        self._capacities: dict[int, int] = {}
        self._known: dict[tuple[PromiseScope, Disruption, int], EarliestFitOrder] = {}

    def by_earliest_fit(self, standpoint: PromiseScope, disruption: Disruption, pods: int) -> list[FitEntry]:
        """Domains by the first instant at which each might hold so many; no sooner can it be."""
        known = self._known.get((standpoint, disruption, pods))
        if known is None:
            known = self._known[standpoint, disruption, pods] = EarliestFitOrder(
                self.horizons, standpoint, disruption, pods
            )
        return known.entries()

    def capacity(self, chunk: int) -> int:
        """Whole chunks of pods that the empty fleet could hold."""
        known = self._capacities.get(chunk)
        if known is None:
            known = self._capacities[chunk] = sum(one.capacity // chunk for one in self.horizons)
        return known


class EarliestFitOrder:
    """One such order. Where promises count, domains are read anew whose promises have changed."""

    def __init__(
        self, horizons: list[AvailabilityProfile], standpoint: PromiseScope, disruption: Disruption, pods: int
    ) -> None:
        self._horizons = horizons
        self._standpoint, self._disruption, self._pods = standpoint, disruption, pods
        self._promised = [one.domain.promise_version for one in horizons]
        self._firsts = [self._first(one) for one in horizons]
        self._entries: list[FitEntry] | None = None

    def _first(self, one: AvailabilityProfile) -> int | None:
        if self._standpoint is PromiseScope.APART:
            return one.first(self._disruption, self._pods)
        return one.profile(self._disruption).first(
            self._pods, staying=self._standpoint is PromiseScope.STAYING
        )

    def entries(self) -> list[FitEntry]:
        if self._standpoint is not PromiseScope.APART:
            self._read_changed()
        if self._entries is None:
            places = enumerate(zip(self._firsts, self._horizons, strict=True))
            found = [(first, place, one) for place, (first, one) in places if first is not None]
            found.sort(key=itemgetter(0, 1))
            self._entries = found
        return self._entries

    def _read_changed(self) -> None:
        promised = [one.domain.promise_version for one in self._horizons]
        if promised != self._promised:
            for place, one in enumerate(self._horizons):
                if promised[place] != self._promised[place]:
                    self._firsts[place] = self._first(one)
            self._promised, self._entries = promised, None


# By pod, by the provisional work that is left out, and by the selectors of the payers (None: any node).
EARLIEST_FIT_INDEXES = VersionedCache[tuple[PodDemand, int | None, Selectors | None], EarliestFitIndex]()


def earliest_fit_index(
    world: World, run: RunState, demand: PodDemand, precedence: Precedence | None
) -> EarliestFitIndex:
    """The skyline of the Run's flavor where somebody pays for it, as somebody of that rank sees it."""
    flavor: FlavorPool = world.fleet.flavor(run.flavor)
    selectors: Selectors | None = frozenset(one.envelope.selector for one in payer_candidates(world, run))
    if not selectors or () in selectors:
        selectors = None  # anywhere
    key = (demand, world.promise_index.first_provisional_after(precedence), selectors)
    cached = EARLIEST_FIT_INDEXES.at(flavor.fit_version)
    known = cached.get(key)
    if known is None:
        domains = (flavor.domains[name] for _, _, name in flavor.packing_order)
        known = cached[key] = EarliestFitIndex(
            [
                availability_profile(world, one, demand, precedence)
                for one in domains
                if one.capacity >= demand.size and (selectors is None or pays_in(one, selectors))
            ]
        )
    return known
