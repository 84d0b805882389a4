"""How many pods of a kind a domain can hold at any future instant (R2–R4).

There are four answers, by disruption: GPUs that are free by known ends; in addition spares and the steps of
malleable Runs; in addition all GPUs whose Runs are not immune to a lottery, or those of Runs that a recall
stops. Opportunistic work always counts as free, and provisional work counts as free for promises that were
made before it started. Promises count by number of pods, on whatever nodes the pods will run. So a promise
does not break if a lottery ends in another way than forecast.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property, partial
from itertools import accumulate

from jobtree.core.accounts.budget_timeline import CumulativeSum
from jobtree.core.accounts.envelope_accounts import FOREVER
from jobtree.core.availability.fragmentation import FragmentationBound
from jobtree.core.availability.misfit_pods import MisfitBound, PromisedPods
from jobtree.core.availability.node_availability import NodeAvailability
from jobtree.core.availability.node_shapes import has_misfits, is_misfit
from jobtree.core.availability.occupancy import (
    OccupancyView,
    domain_occupancy,
    occupancy_view,
    occupancy_view_without,
)
from jobtree.core.availability.payer_placement import payer_selector_of_promise
from jobtree.core.availability.promised_lotteries import PromisedLotteries
from jobtree.core.availability.step_functions import StepFunction, pods_over_time
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.promise import (
    LOTTERY,
    NO_DISRUPTION,
    STRUCTURAL,
    Disruption,
    Precedence,
    Promise,
)
from jobtree.core.model.versioned_cache import VersionedCache
from jobtree.core.runs.notice import DrawNotice
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.domain import Domain
from jobtree.core.supply.node_slots import NodeSelector, PodDemand
from jobtree.core.world.world import World

DISRUPTIONS: tuple[Disruption, ...] = (0, 1, 2, 3)


class AvailabilityProfile:
    """How many pods of one kind a domain can hold over time, by what is known now."""

    def __init__(self, domain: Domain, size: int, view: OccupancyView, peace_ms: int = 0) -> None:
        self.domain = domain
        self.size = size  # GPUs of one pod
        self._view = view
        self._peace_ms = peace_ms
        self._pods_in_peace: dict[int, StepFunction] = {}  # by the instant of a promised lottery
        self._pods_over_time: list[StepFunction | None] = [None for _ in DISRUPTIONS]
        self._longest_notices: tuple[list[int], list[int]] | None = None
        self._by_promises = PromiseDependentCache(domain.promise_version)
        self._by_earlier_promises: PromiseDependentCache | None = None

    def _promise_cache(self) -> "PromiseDependentCache":
        """Returns the answers for the present promises; those for earlier ones are kept for their return."""
        current, version = self._by_promises, self.domain.promise_version
        if current.version != version:
            earlier = self._by_earlier_promises
            if not current.is_empty:
                self._by_earlier_promises = current
            if earlier is None or earlier.version != version:
                earlier = PromiseDependentCache(version)
            current = self._by_promises = earlier
        return current

    @property
    def draw_notices(self) -> set[DrawNotice]:
        """The notices of all Runs that could be drawn here."""
        return self._view.draw_notices

    @cached_property
    def capacity_pods(self) -> int:
        """How many pods would fit if nothing but foreign pods ran here."""
        states = (self.domain.nodes[name] for name in self._view.usable)
        return sum([max(0, state.node.gpus - state.foreign) // self.size for state in states])

    def _steps(self, disruption: Disruption) -> StepFunction:
        """Returns the pods that fit over time if no promise counts; computed at the first call."""
        cached = self._pods_over_time[disruption]
        if cached is None:
            cached = self._pods_over_time[disruption] = pods_over_time(
                self._view.free, self._view.releases(disruption), self.size
            )
        return cached

    def promises_before(self, run_key: RunKey | None, precedence: Precedence | None) -> "PromisedPodTotals":
        """Returns the promises of other Runs made before that precedence; None: whenever they were made."""
        promises = self.domain.promises
        key = (precedence, run_key if run_key in promises else None)
        cached = self._promise_cache().totals
        totals = cached.get(key)
        if totals is None:
            promised = (
                self._promised_pods(promise)
                for promise in promises.values()
                if promise.at is not None
                and promise.run_key != run_key
                and (precedence is None or promise.precedence < precedence)
            )
            counted = list(promised)
            misfits = None
            if has_misfits({self.size, *(promise.size for promise in counted)}):
                misfits = MisfitBound(self.size, self.node_availability, counted)
            totals = PromisedPodTotals(self.size, counted, partial(self.max_pods, 0), misfits)
            if self.all_usable and totals.largest_pod > self.size:
                totals.fragmentation = FragmentationBound(self.size, self.node_availability, counted)
            cached[key] = totals
        return totals

    def lotteries_before(
        self, run_keys: Collection[RunKey], precedence: Precedence | None
    ) -> PromisedLotteries:
        """Returns the lotteries of promises made before that precedence, except those of these Runs."""
        promises = self.domain.promises
        key = (precedence, frozenset(run_key for run_key in run_keys if run_key in promises))
        cached = self._promise_cache().lotteries
        lotteries = cached.get(key)
        if lotteries is None:
            instants = (
                promise.at
                for promise in promises.values()
                if promise.at is not None
                and promise.disruption == LOTTERY
                and promise.run_key not in key[1]
                and (precedence is None or promise.precedence < precedence)
            )
            lotteries = cached[key] = PromisedLotteries(instants, self._peace_ms)
        return lotteries

    @property
    def node_availability(self) -> NodeAvailability:
        """The free GPUs of each usable node over time."""
        return self._view.node_availability

    @cached_property
    def all_usable(self) -> bool:
        """Whether these pods may use all nodes, so that larger pods can use no others."""
        return len(self._view.usable) == sum(state.is_schedulable for state in self.domain.nodes.values())

    def _promised_pods(self, promise: Promise) -> "PromisedPods":
        assert promise.at is not None
        gpus = sum(share for name, share in promise.domain_gpus if name == self.domain.name)
        end = FOREVER if promise.end is None else promise.end
        immune_until = min(end, promise.immune_until)
        return PromisedPods(
            at=promise.at,
            end=end,
            immune_until=immune_until,
            gpus=gpus,
            size=promise.pod_size,
            disruption=promise.disruption,
            precedence=promise.precedence,
        )

    def max_pods(self, disruption: Disruption, at: int) -> int:
        """Returns how many pods fit at that instant if no promise counts: never fewer than with promises."""
        times, pods = self._steps(disruption)
        return pods[bisect_right(times, at) - 1]

    def max_pods_in_peace(self, at: int, since: int) -> int:
        """The same for a lottery that may draw only whom a lottery at ``since`` could not (R4)."""
        if since >= at:
            return self.max_pods(STRUCTURAL, at)
        steps = self._pods_in_peace.get(since)
        if steps is None:
            releases = self._view.releases_in_peace(since)
            steps = self._pods_in_peace[since] = pods_over_time(self._view.free, releases, self.size)
        times, pods = steps
        return pods[bisect_right(times, at) - 1]

    def pods(  # noqa: PLR0913, PLR0917  one question with its circumstances
        self,
        disruption: Disruption,
        at: int,
        end: int,
        run_key: RunKey | None,
        precedence: Precedence | None,
        gang: Collection[RunKey] = (),
    ) -> int:
        """Returns how many pods a Run may have that starts at ``at`` and has certainly ended at ``end``.

        Promises made before ``precedence`` that begin in between must find as much free as without the Run
        (R6). Without a precedence all promises count, but the Run's own promise does not limit it (R7).
        Between two lotteries lies ``peace`` (R4), unless the Run starts together with the ``gang``.
        """
        pods, totals, own = self._count(disruption, at, end, run_key, precedence)
        if disruption == LOTTERY and totals is not None:
            together = gang or (() if run_key is None else (run_key,))
            since = self.lotteries_before(together, precedence).peace_since(at)
            if since is not None:
                left = self.max_pods_in_peace(at, since) - totals.promised_pods_in_peace(at, since, own)
                pods = min(pods, left)
        if totals is None or totals.fragmentation is None or pods <= 0:
            return pods
        return totals.fragmentation.pods(disruption, at, end, pods, own)

    def promisable_pods(  # noqa: PLR0913, PLR0917  one question with its circumstances
        self,
        disruption: Disruption,
        at: int,
        end: int,
        run_key: RunKey | None,
        precedence: Precedence | None,
        gang: Collection[RunKey] = (),
    ) -> int:
        """Returns how many of these pods the Run may be promised, wherever they will start.

        A Run that starts now is placed on known nodes, so there it is checked what its pods leave.
        """
        pods = self.pods(disruption, at, end, run_key, precedence, gang)
        if pods <= 0 or not self.domain.promises:
            return pods
        totals, own = self._totals(run_key, precedence)
        return pods if totals.misfits is None else totals.misfits.pods(at, end, pods, own)

    def counted_pods(self, at: int, end: int, run_key: RunKey | None) -> int:
        """Returns an upper bound on ``pods`` behind all promises: the count, whatever nodes are broken up."""
        return self._count(0, at, end, run_key, None)[0]

    def _count(
        self, disruption: Disruption, at: int, end: int, run_key: RunKey | None, precedence: Precedence | None
    ) -> "tuple[int, PromisedPodTotals | None, PromisedPods | None]":
        """Returns the pods that promises leave, these promises, and the Run's own promise if it counts."""
        pods = self.max_pods(disruption, at)
        if not self.domain.promises:
            return pods, None, None
        totals, own = self._totals(run_key, precedence)
        left = pods - totals.promised_pods_at(disruption, at, own)
        return min(left, totals.lowest_left_between(at, end, own)), totals, own

    def _totals(
        self, run_key: RunKey | None, precedence: Precedence | None
    ) -> "tuple[PromisedPodTotals, PromisedPods | None]":
        """Returns the promises that count for a Run, and the Run's own promise if it counts."""
        promise = self.domain.promises.get(run_key) if run_key is not None and precedence is None else None
        own = None if promise is None or promise.at is None else self._promised_pods(promise)
        # These include the own promise, so that all Runs share them.
        return self.promises_before(run_key if own is None else None, precedence), own

    def behind_promises(self, disruption: Disruption) -> "ProfileBehindPromises":
        """Returns how many pods fit behind all promises over time, for a Run without a promise here."""
        cached = self._promise_cache().profiles
        profile = cached.get(disruption)
        if profile is None:
            starts, pods_then = self._steps(disruption)
            profile = ProfileBehindPromises(disruption, starts, pods_then, pods_then, None)
            if self.domain.promises:
                totals = self.promises_before(None, None)
                starts = self.increase_instants(disruption, None, None)
                pods_then = [self._pods_behind(totals, disruption, at) for at in starts]
                counted = [
                    min(pods, totals.lowest_left_after(at))
                    for at, pods in zip(starts, pods_then, strict=True)
                ]
                profile = ProfileBehindPromises(disruption, starts, pods_then, counted, totals)
            cached[disruption] = profile
        return profile

    def _pods_behind(self, totals: "PromisedPodTotals", disruption: Disruption, at: int) -> int:
        """Returns how many pods fit behind all promises at an instant, for however short a time."""
        pods = self.max_pods(disruption, at) - totals.promised_pods_at(disruption, at)
        since = self.lotteries_before((), None).peace_since(at) if disruption == LOTTERY else None
        if since is None:
            return pods
        return min(pods, self.max_pods_in_peace(at, since) - totals.promised_pods_in_peace(at, since, None))

    def first_fit(self, disruption: Disruption, pods: int) -> int | None:
        """Returns the first instant at which the pods fit if no promise counts; None: never."""
        times, counts = self._steps(disruption)
        step = bisect_left(counts, pods)
        return times[step] if step < len(times) else None

    def pods_from(self, disruption: Disruption, at: int) -> Iterator[tuple[int, int]]:
        """Yields ``at`` and each later increase, with the pods that fit then if no promise counts."""
        times, pods = self._steps(disruption)
        step = bisect_right(times, at) - 1
        yield at, pods[step]
        yield from zip(times[step + 1 :], pods[step + 1 :], strict=True)

    def increase_instants(
        self, disruption: Disruption, run_key: RunKey | None, precedence: Precedence | None
    ) -> list[int]:
        """Returns the instants at which more pods may fit than before, in order.

        These include the starts of promises: what is left at such a start does not limit later Runs.
        """
        instants = set(self._steps(disruption)[0])
        for promised in self.promises_before(run_key, precedence).promised:
            instants.update((promised.at, promised.immune_until if disruption == LOTTERY else promised.end))
        if disruption == LOTTERY:
            own = () if run_key is None else (run_key,)
            instants.update(self.lotteries_before(own, precedence).change_instants())
        instants.discard(FOREVER)
        return sorted(instants)

    def longest_draw_notice(self, at: int) -> int:
        """Returns the longest notice that a Run needs which could be drawn here at that instant."""
        if self._longest_notices is None:
            instants = sorted({instant for immune, end, _ in self.draw_notices for instant in (immune, end)})
            longest = [
                max(
                    [notice for immune, end, notice in self.draw_notices if immune <= instant < end],
                    default=0,
                )
                for instant in instants
            ]
            self._longest_notices = (instants, [0, *longest])
        instants, longest = self._longest_notices
        return longest[bisect_right(instants, at)]

    def all_had_notice(self, now: int, at: int) -> bool:
        """Whether all Runs that could be drawn here at that instant have had notice if it is given now."""
        return at >= now + self._view.longest_notice or at >= now + self.longest_draw_notice(at)


