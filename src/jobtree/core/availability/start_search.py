"""Searches the first instant at which a waiting Run can start, where, and who pays for it (R1–R3).

Domains and payers are examined in turn until one instant suits both. The earliest start wins, but a start
without a lottery is preferred if it is at most ``maxNotice`` later.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from heapq import heapify, heappop, heappush, heapreplace
from operator import itemgetter

import msgspec

from jobtree.core.accounts.envelope_accounts import FOREVER
from jobtree.core.availability.availability_profile import DISRUPTIONS, AvailabilityProfile, placement_demand
from jobtree.core.availability.earliest_fit_index import (
    EarliestFitIndex,
    FitEntry,
    PromiseScope,
    earliest_fit_index,
)
from jobtree.core.availability.payer_placement import ANYWHERE, PayerPlacement
from jobtree.core.availability.slice_cost import FREE, SliceCost, least_stopped, slice_cost
from jobtree.core.funding.future_funding import FundingSplit, funding_at, funding_instants, is_window_aligned
from jobtree.core.funding.future_funding_upper_bound import FutureFundingUpperBound
from jobtree.core.model.gang_shape import GangShape
from jobtree.core.model.promise import (
    LOTTERY,
    NO_DISRUPTION,
    STRUCTURAL,
    Disruption,
    Precedence,
    RecalledStart,
)
from jobtree.core.model.widest_width import widest_width
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.domain_filling import fewest_fullest_first
from jobtree.core.world.world import World

MAX_COSTED = 64  # how many domains are compared by what a start there takes from others
MAX_ROUNDS = 64  # how often domains and payers are examined in turn; how many instants for several domains

DomainGpus = tuple[tuple[str, int], ...]
CostedSlice = tuple[SliceCost, DomainGpus]
ProfileSearch = Callable[[AvailabilityProfile, Disruption, int, int, int], int | None]


class StartOption(msgspec.Struct, frozen=True):
    """A start that is possible: when, at which disruption and width, where, and who pays for it."""

    at: int
    disruption: Disruption
    width: int
    domain_gpus: DomainGpus
    funding: FundingSplit
    window_aligned: bool
    recalls: tuple[RecalledStart, ...] = ()  # Runs that stop for it


class StartSearch:
    """One search for one Run, behind the promises made before its precedence."""

    def __init__(  # noqa: PLR0913, PLR0917  for whom, behind whom, from when, paid by whom
        self,
        world: World,
        run: RunState,
        size: int,
        precedence: Precedence | None,
        not_before: int = 0,
        placement: PayerPlacement = ANYWHERE,
    ) -> None:
        assert run.shape is not None
        self.world = world
        self.run = run
        self.shape: GangShape = run.shape
        self.precedence = precedence
        self.not_before = max(world.now, not_before)
        self.payers = placement.payers
        self.demand = placement_demand(run, size, placement.selector)
        self.size = size
        self._funding_cache: dict[tuple[int, int], tuple[FundingSplit, int]] = {}  # by width and instant
        behind_all = precedence is None and not run.gang  # the members of a gang count on one lottery
        self._open_ended_behind_all = behind_all and self.shape.max_duration is None
        self._scope = PromiseScope.NONE
        if behind_all and run.promise is None:
            self._scope = PromiseScope.OPEN_ENDED if self._open_ended_behind_all else PromiseScope.AT_START

    def find(self) -> StartOption | None:
        """Returns the best start; None if nothing known makes a start possible."""
        min_width = self.shape.min
        disruption, at = self._best_instant(min_width)
        if at is None:
            return None
        if disruption != NO_DISRUPTION:
            return self.option_at(disruption, min_width, at)

        def fits(width: int) -> bool:
            return self.option_at(disruption, width, at) is not None

        width = widest_width(self.shape.widths(), fits)
        return self.option_at(disruption, min_width if width is None else width, at)

    def _best_instant(self, width: int) -> tuple[Disruption, int | None]:
        """Returns the first instant; one without a lottery if it is at most ``maxNotice`` later (R1).

        A start without a lottery is searched first, up to ``maxNotice`` after the earliest possible lottery.
        If there is one, no lottery is examined.
        """
        policy = self.world.policy
        no_lottery_before = max(self.world.now + policy.min_notice_ms, self.not_before)
        disruption, at = self._without_lottery(width, no_lottery_before + policy.max_notice_ms)
        if at is None:
            lottery_at = self._earliest_start(LOTTERY, width, FOREVER)
            until = FOREVER if lottery_at is None else lottery_at + policy.max_notice_ms
            disruption, at = self._without_lottery(width, until)
            if at is None:
                disruption, at = LOTTERY, lottery_at
        return disruption, at

    def _without_lottery(self, width: int, until: int) -> tuple[Disruption, int | None]:
        """Returns the first instant that needs no lottery; one that takes nothing, if it is as early."""
        free_at = self._earliest_start(NO_DISRUPTION, width, until)
        shrink_at = self._earliest_start(STRUCTURAL, width, until if free_at is None else free_at - 1)
        return (NO_DISRUPTION, free_at) if shrink_at is None else (STRUCTURAL, shrink_at)

    def _earliest_start(self, disruption: Disruption, width: int, until: int) -> int | None:
        """Returns the first instant, at most ``until``, at which the Run fits and can be paid."""
        policy, at = self.world.policy, self.world.now
        if disruption == STRUCTURAL:
            at += policy.structural_notice_ms
        elif disruption == LOTTERY:
            at += policy.min_notice_ms
        at = max(at, self.not_before)
        for _ in range(MAX_ROUNDS):
            fits_at = self._first_fit(disruption, width // self.size, at, until) if at <= until else None
            if fits_at is None:
                return None
            paid_at = self._first_funded(width, fits_at)
            if paid_at is None or paid_at == fits_at:
                return paid_at
            at = paid_at
        return None

    def option_at(self, disruption: Disruption, width: int, at: int) -> StartOption | None:
        """Returns the start at that instant and width; None if it does not fit or cannot be paid."""
        domain_gpus = self._domain_gpus(disruption, width // self.size, at)
        if domain_gpus is None:
            return None
        funding, lacking = self._funding(width, at)
        if lacking:
            return None
        aligned = at > self.world.now and is_window_aligned(self.world, self.run, funding, at)
        return StartOption(at, disruption, width, domain_gpus, funding, aligned)

    # Payers

    def _first_funded(self, width: int, at: int) -> int | None:
        if self._is_funded(width, at):
            return at
        later: Iterable[int] = funding_instants(self.world, self.run, at)
        if self._funding_bound is not None:
            later = (instant for instant in later if self._funding_bound.gpus(instant) >= width)
        return next((instant for instant in later if self._is_funded(width, instant)), None)

    @cached_property
    def _funding_bound(self) -> FutureFundingUpperBound | None:
        """What the payers can pay at most, if the Run comes behind all promises and has no dated promise."""
        promise = self.run.promise
        has_date = promise is not None and promise.at is not None
        return (
            None
            if has_date or self.precedence is not None
            else FutureFundingUpperBound(self.world, self.run, self.size)
        )

    def _is_funded(self, width: int, at: int) -> bool:
        return not self._funding(width, at)[1]

    def _funding(self, width: int, at: int) -> tuple[FundingSplit, int]:
        """Returns who pays at that instant, and the GPUs that nobody pays for."""
        cached = self._funding_cache.get((width, at))
        if cached is None:
            terms = (width, self.size, at, self.precedence)
            cached = funding_at(self.world, self.run, *terms, only=self.payers)
            self._funding_cache[width, at] = cached
        return cached

    # Domains

    @cached_property
    def fit_index(self) -> EarliestFitIndex:
        """The index of all domains that could hold a pod of the Run."""
        return earliest_fit_index(self.world, self.run, self.demand, self.precedence)

    def _by_earliest_fit(self, disruption: Disruption, pods: int) -> list[FitEntry]:
        """Returns the domains by the first instant at which each might hold the pods."""
        return self.fit_index.by_earliest_fit(self._scope, disruption, pods)

    @property
    def profiles(self) -> list[AvailabilityProfile]:
        """The profiles of all domains that could hold a pod of the Run, in pack order."""
        return self.fit_index.profiles

    def _end(self, at: int) -> int:
        return FOREVER if self.shape.max_duration is None else at + self.shape.max_duration

    def _pods(self, profile: AvailabilityProfile, disruption: Disruption, at: int) -> int:
        """Returns how many pods the Run may have in a domain; with a lottery, none before all had notice."""
        if disruption == LOTTERY and not profile.all_had_notice(self.world.now, at):
            return 0
        if self._is_open_ended_behind_all(profile):
            return profile.behind_promises(disruption).open_ended_pods(at)
        return profile.promisable_pods(
            disruption, at, self._end(at), self.run.key, self.precedence, self.run.gang
        )

    def _is_open_ended_behind_all(self, profile: AvailabilityProfile) -> bool:
        """Whether the profile behind all promises holds for the Run, so that nothing must be computed."""
        return self._open_ended_behind_all and self.run.key not in profile.domain.promises

    def _first_fit(self, disruption: Disruption, pods: int, at: int, until: int) -> int | None:
        """Returns the first instant at which the pods fit, in several domains only if one is too small."""
        chunk = self.shape.group // self.size if self.shape.spread else 0
        if 0 < chunk < pods:
            return self._first_fit_in_several(disruption, pods, chunk, at, until)
        fits_at = self._first_fit_in_one(disruption, max(pods, chunk), at, until)
        if fits_at is not None or chunk or not self.shape.spread:
            return fits_at
        if self.fit_index.largest_capacity >= pods:
            return None
        return self._first_fit_in_several(disruption, pods, 1, at, until)

    def _first_fit_in_one(self, disruption: Disruption, pods: int, at: int, until: int) -> int | None:
        """Returns the first instant at which the pods fit into one domain."""
        before = min(until, FOREVER - 1) + 1
        if self._scope is PromiseScope.AT_START:  # a fit without an end is found fast and bounds the search
            open_ended = self.fit_index.by_earliest_fit(PromiseScope.OPEN_ENDED, disruption, pods)
            before = self._first_of(open_ended, self._first_open_ended_fit, disruption, pods, at, before)
        fits_at = self._first_of(
            self._by_earliest_fit(disruption, pods), self._first_fit_in, disruption, pods, at, before
        )
        return fits_at if fits_at <= until and fits_at < FOREVER else None

    @staticmethod
    def _first_of(  # noqa: PLR0913, PLR0917  one question with its circumstances
        entries: list[FitEntry],
        search: ProfileSearch,
        disruption: Disruption,
        pods: int,
        at: int,
        before: int,
    ) -> int:
        """Returns the first instant from ``at`` on that a search finds in a domain; else ``before``."""
        for first, _, profile in entries:
            if first >= before or before == at:
                break
            fits_at = search(profile, disruption, pods, max(at, first), before)
            before = before if fits_at is None else fits_at
        return before

    def _first_fit_in(
        self, profile: AvailabilityProfile, disruption: Disruption, pods: int, at: int, before: int
    ) -> int | None:
        """Returns the first instant from ``at`` on and before ``before`` at which a domain has the pods."""
        if self._is_open_ended_behind_all(profile):
            return self._first_open_ended_fit(profile, disruption, pods, at, before)
        for instant in self._increase_instants(profile, disruption, at):
            if instant >= before:
                return None
            if self._pods(profile, disruption, instant) >= pods:
                return instant
        return None

    def _first_open_ended_fit(
        self, profile: AvailabilityProfile, disruption: Disruption, pods: int, at: int, before: int
    ) -> int | None:
        """Returns the first such instant for an open-ended Run that has no promise there."""
        now = self.world.now
        for start, end, _ in profile.behind_promises(disruption).intervals_with(pods, at):
            if start >= before:
                return None
            instant = max(start, at)
            if disruption == LOTTERY:
                instant = max(instant, now + profile.longest_draw_notice(instant))
                if instant >= end or not profile.all_had_notice(now, instant):
                    continue
            return instant if instant < before else None
        return None

    def _increase_instants(self, profile: AvailabilityProfile, disruption: Disruption, at: int) -> list[int]:
        """Returns the instants from ``at`` on at which a domain may have more pods than before."""
        if disruption != LOTTERY and not profile.domain.promises:
            return [at]  # without promises what fits at one instant always fits later
        if self.precedence is None and self.run.key not in profile.domain.promises:
            instants = profile.behind_promises(disruption).starts
        else:
            instants = profile.increase_instants(disruption, self.run.key, self.precedence)
        later = instants[bisect_right(instants, at) :]
        if disruption == LOTTERY:
            notice_ends = {self.world.now + notice for _, _, notice in profile.draw_notices}
            later = sorted({*later, *(instant for instant in notice_ends if instant > at)})
        return [at, *later]

    def _first_fit_in_several(
        self, disruption: Disruption, pods: int, chunk: int, at: int, until: int
    ) -> int | None:
        """Returns the first instant at which the pods fit into several domains, in whole chunks each."""
        needed = -(-pods // chunk)
        if self.fit_index.capacity_in_chunks(chunk) < needed:
            return None
        bound = self._chunks_bound(disruption, needed, chunk, at, until)
        if bound is None or self._fill_domains(disruption, pods, bound) is not None:
            return bound
        later = {
            instant
            for profile in self.profiles
            for instant in self._increase_instants(profile, disruption, bound)
        } - {bound}
        for instant in sorted(later)[:MAX_ROUNDS]:
            if instant <= until and self._fill_domains(disruption, pods, instant) is not None:
                return instant
        return None

    def _chunks_bound(
        self, disruption: Disruption, needed: int, chunk: int, at: int, until: int
    ) -> int | None:
        """Returns a lower bound of the instant at which so many chunks fit; None: later than ``until``.

        It is the instant by which so many chunks have fitted once, each at any instant in its domain.
        """
        instants: list[
            int
        ] = []  # a heap of the earliest instants of the chunks needed, negated: latest first
        last = until
        for first, _, profile in self._by_earliest_fit(disruption, chunk):
            if first > last:
                break
            most_chunks = 0
            for instant, pods in self._pods_by_instant(profile, disruption, at):
                if instant > last:
                    break
                chunks = min(pods // chunk, needed)
                for _ in range(most_chunks, chunks):
                    if len(instants) < needed:
                        heappush(instants, -instant)
                    else:
                        heapreplace(instants, -instant)
                most_chunks = max(most_chunks, chunks)
                if len(instants) == needed:
                    last = -instants[0] - 1  # only an earlier instant can improve the bound
        return -instants[0] if len(instants) == needed else None

    def _pods_by_instant(
        self, profile: AvailabilityProfile, disruption: Disruption, at: int
    ) -> Iterator[tuple[int, int]]:
        """Yields instants from ``at`` on at which a domain may have more pods, and the pods."""
        if disruption != LOTTERY and not profile.domain.promises:
            return profile.pods_from(disruption, at)
        if not self._is_open_ended_behind_all(profile):
            return (
                (instant, self._pods(profile, disruption, instant))
                for instant in self._increase_instants(profile, disruption, at)
            )
        intervals = profile.behind_promises(disruption).intervals_with(1, at)
        later = ((max(start, at), end, pods) for start, end, pods in intervals)
        if disruption != LOTTERY:
            return ((instant, pods) for instant, _, pods in later)
        now = self.world.now
        after_notice = (
            (max(instant, now + profile.longest_draw_notice(instant)), end, pods)
            for instant, end, pods in later
        )
        return (
            (instant, pods)
            for instant, end, pods in after_notice
            if instant < end and profile.all_had_notice(now, instant)
        )

    def _domain_gpus(self, disruption: Disruption, pods: int, at: int) -> DomainGpus | None:
        """Returns the slice that costs others least: of equals, one domain before several (R1)."""
        in_one = self._in_one_domain(disruption, pods, at)
        if not self.shape.spread or (in_one is not None and (not self.shape.group or in_one[0] == FREE)):
            return None if in_one is None else in_one[1]
        in_several = self._in_several_domains(disruption, pods, at)
        if in_several is None or (in_one is not None and in_one <= in_several):
            return None if in_one is None else in_one[1]
        return in_several[1]

    def _in_one_domain(self, disruption: Disruption, pods: int, at: int) -> CostedSlice | None:
        """Returns the domain that costs others least, and the cost; of equals, the first in pack order."""
        least: SliceCost | None = None
        name = ""
        may_take_less = self._positions_with_less_disruption(disruption, at)
        least_if_nothing_is_free = self._least_cost(_nothing_is_free, disruption, pods, at)
        costed = 0
        for position, profile in self._domains_that_fit_by(disruption, pods, at):
            if least is not None:
                bound = least_if_nothing_is_free
                if position in may_take_less and bound >= least:
                    bound = self._least_cost(profile.max_pods, disruption, pods, at)
                if bound >= least:
                    continue
            if self._pods(profile, disruption, at) >= pods:
                cost = self._cost(profile, disruption, pods, at)
                costed += 1
                if least is None or cost < least:
                    least, name = cost, profile.domain.name
                if cost == FREE or costed == MAX_COSTED:
                    break
        return None if least is None else (least, ((name, pods * self.size),))

    def _least_cost(
        self, pods_at: Callable[[Disruption, int], int], disruption: Disruption, pods: int, at: int
    ) -> SliceCost:
        """Returns a lower bound of the cost: a lottery stops at least the GPUs that need it."""
        by_lottery, not_free = self._pods_taken(pods_at, disruption, pods, at)
        return SliceCost(by_lottery * self.size, 0, (not_free - by_lottery) * self.size)

    def _cost(self, profile: AvailabilityProfile, disruption: Disruption, pods: int, at: int) -> SliceCost:
        by_lottery, not_free = self._pods_taken(partial(self._pods, profile), disruption, pods, at)
        return slice_cost(self.world, profile.domain, at, by_lottery * self.size, not_free * self.size)

    def _domains_that_fit_by(
        self, disruption: Disruption, pods: int, at: int
    ) -> list[tuple[int, AvailabilityProfile]]:
        """Returns the domains that might hold the pods at that instant, in pack order."""
        entries = self._by_earliest_fit(disruption, pods)
        count = bisect_right(entries, at, key=itemgetter(0))
        return sorted(((position, profile) for _, position, profile in entries[:count]), key=itemgetter(0))

    def _positions_with_less_disruption(self, disruption: Disruption, at: int) -> set[int]:
        """Returns the positions of domains that might hold at least one pod with less disruption."""
        if disruption == NO_DISRUPTION:
            return set()
        entries = self.fit_index.by_earliest_fit(
            PromiseScope.NONE, STRUCTURAL if disruption == LOTTERY else NO_DISRUPTION, 1
        )
        return {position for _, position, _ in entries[: bisect_right(entries, at, key=itemgetter(0))]}

    @staticmethod
    def _pods_taken(
        pods_at: Callable[[Disruption, int], int], disruption: Disruption, pods: int, at: int
    ) -> tuple[int, int]:
        """Returns, of so many pods, those that need a lottery and those that are not free."""
        by_lottery = pods - min(pods, max(0, pods_at(STRUCTURAL, at))) if disruption == LOTTERY else 0
        return by_lottery, pods - min(pods, max(0, pods_at(NO_DISRUPTION, at)))

    def _in_several_domains(self, disruption: Disruption, pods: int, at: int) -> CostedSlice | None:
        """Returns whole groups per domain and their cost: free GPUs, spares and steps, then by lottery."""
        filled = self._fill_domains(disruption, pods, at, by_cost=True)
        if filled is None:
            return None
        if disruption == NO_DISRUPTION and self.shape.group:
            filled = self._fewest_domains(pods, at) or filled
        profiles = {profile.domain.name: profile for profile in self.profiles}
        costs = [self._cost(profiles[name], disruption, count, at) for name, count in filled.items()]
        total = SliceCost(*(sum(amounts) for amounts in zip(*costs, strict=True)))
        return total, tuple(sorted((name, count * self.size) for name, count in filled.items()))

    def _fewest_domains(self, pods: int, at: int) -> dict[str, int]:
        """Returns whole groups in as few domains as possible, the fullest filled first (P4)."""
        chunk = self.shape.group // self.size
        rooms = [
            self._pods(profile, NO_DISRUPTION, at) // chunk
            if profile.max_pods(NO_DISRUPTION, at) >= chunk
            else 0
            for profile in self.profiles
        ]
        filled: dict[str, int] = {}
        for position in fewest_fullest_first(rooms, -(-pods // chunk)):
            filled[self.profiles[position].domain.name] = count = min(pods, rooms[position] * chunk)
            pods -= count
        return filled

    def _fill_domains(
        self, disruption: Disruption, pods: int, at: int, *, by_cost: bool = False
    ) -> dict[str, int] | None:
        """Returns the pods that each domain can have: first of what is free everywhere, by lottery last.

        With ``by_cost`` lotteries are held where they stop least for each GPU.
        """
        chunk = self.shape.group // self.size if self.shape.group else 1
        filled: dict[str, int] = {}
        missing = pods
        for allowed in DISRUPTIONS[: disruption + 1]:
            order = self._in_filling_order(allowed, at)
            if by_cost and allowed == LOTTERY:
                order = iter(self._by_stopped_share(filled, missing, at))
            for profile in order:
                more = self._more_pods(profile, allowed, at, chunk, filled, missing)
                if more > 0:
                    filled[profile.domain.name] = filled.get(profile.domain.name, 0) + more
                    missing -= more
                if not missing:
                    return filled
        return None

    def _more_pods(  # noqa: PLR0913, PLR0917  one question with its circumstances
        self,
        profile: AvailabilityProfile,
        disruption: Disruption,
        at: int,
        chunk: int,
        filled: dict[str, int],
        missing: int,
    ) -> int:
        """Returns how many more pods a domain can have, in whole chunks."""
        before = filled.get(profile.domain.name, 0)
        if profile.max_pods(disruption, at) // chunk * chunk <= before:
            return 0
        return min(missing, self._pods(profile, disruption, at) // chunk * chunk - before)

    def _by_stopped_share(self, filled: dict[str, int], missing: int, at: int) -> list[AvailabilityProfile]:
        """Returns the domains by what a lottery stops there for each pod that is still missing."""
        chunk = self.shape.group // self.size if self.shape.group else 1
        shares: list[tuple[int, int, AvailabilityProfile]] = []
        enough = 0
        for position, profile in enumerate(self._in_filling_order(LOTTERY, at)):
            more = self._more_pods(profile, LOTTERY, at, chunk, filled, missing)
            if more > 0:
                stopped = least_stopped(self.world, profile.domain, at, more * self.size)
                shares.append(((stopped << 20) // more, position, profile))
                if stopped == more * self.size:  # no domain stops less
                    enough += more
                if enough >= missing:
                    break
        return [profile for _, _, profile in sorted(shares, key=itemgetter(0, 1))]

    def _in_filling_order(self, disruption: Disruption, at: int) -> Iterator[AvailabilityProfile]:
        """Yields the domains in pack order; without groups, those with most pods first, so few are used."""
        if self.shape.group:
            yield from self.profiles
            return
        bounds: list[tuple[int, str, AvailabilityProfile | None]] = []
        for first, _, profile in self._by_earliest_fit(disruption, 1):
            if first > at:
                break
            bounds.append((-profile.max_pods(disruption, at), profile.domain.name, profile))
        heapify(bounds)
        exact: dict[str, AvailabilityProfile] = {}
        while bounds:
            _, name, bounded = bounds[0]
            if bounded is None:  # its pods are exact, and no bound is higher
                heappop(bounds)
                yield exact[name]
            else:
                exact[name] = bounded
                heapreplace(bounds, (-self._pods(bounded, disruption, at), name, None))


def _nothing_is_free(_disruption: Disruption, _at: int) -> int:
    return 0
