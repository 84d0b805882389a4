"""The horizon of a domain: how many pods it could hold at any coming instant (R2–R4).

There are three answers, by what may be taken: nothing (level 0: free by known ends), spares and steps of
malleable Runs too (level 1), and whatever is not immune to the lottery (level 2). Unpaid work stands in
nobody's way, provisional work not in that of promises made before it. Promises count by number, wherever
the pods will sit: so they do not break when a lottery falls another way.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from itertools import accumulate

from jobtree.core.accounts.budget_timeline import CumulativeSum
from jobtree.core.accounts.envelope_accounts import FOREVER
from jobtree.core.availability.fragmentation import FragmentationBound, NodeAvailability, PromisedPods
from jobtree.core.availability.occupancy import (
    OccupancyView,
    domain_occupancy,
    occupancy_view,
    occupancy_view_without,
)
from jobtree.core.availability.payer_placement import placement_of_promise
from jobtree.core.availability.step_functions import StepFunction, pods_over_time
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.promise import LOTTERY, Disruption, Precedence, Promise
from jobtree.core.model.versioned_cache import VersionedCache
from jobtree.core.runs.notice import DrawNotice
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.domain import Domain
from jobtree.core.supply.node_slots import NodeSelector, PodDemand
from jobtree.core.world.world import World

DISRUPTIONS: tuple[Disruption, ...] = (0, 1, 2)


class AvailabilityProfile:
    """What one domain could hold, for one kind of pod, as things stand."""

    def __init__(self, domain: Domain, size: int, stand: OccupancyView) -> None:
        self.domain = domain
        self.size = size
        self._stand = stand
        self._swept: list[StepFunction | None] = [None for _ in DISRUPTIONS]
        self._notices: tuple[list[int], list[int]] | None = None
        self._behind_promises = ProfilesBehindPromises(domain.promise_version)
        self._earlier: ProfilesBehindPromises | None = None  # about other promises

    def _current(self) -> "ProfilesBehindPromises":
        """Answers about the present promises; those about earlier ones are kept for their return."""
        current, version = self._behind_promises, self.domain.promise_version
        if current.version != version:
            earlier = self._earlier
            if not current.is_empty:
                self._earlier = current
            if earlier is None or earlier.version != version:
                earlier = ProfilesBehindPromises(version)
            current = self._behind_promises = earlier
        return current

    @property
    def draw_notices(self) -> set[DrawNotice]:
        """Of all who could be drawn here."""
        return self._stand.notices

    @cached_property
    def capacity(self) -> int:
        """Pods that it could hold if nobody stood there."""
        states = (self.domain.nodes[name] for name in self._stand.usable)
        return sum([max(0, state.node.gpus - state.foreign) // self.size for state in states])

    def _at(self, disruption: Disruption) -> StepFunction:
        """Instants, and the pods that fit from each on; counted when the level is first asked for."""
        known = self._swept[disruption]
        if known is None:
            known = self._swept[disruption] = pods_over_time(
                self._stand.free, self._stand.released(disruption), self.size
            )
        return known

    def promises_before(self, run_key: RunKey | None, precedence: Precedence | None) -> "PromisedPodTotals":
        """Others' promises made before that rank (all, without one), with what each takes up here."""
        promises = self.domain.promises
        key = (precedence, run_key if run_key in promises else None)
        cached = self._current().totals
        known = cached.get(key)
        if known is None:
            occupants = (
                self._promised_pods(promise)
                for promise in promises.values()
                if promise.at is not None
                and promise.run_key != run_key
                and (precedence is None or promise.precedence < precedence)
            )
            known = cached[key] = PromisedPodTotals(occupants, partial(self.max_pods, 0))
            if self.all_usable and known.largest > self.size:
                known.wholes = FragmentationBound(self.size, self.node_availability, known.occupants)
        return known

    @property
    def node_availability(self) -> NodeAvailability:
        """GPUs on each usable node, as stays are released."""
        return self._stand.rooms

    @cached_property
    def all_usable(self) -> bool:
        """Whether larger pods find no other nodes here than these do."""
        return len(self._stand.usable) == sum(state.is_schedulable for state in self.domain.nodes.values())

    def _promised_pods(self, promise: Promise) -> "PromisedPods":
        assert promise.at is not None
        gpus = sum(share for name, share in promise.domain_gpus if name == self.domain.name)
        pods = -(-gpus // self.size)
        end = FOREVER if promise.end is None else promise.end
        firm = min(end, promise.immune_until)
        return PromisedPods(promise.at, end, firm, pods, gpus, promise.pod_size)

    def max_pods(self, disruption: Disruption, at: int) -> int:
        """Pods that could fit at that instant, promises apart: never fewer than with them."""
        times, pods = self._at(disruption)
        return pods[bisect_right(times, at) - 1]

    def pods(
        self, disruption: Disruption, at: int, end: int, run_key: RunKey | None, precedence: Precedence | None
    ) -> int:
        """Pods for somebody who comes at that instant and is certain to be gone at ``end``.

        Promises made before that begin in between must find as much free as without it (R6). What is
        promised to itself by then it may have already now: that takes nothing more from them (R7).
        """
        found, crowd, mine = self._counted(disruption, at, end, run_key, precedence)
        if crowd is None or crowd.wholes is None or found <= 0:
            return found
        return crowd.wholes.pods(disruption, at, end, found, mine)

    def counted_pods(self, at: int, end: int, run_key: RunKey | None) -> int:
        """The same by counting alone, behind all promises: never fewer, whoever else goes."""
        return self._counted(0, at, end, run_key, None)[0]

    def _counted(
        self, disruption: Disruption, at: int, end: int, run_key: RunKey | None, precedence: Precedence | None
    ) -> "tuple[int, PromisedPodTotals | None, PromisedPods | None]":
        found = self.max_pods(disruption, at)
        if not self.domain.promises:
            return found, None, None
        own = self.domain.promises.get(run_key) if run_key is not None and precedence is None else None
        mine = None if own is None or own.at is None else self._promised_pods(own)
        crowd = self.promises_before(
            run_key if mine is None else None, precedence
        )  # itself among them, if it is promised
        return (
            min(found - crowd.promised_pods_at(disruption, at, mine), crowd.left_between(at, end, mine)),
            crowd,
            mine,
        )

    def profile(self, disruption: Disruption) -> "NewcomerProfile":
        """The same for a newcomer who may stay for ever, at all instants."""
        cached = self._current().profiles
        known = cached.get(disruption)
        if known is None:
            starts, present = self._at(disruption)
            known = NewcomerProfile(disruption, starts, present, present, None)
            if self.domain.promises:
                crowd, starts = self.promises_before(None, None), self.instants(disruption, None, None)
                present = [
                    self.max_pods(disruption, at) - crowd.promised_pods_at(disruption, at) for at in starts
                ]
                most = [min(have, crowd.lowest_after(at)) for at, have in zip(starts, present, strict=True)]
                known = NewcomerProfile(disruption, starts, present, most, crowd.wholes)
            cached[disruption] = known
        return known

    def first(self, disruption: Disruption, pods: int) -> int | None:
        """The first instant at which so many could fit, promises apart; None: never."""
        times, counts = self._at(disruption)
        found = bisect_left(counts, pods)
        return times[found] if found < len(times) else None

    def steps(self, disruption: Disruption, at: int) -> Iterator[tuple[int, int]]:
        """From that instant on, the pods that fit and from when, promises apart."""
        times, pods = self._at(disruption)
        now = bisect_right(times, at) - 1
        yield at, pods[now]
        yield from zip(times[now + 1 :], pods[now + 1 :], strict=True)

    def instants(
        self, disruption: Disruption, run_key: RunKey | None, precedence: Precedence | None
    ) -> list[int]:
        """Instants at which more may fit than before, in order."""
        found = set(self._at(disruption)[0])
        for occupant in self.promises_before(run_key, precedence).occupants:
            found.update((occupant.at, occupant.firm_until if disruption == LOTTERY else occupant.end))
        found.discard(FOREVER)
        return sorted(found)

    def longest_draw_notice(self, at: int) -> int:
        """How much notice those need who could be drawn here at that instant."""
        if self._notices is None:
            instants = sorted({instant for immune, end, _ in self.draw_notices for instant in (immune, end)})
            needed = [
                max(
                    [notice for immune, end, notice in self.draw_notices if immune <= instant < end],
                    default=0,
                )
                for instant in instants
            ]
            self._notices = (instants, [0, *needed])
        instants, needed = self._notices
        return needed[bisect_right(instants, at)]

    def all_had_notice(self, now: int, at: int) -> bool:
        """Whether all who could be drawn here at that instant have had notice, if told now."""
        return at >= now + self._stand.longest_notice or at >= now + self.longest_draw_notice(at)


class NewcomerProfile:
    """What a newcomer would find, behind all promises, from the beginning to the end of time.

    How many could stay for ever is counted at once; where there are larger pods among those promised, nodes
    are looked at only where the count is what somebody needs.
    """

    __slots__ = ("_disruption", "_most", "_pods", "_present", "_wholes", "starts")

    def __init__(
        self,
        disruption: Disruption,
        starts: list[int],
        present: list[int],
        most: list[int],
        wholes: FragmentationBound | None,
    ) -> None:
        self._disruption = disruption
        self.starts = starts
        self._present = present  # pods that would fit just then
        self._most = most  # pods that could stay, by counting
        self._wholes = wholes
        self._pods: dict[int, int] = {}  # pods that could stay

    def _at_place(self, place: int) -> int:
        if self._wholes is None:
            return self._most[place]
        known = self._pods.get(place)
        if known is None:
            at, most = self.starts[place], self._most[place]
            known = self._pods[place] = self._wholes.pods(self._disruption, at, FOREVER, most)
        return known

    def _enough(self, pods: int, place: int) -> Iterator[int]:
        """Parts from that one on in which so many could stay."""
        for later, most in enumerate(self._most[place:], place):
            if most >= pods and self._at_place(later) >= pods:
                yield later

    def first(self, pods: int, *, staying: bool) -> int | None:
        """The first instant at which it would find so many; None: never."""
        if staying:
            return next((self.starts[place] for place in self._enough(pods, 0)), None)
        found = zip(self.starts, self._present, strict=True)
        return next((start for start, have in found if have >= pods), None)

    def at(self, instant: int) -> int:
        """Pods that could stay from that instant on."""
        return self._at_place(bisect_right(self.starts, instant) - 1)

    def since(self, instant: int, pods: int) -> Iterator[tuple[int, int, int]]:
        """From the part with that instant on: from when to when so many could stay, and how many."""
        for place in self._enough(pods, bisect_right(self.starts, instant) - 1):
            end = self.starts[place + 1] if place + 1 < len(self.starts) else FOREVER
            yield self.starts[place], end, self._at_place(place)


class PromisedPodTotals:
    """Promises that count in one domain together: how many pods they take up at any instant.

    ``max_pods`` says what fits without them, so that what they leave when each begins is known once and
    for all. Whoever asks and is one of them (``mine``) finds what the others leave.
    """

    __slots__ = (
        "_beginning",
        "_begun",
        "_ended",
        "_firm",
        "_lefts",
        "_lowest",
        "_starts",
        "largest",
        "occupants",
        "wholes",
    )

    def __init__(self, occupants: Iterable[PromisedPods], most: Callable[[int], int]) -> None:
        self.occupants = list(occupants)
        self.largest = max((one.size for one in self.occupants), default=0)
        self.wholes: FragmentationBound | None = None  # where there are larger pods among them
        self._beginning = Counter([one.at for one in self.occupants])
        self._starts = sorted(self._beginning)
        self._begun = CumulativeSum((one.at, one.pods) for one in self.occupants)
        self._ended = CumulativeSum((max(one.at, one.end), one.pods) for one in self.occupants)
        self._firm = CumulativeSum((max(one.at, one.firm_until), one.pods) for one in self.occupants)
        self._lefts = [most(start) - self.promised_pods_at(0, start) for start in self._starts]
        self._lowest = [*accumulate(reversed(self._lefts), min, initial=FOREVER)][::-1]

    def promised_pods_at(self, disruption: Disruption, at: int, mine: PromisedPods | None = None) -> int:
        """A lottery may draw those that are no longer firm."""
        gone = self._firm if disruption == LOTTERY else self._ended
        found = self._begun.until(at) - gone.until(at)
        if mine is not None and mine.at <= at < (mine.firm_until if disruption == LOTTERY else mine.end):
            found -= mine.pods
        return found

    def lowest_after(self, at: int) -> int:
        """What they leave at the least when any of them begins later."""
        return self._lowest[bisect_right(self._starts, at)]

    def left_between(self, after: int, before: int, mine: PromisedPods | None) -> int:
        """What they leave at the least when any of them begins in between.

        Who has a promise of its own finds that at least, while it lasts.
        """
        first, last = bisect_right(self._starts, after), bisect_left(self._starts, before)
        if mine is None:
            return self._lowest_between(first, last)
        begin, end = bisect_left(self._starts, mine.at), bisect_left(self._starts, max(mine.at, mine.end))
        with_others = begin if self._beginning[mine.at] > 1 else begin + 1
        while_mine = self._lowest_between(max(first, with_others), min(last, end))
        return min(
            self._lowest_between(first, min(last, begin)),
            mine.pods + max(0, while_mine),
            self._lowest_between(max(first, end), last),
        )

    def _lowest_between(self, first: int, last: int) -> int:
        return min(self._lefts[first:last]) if first < last else FOREVER


class ProfilesBehindPromises:
    """Answers that depend on the promises on a domain, for one state of these."""

    __slots__ = ("profiles", "totals", "version")

    def __init__(self, version: int) -> None:
        self.version = version
        self.profiles: dict[Disruption, NewcomerProfile] = {}
        self.totals: dict[tuple[Precedence | None, RunKey | None], PromisedPodTotals] = {}

    @property
    def is_empty(self) -> bool:
        return not (self.profiles or self.totals)


# By pod, and by what is left out: provisional work since then, or Runs.
PROFILES = VersionedCache[tuple[PodDemand, int | frozenset[RunKey] | None], AvailabilityProfile]()


def availability_profile(
    world: World, domain: Domain, demand: PodDemand, precedence: Precedence | None
) -> AvailabilityProfile:
    """The domain's horizon as somebody of that rank sees it, remembered until something there changes."""
    threshold = (
        domain_occupancy(world, domain).provisional_since_threshold(precedence)
        if precedence is not None
        else None
    )
    cached = PROFILES.at(domain.occupancy_version)
    profile = cached.get((demand, threshold))
    if profile is None:
        view = occupancy_view(world, domain, domain.usable_node_names(demand), threshold)
        profile = cached[demand, threshold] = AvailabilityProfile(domain, demand.size, view)
    return profile


def availability_profile_without(
    world: World, domain: Domain, demand: PodDemand, gone: frozenset[RunKey]
) -> AvailabilityProfile:
    """The same for all, if all that these Runs hold were gone."""
    cached = PROFILES.at(domain.occupancy_version)
    profile = cached.get((demand, gone))
    if profile is None:
        view = occupancy_view_without(world, domain, domain.usable_node_names(demand), gone)
        profile = cached[demand, gone] = AvailabilityProfile(domain, demand.size, view)
    return profile


def placement_demand(run: RunState, size: int, paid_on: NodeSelector = ()) -> PodDemand:
    """A pod as horizons see it: where it may stand and is paid for, without CPU and memory."""
    assert run.shape is not None
    return PodDemand(
        size=size,
        tolerations=run.shape.tolerations,
        node_selector=run.shape.node_selector,
        payer_selectors=paid_on,
    )


def keeps_promise(world: World, domain: Domain, promise: Promise) -> bool:
    """Whether the domain can still keep its share of a promise, in pods of that promise's size."""
    if promise.at is None:
        return True
    demand = placement_demand(
        world.runs[promise.run_key], promise.pod_size, placement_of_promise(world, promise)
    )
    one = availability_profile(world, domain, demand, promise.precedence)
    at, end = max(promise.at, world.now), FOREVER if promise.end is None else promise.end
    gpus = sum(share for name, share in promise.domain_gpus if name == domain.name)
    return (
        one.pods(promise.disruption, at, end, promise.run_key, promise.precedence) * promise.pod_size >= gpus
    )