class ProfileBehindPromises:
    """How many pods fit behind all promises over time, for a Run without a promise.

    How many pods an open-ended Run may have is counted at once for each instant. If larger pods or misfits
    are promised, the nodes are examined too, but only at instants where the count suffices.
    """

    __slots__ = ("_counted", "_disruption", "_open_ended", "_pods_then", "_totals", "starts")

    def __init__(
        self,
        disruption: Disruption,
        starts: list[int],
        pods_then: list[int],
        counted: list[int],
        totals: "PromisedPodTotals | None",
    ) -> None:
        self._disruption = disruption
        self.starts = starts
        self._pods_then = pods_then  # pods that fit at each of the starts, for however short a time
        self._counted = counted  # an upper bound on the pods of an open-ended Run, by counting
        self._totals = totals if totals is not None and totals.is_limited else None
        self._open_ended: dict[int, int] = {}  # pods of an open-ended Run, by index

    def _open_ended_at(self, index: int) -> int:
        if self._totals is None:
            return self._counted[index]
        cached = self._open_ended.get(index)
        if cached is None:
            at, counted = self.starts[index], self._counted[index]
            cached = self._totals.limited(self._disruption, at, FOREVER, counted, None)
            self._open_ended[index] = cached
        return cached

    def _indexes_with(self, pods: int, first: int) -> Iterator[int]:
        """Yields the indexes from ``first`` on at which an open-ended Run may have that many pods."""
        for index, counted in enumerate(self._counted[first:], first):
            if counted >= pods and self._open_ended_at(index) >= pods:
                yield index

    def first_fit(self, pods: int, *, open_ended: bool) -> int | None:
        """Returns the first instant at which the pods fit, for good if ``open_ended``; None: never."""
        if open_ended:
            return next((self.starts[index] for index in self._indexes_with(pods, 0)), None)
        pairs = zip(self.starts, self._pods_then, strict=True)
        return next((start for start, fitting in pairs if fitting >= pods), None)

    def open_ended_pods(self, at: int) -> int:
        """Returns how many pods an open-ended Run may have that starts at that instant."""
        return self._open_ended_at(bisect_right(self.starts, at) - 1)

    def intervals_with(self, pods: int, at: int) -> Iterator[tuple[int, int, int]]:
        """Yields each interval, from that of ``at`` on, in which an open-ended Run may start with the pods.

        Each has a start, an end, and how many pods the Run may have.
        """
        for index in self._indexes_with(pods, bisect_right(self.starts, at) - 1):
            end = self.starts[index + 1] if index + 1 < len(self.starts) else FOREVER
            yield self.starts[index], end, self._open_ended_at(index)


