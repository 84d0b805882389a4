"""Whether a domain can still keep all promises made on it (R2, R5).

Each promise must find its pods behind those made before it: when it is due, and whenever one of those begins
while its Run would run. What the earlier promises use depends on promises alone. So the pods that must fit at
each instant are added up once, by precedence, and compared with the availability profiles of the domain
whenever a Run was placed there. They are cached until a promise on the domain changes.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property

import msgspec

from jobtree.core.accounts.envelope_accounts import FOREVER
from jobtree.core.availability.availability_profile import (
    AvailabilityProfile,
    availability_profile,
    placement_demand,
    profile_for_promise,
)
from jobtree.core.availability.fragmentation import LargerPodOverlap
from jobtree.core.availability.misfit_pods import PodsBeside, PromisedPods, pods_beside
from jobtree.core.availability.node_shapes import has_misfits, is_misfit
from jobtree.core.availability.occupancy import domain_occupancy
from jobtree.core.availability.payer_placement import payer_selector_of_promise
from jobtree.core.availability.promised_lotteries import PromisedLotteries
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.promise import LOTTERY, NO_DISRUPTION, Disruption, Precedence, Promise
from jobtree.core.model.versioned_cache import VersionedCache
from jobtree.core.supply.domain import Domain
from jobtree.core.supply.node_slots import PodDemand
from jobtree.core.world.world import World

Moment = tuple[int, int | None]  # an instant; who could be drawn by the second one is immune then (R4)
PodsByMoment = dict[Moment, int]
# The instant is that from which on provisional work counts as free, as in availability profiles.
ProfileKey = tuple[PodDemand, Disruption, int | None]


class PromiseRequirement(msgspec.Struct, frozen=True):
    """The pods that must fit at some instants so that one promise is kept behind those before it."""

    demand: PodDemand
    disruption: Disruption
    precedence: Precedence
    at: int
    peace_since: int | None  # who could be drawn by then is immune when it is due (R4)
    pods_at_start: int  # that must fit with its disruption when it is due
    free_pods_later: tuple[tuple[int, int], ...]  # that must be free when an earlier promise begins
    own_pods: int
    larger_pod_overlaps: tuple[LargerPodOverlap, ...]  # with earlier promises of larger pods


class PromisedShare(msgspec.Struct, frozen=True):
    """A promise as it counts in one domain."""

    promise: Promise
    at: int
    end: int
    immune_until: int  # until when it cannot be drawn, at most its end
    gpus: int

    def pods(self, size: int) -> int:
        return -(-self.gpus // size)

    def is_misfit(self, size: int) -> bool:
        return is_misfit(self.promise.pod_size, size)

    def pods_of_own(self, now: int) -> PromisedPods:
        """Returns the promise as it counts from now on, in pods of its own size."""
        at, promise = max(self.at, now), self.promise
        return PromisedPods(
            at=at,
            end=self.end,
            immune_until=self.immune_until,
            gpus=self.gpus,
            size=promise.pod_size,
            disruption=promise.disruption,
            precedence=promise.precedence,
        )


def promised_share(domain: Domain, promise: Promise) -> PromisedShare:
    at, end = promise.at or 0, FOREVER if promise.end is None else promise.end
    gpus = sum(share for name, share in promise.domain_gpus if name == domain.name)
    return PromisedShare(promise, at, max(at, end), max(at, min(end, promise.immune_until)), gpus)


class PromisedPodCounts:
    """The pods of one size that promises use at each instant at which one of them begins."""

    def __init__(self, starts: Sequence[int], size: int) -> None:
        self._starts, self.size = starts, size
        self.until_end = [0] * len(starts)  # each promise counts until its end
        self.until_drawable = [0] * len(starts)  # each promise counts until a lottery may draw it

    def add(self, share: PromisedShare) -> None:
        if share.is_misfit(self.size):
            return  # these are counted by node shape
        pods = share.pods(self.size)
        first = bisect_left(self._starts, share.at)
        for counts, until in ((self.until_end, share.end), (self.until_drawable, share.immune_until)):
            for index in range(first, bisect_left(self._starts, until)):
                counts[index] += pods


class PromiseFeasibility:
    """What must fit into a domain so that all of some promises are kept, and whether it does."""

    def __init__(self, world: World, domain: Domain, promises: Iterable[Promise]) -> None:
        self._world, self._domain = world, domain
        ordered = sorted(promises, key=lambda promise: promise.precedence)
        shares = [promised_share(domain, promise) for promise in ordered]
        self._starts = sorted({share.at for share in shares})
        self._begun = [False] * len(self._starts)  # whether an earlier promise begins at that start
        self._counts = {
            size: PromisedPodCounts(self._starts, size)
            for size in sorted({promise.pod_size for promise in ordered})
        }
        self._earlier: list[PromisedShare] = []  # the promises before the one that is added
        self._requirements: list[PromiseRequirement] = []
        self._last_shortage: tuple[PodDemand, Disruption, Precedence, Moment, int] | None = None
        self._combined: dict[tuple[int, ...], dict[ProfileKey, tuple[Precedence, PodsByMoment]]] = {}
        self._misfits = has_misfits(self._counts)
        for share in shares:
            self._requirements.append(self._requirement(share))
            for counts in self._counts.values():
                counts.add(share)
            self._begun[bisect_left(self._starts, share.at)] = True
            self._earlier.append(share)

    def _requirement(self, share: PromisedShare) -> PromiseRequirement:
        """Returns what one promise requires behind those before it."""
        world, promise, size = self._world, share.promise, share.promise.pod_size
        at, own_pods, counts = max(share.at, world.now), share.pods(size), self._counts[size].until_end
        peace_since = self._peace_since(promise, at)
        within = range(bisect_right(self._starts, at), bisect_left(self._starts, share.end))
        selector = payer_selector_of_promise(world, promise)
        return PromiseRequirement(
            demand=placement_demand(world.runs[promise.run_key], size, selector),
            disruption=promise.disruption,
            precedence=promise.precedence,
            at=at,
            peace_since=peace_since,
            pods_at_start=own_pods + self._promised_pods_at(size, promise.disruption, at, peace_since),
            free_pods_later=tuple(
                [(self._starts[index], own_pods + counts[index]) for index in within if self._begun[index]]
            ),
            own_pods=own_pods,
            larger_pod_overlaps=tuple(self._larger_pod_overlaps(size, at, share.end)),
        )

    def _peace_since(self, promise: Promise, at: int) -> int | None:
        """Returns by when somebody had to be drawable to be immune when a promise is due; None: nobody is."""
        if promise.disruption != LOTTERY:
            return None
        gang = self._world.runs[promise.run_key].gang
        lotteries = (
            share.at
            for share in self._earlier
            if share.promise.disruption == LOTTERY and share.promise.run_key not in gang
        )
        return PromisedLotteries(lotteries, self._world.policy.peace_ms).peace_since(at)

    def _combined_requirements(self) -> dict[ProfileKey, tuple[Precedence, PodsByMoment]]:
        """Returns the most pods that any promise requires at each moment, by profile.

        Each entry has a precedence for which the profile holds.
        """
        occupancy = domain_occupancy(self._world, self._domain)
        key = tuple(occupancy.provisional_since)
        combined = self._combined.get(key)
        if combined is None:
            combined = self._combined[key] = {}
            for requirement in self._requirements:
                precedence = requirement.precedence
                provisional_from = occupancy.first_provisional_after(precedence)
                start = (requirement.at, requirement.peace_since)
                later = [((at, None), pods) for at, pods in requirement.free_pods_later]
                for disruption, required in (
                    (requirement.disruption, [(start, requirement.pods_at_start)]),
                    (NO_DISRUPTION, later),
                ):
                    profile_key = (requirement.demand, disruption, provisional_from)
                    _, most = combined.setdefault(profile_key, (precedence, {}))
                    for moment, pods in required:
                        most[moment] = max(pods, most.get(moment, 0))
        return combined

    def _promised_pods_at(self, size: int, disruption: Disruption, at: int, peace_since: int | None) -> int:
        """Returns the pods of that size that earlier promises use at an instant, and that cannot be drawn."""
        if peace_since is not None:
            return sum(
                share.pods(size)
                for share in self._earlier
                if not share.is_misfit(size)
                and share.at <= at
                and share.end > peace_since
                and not peace_since < share.immune_until <= at
            )
        index = bisect_left(self._starts, at)
        if index < len(self._starts) and self._starts[index] == at:
            counts = self._counts[size]
            return (counts.until_drawable if disruption == LOTTERY else counts.until_end)[index]
        return sum(
            share.pods(size)
            for share in self._earlier
            if not share.is_misfit(size)
            and share.at <= at < (share.immune_until if disruption == LOTTERY else share.end)
        )

    def _larger_pod_overlaps(self, size: int, at: int, end: int) -> Iterable[LargerPodOverlap]:
        """Yields, for each larger pod size, the earlier promises that begin while the Run would run."""
        for larger_size, counts in self._counts.items():
            earlier = self._earlier if larger_size > size else ()
            starts = {
                share.at for share in earlier if share.promise.pod_size == larger_size and at < share.at < end
            }
            if not starts:
                continue
            whole_pods, present = counts.until_end, (share for share in earlier if share.at <= at < share.end)
            yield LargerPodOverlap(
                at=at,
                size=size,
                larger_size=larger_size,
                promised=tuple(
                    (start, whole_pods[bisect_left(self._starts, start)]) for start in sorted(starts)
                ),
                smaller_pods=sum(
                    share.pods(size) for share in present if share.promise.pod_size < larger_size
                ),
            )

    def is_feasible(self) -> bool:
        """Whether everything that is required fits; what did not fit last time is checked first."""
        if self._last_shortage is not None and not self._fits(*self._last_shortage):
            return False
        for (demand, disruption, _), (precedence, required) in self._combined_requirements().items():
            profile = availability_profile(self._world, self._domain, demand, precedence)
            for moment, pods in required.items():
                if pods_at(profile, disruption, moment) < pods:
                    self._last_shortage = (demand, disruption, precedence, moment, pods)
                    return False
        return all(
            self._leaves_larger_pods_whole(requirement)
            for requirement in self._requirements
            if requirement.larger_pod_overlaps
        ) and (
            not self._misfits or all(self._fits_beside_misfits(*beside) for beside in self._beside_misfits)
        )

    def _fits(
        self, demand: PodDemand, disruption: Disruption, precedence: Precedence, moment: Moment, pods: int
    ) -> bool:
        profile = availability_profile(self._world, self._domain, demand, precedence)
        return pods_at(profile, disruption, moment) >= pods

    def _leaves_larger_pods_whole(self, requirement: PromiseRequirement) -> bool:
        """Whether a promise finds its pods without breaking up nodes of earlier promises of larger pods."""
        profile = availability_profile(self._world, self._domain, requirement.demand, requirement.precedence)
        return not profile.all_usable or all(
            overlap.pods(profile.node_availability, requirement.disruption) >= requirement.own_pods
            for overlap in requirement.larger_pod_overlaps
        )

    @cached_property
    def _beside_misfits(self) -> list[tuple[PromisedShare, PodsBeside, PodsBeside | None]]:
        """The promises that misfits are beside, counted until they end, and until a lottery may draw them."""
        counted = {
            share.pods_of_own(self._world.now): share for share in self._earlier if self._anywhere(share)
        }
        drawable = {beside.promise: beside for beside in pods_beside([*counted], LOTTERY) if beside.misfits}
        return [
            (counted[beside.promise], beside, drawable.get(beside.promise))
            for beside in pods_beside([*counted], NO_DISRUPTION)
            if beside.misfits
        ]

    def _anywhere(self, share: PromisedShare) -> bool:
        """Whether its pods may use all nodes."""
        return profile_for_promise(self._world, self._domain, share.promise).all_usable

    def _fits_beside_misfits(
        self, share: PromisedShare, until_end: PodsBeside, until_drawable: PodsBeside | None
    ) -> bool:
        """Whether a promise finds its pods wherever the misfits start.

        Beside a promise that was made later it must find them without taking more.
        """
        at, promise = until_end.promise.at, share.promise
        availability = profile_for_promise(self._world, self._domain, promise).node_availability
        if until_end.room(availability, NO_DISRUPTION) >= 0:
            return True
        if any(
            other.at < at < other.end and other.promise.precedence > promise.precedence
            for other in self._earlier
        ):
            return False
        beside = until_drawable if promise.disruption == LOTTERY else until_end
        return beside is None or beside.room(availability, promise.disruption) >= 0


def pods_at(profile: AvailabilityProfile, disruption: Disruption, moment: Moment) -> int:
    """Returns how many pods fit at that moment if no promise counts."""
    at, peace_since = moment
    if peace_since is None:
        return profile.max_pods(disruption, at)
    return profile.max_pods_in_peace(at, peace_since)


# By the Run whose promise is left out, and by the precedence of the promises that count.
FEASIBILITIES = VersionedCache[tuple[RunKey | None, Precedence | None], PromiseFeasibility]()


def keeps_all_promises(world: World, domain: Domain, run_key: RunKey, precedence: Precedence | None) -> bool:
    """Whether the domain keeps all promises that hold against a Run which was placed there (R6).

    Those are the promises made before that precedence; without one, all except the Run's own, since the Run
    starts in place of it. All promises of the domain are checked first: if these are kept, so are fewer, and
    that answer is the same for all Runs.
    """
    return (
        promise_feasibility(world, domain, None, None).is_feasible()
        or promise_feasibility(world, domain, run_key, precedence).is_feasible()
    )


def promise_feasibility(
    world: World, domain: Domain, run_key: RunKey | None, precedence: Precedence | None
) -> PromiseFeasibility:
    """Returns what the promises made before that precedence require, except the Run's own; None: all."""
    promises = [
        promise
        for promise in domain.promises.values()
        if promise.at is not None
        and promise.run_key != run_key
        and (precedence is None or promise.precedence < precedence)
    ]
    key = (run_key if run_key in domain.promises else None, precedence)
    cached = FEASIBILITIES.at(domain.feasibility_version)
    feasibility = cached.get(key)
    overdue = any(promise.at is not None and promise.at < world.now for promise in promises)
    if feasibility is None or overdue:  # what an overdue promise requires depends on the present instant
        feasibility = cached[key] = PromiseFeasibility(world, domain, promises)
    return feasibility
