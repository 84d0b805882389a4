"""What the promises on a domain need of it together: so that all of them can be kept (R2, R5).

Each promise must find its pods behind those made before it, when it is due and whenever one of those begins
while it would run. What those take up is a matter of the promises alone: so what must fit at which instant is
summed up once, in the order in which promises were made, and held against the domain's horizons whenever
somebody has been placed there. It is remembered until a promise on the domain changes.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

import msgspec

from jobtree.core.accounts.envelope_accounts import FOREVER
from jobtree.core.availability.availability_profile import availability_profile, placement_demand
from jobtree.core.availability.fragmentation import LargerPodInterval
from jobtree.core.availability.occupancy import domain_occupancy
from jobtree.core.availability.payer_placement import placement_of_promise
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.promise import LOTTERY, NO_DISRUPTION, Disruption, Precedence, Promise
from jobtree.core.model.versioned_cache import VersionedCache
from jobtree.core.supply.domain import Domain
from jobtree.core.supply.node_slots import PodDemand
from jobtree.core.world.world import World

Pods = dict[int, int]  # by instant
FeasibilityKey = tuple[
    PodDemand, Disruption, int | None
]  # and from when provisional work began that yields to who looks


class FeasibilityTest(msgspec.Struct, frozen=True):
    """What one promise needs: pods of its own at some instants, with those before it that are there then."""

    demand: PodDemand
    disruption: Disruption
    precedence: Precedence
    at: int
    then: int  # pods when it is due, at its level
    later: tuple[tuple[int, int], ...]  # while it would run, free ones: whenever an earlier one begins
    own: int
    between: tuple[LargerPodInterval, ...]  # earlier ones with larger pods


class PromisedShare(msgspec.Struct, frozen=True):
    """A promise as it counts in one domain."""

    promise: Promise
    at: int
    end: int
    firm_until: int
    gpus: int

    def pods(self, size: int) -> int:
        return -(-self.gpus // size)


def promised_share(domain: Domain, promise: Promise) -> PromisedShare:
    at, end = promise.at or 0, FOREVER if promise.end is None else promise.end
    gpus = sum(share for name, share in promise.domain_gpus if name == domain.name)
    return PromisedShare(promise, at, max(at, end), max(at, min(end, promise.immune_until)), gpus)


class PromisedPodCounts:
    """Pods of one size that promises take up at each instant at which one of them begins."""

    def __init__(self, starts: Sequence[int], size: int) -> None:
        self._starts, self.size = starts, size
        self.by_end = [0] * len(starts)
        self.by_firm = [0] * len(starts)  # as a lottery sees them

    def add(self, claim: PromisedShare) -> None:
        pods = claim.pods(self.size)
        first = bisect_left(self._starts, claim.at)
        for row, until in ((self.by_end, claim.end), (self.by_firm, claim.firm_until)):
            for place in range(first, bisect_left(self._starts, until)):
                row[place] += pods


class PromiseFeasibility:
    """Pods that must fit at each instant, as every one of these promises sees the domain."""

    def __init__(self, world: World, domain: Domain, promises: Iterable[Promise]) -> None:
        self._world, self._domain = world, domain
        ordered = sorted(promises, key=lambda promise: promise.precedence)
        claims = [promised_share(domain, promise) for promise in ordered]
        self._starts = sorted({claim.at for claim in claims})
        self._begun = [False] * len(self._starts)
        self._taken = {
            size: PromisedPodCounts(self._starts, size) for size in sorted({p.pod_size for p in ordered})
        }
        self._before: list[PromisedShare] = []
        self._needs: list[FeasibilityTest] = []
        self._lacked: tuple[PodDemand, Disruption, Precedence, int, int] | None = None
        self._together: dict[tuple[int, ...], dict[FeasibilityKey, tuple[Precedence, Pods]]] = {}
        for claim in claims:
            self._needs.append(self._need(claim))
            for taken in self._taken.values():
                taken.add(claim)
            self._begun[bisect_left(self._starts, claim.at)] = True
            self._before.append(claim)

    def _need(self, claim: PromisedShare) -> FeasibilityTest:
        """What one promise needs behind those before it."""
        world, promise, size = self._world, claim.promise, claim.promise.pod_size
        at, own, row = max(claim.at, world.now), claim.pods(size), self._taken[size].by_end
        within = range(bisect_right(self._starts, at), bisect_left(self._starts, claim.end))
        return FeasibilityTest(
            demand=placement_demand(world.runs[promise.run_key], size, placement_of_promise(world, promise)),
            disruption=promise.disruption,
            precedence=promise.precedence,
            at=at,
            then=own + self._promised_pods_at(size, promise.disruption, at),
            later=tuple([(self._starts[one], own + row[one]) for one in within if self._begun[one]]),
            own=own,
            between=tuple(self._larger(size, at, claim.end)),
        )

    def _all_together(self) -> dict[FeasibilityKey, tuple[Precedence, Pods]]:
        """The most that any of them needs at each instant, of those that see the domain alike."""
        tenants = domain_occupancy(self._world, self._domain)
        key = tuple(tenants.provisional_since)
        known = self._together.get(key)
        if known is None:
            known = self._together[key] = {}
            for one in self._needs:
                threshold = tenants.provisional_since_threshold(one.precedence)
                for disruption, pods in ((one.disruption, ((one.at, one.then),)), (NO_DISRUPTION, one.later)):
                    _, most = known.setdefault((one.demand, disruption, threshold), (one.precedence, {}))
                    for at, need in pods:
                        most[at] = max(need, most.get(at, 0))
        return known

    def _promised_pods_at(self, size: int, disruption: Disruption, at: int) -> int:
        """Pods of that size that earlier promises take up at an instant."""
        place = bisect_left(self._starts, at)
        if place < len(self._starts) and self._starts[place] == at:
            taken = self._taken[size]
            return (taken.by_firm if disruption == LOTTERY else taken.by_end)[place]
        return sum(
            one.pods(size)
            for one in self._before
            if one.at <= at < (one.firm_until if disruption == LOTTERY else one.end)
        )

    def _larger(self, size: int, at: int, end: int) -> Iterable[LargerPodInterval]:
        """For every larger size of pod, those promised before that begin while it would run."""
        for above, taken in self._taken.items():
            others = self._before if above > size else ()
            begins = {one.at for one in others if one.promise.pod_size == above and at < one.at < end}
            if not begins:
                continue
            row, present = taken.by_end, (one for one in others if one.at <= at < one.end)
            yield LargerPodInterval(
                at=at,
                size=size,
                above=above,
                taken=tuple((start, row[bisect_left(self._starts, start)]) for start in sorted(begins)),
                below=sum(one.pods(size) for one in present if one.promise.pod_size < above),
            )

    def is_feasible(self) -> bool:
        """Whether the domain has all that is needed now. What lacked last time is looked at first."""
        if self._lacked is not None and not self._fits(*self._lacked):
            return False
        for (demand, disruption, _), (precedence, pods) in self._all_together().items():
            one = availability_profile(self._world, self._domain, demand, precedence)
            for at, need in pods.items():
                if one.max_pods(disruption, at) < need:
                    self._lacked = (demand, disruption, precedence, at, need)
                    return False
        return all(self._beside_larger(need) for need in self._needs if need.between)

    def _fits(
        self, demand: PodDemand, disruption: Disruption, precedence: Precedence, at: int, pods: int
    ) -> bool:
        return (
            availability_profile(self._world, self._domain, demand, precedence).max_pods(disruption, at)
            >= pods
        )

    def _beside_larger(self, need: FeasibilityTest) -> bool:
        """Whether it leaves whole nodes to earlier ones with larger pods."""
        one = availability_profile(self._world, self._domain, need.demand, need.precedence)
        return not one.all_usable or all(
            between.pods(one.node_availability, need.disruption) >= need.own for between in need.between
        )


FEASIBILITIES = VersionedCache[tuple[RunKey | None, Precedence | None], PromiseFeasibility]()


def keeps_all_promises(world: World, domain: Domain, run_key: RunKey, precedence: Precedence | None) -> bool:
    """Whether the domain keeps all promises that hold against a Run, now that it stands there (R6).

    Those are all that were made before that rank; without one all but its own, in place of which it starts.
    Where even with that one all are kept, they are without.
    """
    return (
        promise_feasibility(world, domain, None, None).is_feasible()
        or promise_feasibility(world, domain, run_key, precedence).is_feasible()
    )


def promise_feasibility(
    world: World, domain: Domain, run_key: RunKey | None, precedence: Precedence | None
) -> PromiseFeasibility:
    """What all promises need but that Run's, of those made before that rank (all, without one)."""
    promises = [
        one
        for one in domain.promises.values()
        if one.at is not None
        and one.run_key != run_key
        and (precedence is None or one.precedence < precedence)
    ]
    key = (run_key if run_key in domain.promises else None, precedence)
    cached = FEASIBILITIES.at(domain.feasibility_version)
    feasibility = cached.get(key)
    late = any(promise.at is not None and promise.at < world.now for promise in promises)
    if feasibility is None or late:
        feasibility = cached[key] = PromiseFeasibility(world, domain, promises)
    return feasibility