class PromisedPodTotals:
    """The promises in one domain, added up over time in pods of one size.

    ``max_pods`` returns what fits at an instant if no promise counts. So what these promises leave when each
    of them begins is computed once. Misfits are counted apart (``MisfitBound``). The own promise of a Run
    (``own``) may be one of them and then counts as free for the Run.
    """

    __slots__ = (
        "_begun",
        "_count_by_start",
        "_ended",
        "_immunity_ended",
        "_left",
        "_lowest_left",
        "_size",
        "_starts",
        "fragmentation",
        "largest_pod",
        "misfits",
        "promised",
    )

    def __init__(
        self,
        size: int,
        promised: Sequence[PromisedPods],
        max_pods: Callable[[int], int],
        misfits: MisfitBound | None = None,
    ) -> None:
        self._size = size
        self.promised = promised
        self.misfits = misfits  # if some of these sizes do not divide each other
        self.largest_pod = max((promise.size for promise in self.promised), default=0)
        self.fragmentation: FragmentationBound | None = None  # if there are larger pods among them
        fitting = [
            (promise, promise.pods_of(size)) for promise in self.promised if not is_misfit(size, promise.size)
        ]
        self._count_by_start = Counter([promise.at for promise, _ in fitting])
        self._starts = sorted(self._count_by_start)
        self._begun = CumulativeSum((promise.at, pods) for promise, pods in fitting)
        self._ended = CumulativeSum((promise.until(NO_DISRUPTION), pods) for promise, pods in fitting)
        self._immunity_ended = CumulativeSum((promise.until(LOTTERY), pods) for promise, pods in fitting)
        self._left = [
            max_pods(start) - self._begun.until(start) + self._ended.until(start) for start in self._starts
        ]
        if misfits is not None:
            last_made = {promise.at: promise.precedence for promise, _ in sorted(fitting, key=_made)}
            self._left = [
                left - misfits.lost_before(start, last_made[start])
                for start, left in zip(self._starts, self._left, strict=True)
            ]
        self._lowest_left = [*accumulate(reversed(self._left), min, initial=FOREVER)][::-1]

    def promised_pods_at(self, disruption: Disruption, at: int, own: PromisedPods | None = None) -> int:
        """Returns the pods promised at that instant; a lottery may draw those that are no longer immune."""
        ended = self._immunity_ended if disruption == LOTTERY else self._ended
        pods = self._begun.until(at) - ended.until(at)
        if own is not None and own.at <= at < own.until(disruption):
            pods -= own.pods_of(self._size)
        return pods if self.misfits is None else pods + self.misfits.lost_at(disruption, at, own)

    @property
    def is_limited(self) -> bool:
        """Whether nodes must be examined beside the count."""
        return self.fragmentation is not None or self.misfits is not None

    def limited(self, disruption: Disruption, at: int, end: int, pods: int, own: PromisedPods | None) -> int:
        """Returns how many of these pods leave the nodes that promises of other sizes need."""
        if self.fragmentation is not None and pods > 0:
            pods = self.fragmentation.pods(disruption, at, end, pods, own)
        if self.misfits is not None and pods > 0:
            pods = self.misfits.pods(at, end, pods, own)
        return pods

    def promised_pods_in_peace(self, at: int, since: int, own: PromisedPods | None) -> int:
        """Returns the pods that a lottery cannot take which may draw only whom one at ``since`` could not."""
        drawable = self._immunity_ended.until(at) - self._immunity_ended.until(since)
        pods = self._begun.until(at) - drawable - self._ended.until(since)
        if own is not None and own.at <= at and own.end > since and not since < own.immune_until <= at:
            pods -= own.pods_of(self._size)
        return pods if self.misfits is None else pods + self.misfits.lost_in_peace(at, since, own)

    def lowest_left_after(self, at: int) -> int:
        """Returns the fewest pods that are left when any of the promises begins after that instant."""
        return self._lowest_left[bisect_right(self._starts, at)]

    def lowest_left_between(self, after: int, before: int, own: PromisedPods | None) -> int:
        """Returns the fewest pods that are left when any of the promises begins in between.

        While the own promise of a Run lasts, at least its pods are left for the Run.
        """
        first, last = bisect_right(self._starts, after), bisect_left(self._starts, before)
        if own is None or is_misfit(self._size, own.size):
            return self._lowest_of(first, last)
        begin, end = bisect_left(self._starts, own.at), bisect_left(self._starts, max(own.at, own.end))
        begin_of_others = begin if self._count_by_start[own.at] > 1 else begin + 1
        during_own = self._lowest_of(max(first, begin_of_others), min(last, end))
        return min(
            self._lowest_of(first, min(last, begin)),
            own.pods_of(self._size) + max(0, during_own),
            self._lowest_of(max(first, end), last),
        )

    def _lowest_of(self, first: int, last: int) -> int:
        return min(self._left[first:last]) if first < last else FOREVER


def _made(fitting: tuple[PromisedPods, int]) -> Precedence:
    return fitting[0].precedence


class PromiseDependentCache:
    """Cached answers that depend on the promises on a domain, for one version of these promises."""

    __slots__ = ("lotteries", "profiles", "totals", "version")

    def __init__(self, version: int) -> None:
        self.version = version
        self.profiles: dict[Disruption, ProfileBehindPromises] = {}
        self.totals: dict[tuple[Precedence | None, RunKey | None], PromisedPodTotals] = {}
        self.lotteries: dict[tuple[Precedence | None, frozenset[RunKey]], PromisedLotteries] = {}

    @property
    def is_empty(self) -> bool:
        return not (self.profiles or self.totals or self.lotteries)


# By pod, and by what counts as free: provisional work from an instant on, or the leases of some Runs.
PROFILES = VersionedCache[tuple[PodDemand, int | frozenset[RunKey] | None], AvailabilityProfile]()


def availability_profile(
    world: World, domain: Domain, demand: PodDemand, precedence: Precedence | None
) -> AvailabilityProfile:
    """Returns the profile for a promise of that precedence, cached until a lease in the domain changes.

    Provisional work that ends for this promise counts as free; without a precedence none does.
    """
    provisional_from = (
        domain_occupancy(world, domain).first_provisional_after(precedence)
        if precedence is not None
        else None
    )
    cached = PROFILES.at(domain.occupancy_version)
    profile = cached.get((demand, provisional_from))
    if profile is None:
        view = occupancy_view(world, domain, domain.usable_node_names(demand), provisional_from)
        profile = cached[demand, provisional_from] = AvailabilityProfile(
            domain, demand.size, view, world.policy.peace_ms
        )
    return profile


def availability_profile_without(
    world: World, domain: Domain, demand: PodDemand, excluded: frozenset[RunKey]
) -> AvailabilityProfile:
    """Returns the profile as if these Runs had no leases; no provisional work counts as free."""
    cached = PROFILES.at(domain.occupancy_version)
    profile = cached.get((demand, excluded))
    if profile is None:
        view = occupancy_view_without(world, domain, domain.usable_node_names(demand), excluded)
        profile = cached[demand, excluded] = AvailabilityProfile(
            domain, demand.size, view, world.policy.peace_ms
        )
    return profile


def placement_demand(run: RunState, size: int, payer_selector: NodeSelector = ()) -> PodDemand:
    """Returns what a profile counts of a pod: GPUs, and where it may run and be paid; not CPU and memory."""
    assert run.shape is not None
    return PodDemand(
        size=size,
        tolerations=run.shape.tolerations,
        node_selector=run.shape.node_selector,
        requirements=run.shape.requirements,
        avoided_nodes=run.avoided_nodes,
        payer_selectors=payer_selector,
    )


def keeps_promise(world: World, domain: Domain, promise: Promise) -> bool:
    """Whether the domain can still keep its share of a promise, in pods of that promise's size."""
    if promise.at is None:
        return True
    profile = profile_for_promise(world, domain, promise)
    at, end = max(promise.at, world.now), FOREVER if promise.end is None else promise.end
    gpus = sum(share for name, share in promise.domain_gpus if name == domain.name)
    gang = world.runs[promise.run_key].gang
    pods = profile.pods(promise.disruption, at, end, promise.run_key, promise.precedence, gang)
    return pods * promise.pod_size >= gpus


def profile_for_promise(world: World, domain: Domain, promise: Promise) -> AvailabilityProfile:
    selector = payer_selector_of_promise(world, promise)
    demand = placement_demand(world.runs[promise.run_key], promise.pod_size, selector)
    return availability_profile(world, domain, demand, promise.precedence)


def meets_lottery(world: World, domain: Domain, promise: Promise) -> bool:
    """Whether another lottery, held or promised, keeps this promise from drawing somebody here (R4)."""
    if promise.at is None or promise.disruption != LOTTERY:
        return False
    at, run = max(promise.at, world.now), world.runs[promise.run_key]
    lotteries = profile_for_promise(world, domain, promise).lotteries_before(
        run.gang or (run.key,), promise.precedence
    )
    return lotteries.peace_since(at) is not None or any(
        lease.not_drawn_at is not None and lease.not_drawn_at + world.policy.peace_ms > at
        for lease in domain_occupancy(world, domain).leases
    )
