"""Foresee: the first instant at which a waiting Run can start, where, and at what cost (R1–R3).

Place and money are asked in turn until both say yes. The earliest slice wins, except that one without a
lottery is preferred if it comes within ``maxNotice`` of it.
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
from jobtree.core.funding.future_funding import FundingSplit, funding_at, funding_instants, is_window_aligned
from jobtree.core.funding.future_funding_upper_bound import FutureFundingUpperBound
from jobtree.core.model.gang_shape import GangShape
from jobtree.core.model.promise import LOTTERY, NO_DISRUPTION, STRUCTURAL, Disruption, Precedence
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.world import World

MAX_TURNS = 64  # place and money asked in turn

DomainGpus = tuple[tuple[str, int], ...]
ProfileSearch = Callable[[AvailabilityProfile, Disruption, int, int, int], int | None]


class StartOption(msgspec.Struct, frozen=True):
    """When, at what level, how wide, where and paid by whom."""

    at: int
    disruption: Disruption
    width: int
    shares: DomainGpus
    funding: FundingSplit
    window_aligned: bool


class StartSearch:
    """One look ahead for one Run, behind the promises made before its rank."""

    def __init__(  # noqa: PLR0913, PLR0917  for whom, behind whom, from when, paid by whom
        self,
        world: World,
        run: RunState,
        size: int,
        precedence: Precedence | None,
        not_before: int = 0,
        reach: PayerPlacement = ANYWHERE,
    ) -> None:
        assert run.shape is not None
        self.world = world
        self.run = run
        self.shape: GangShape = run.shape
        self.precedence = precedence
        self.soonest = max(world.now, not_before)
        self.payers = reach.payers
        self.demand = placement_demand(run, size, reach.selector)
        self.size = size
        self._fundings: dict[tuple[int, int], tuple[FundingSplit, int]] = {}  # by width and instant
        self._newcomer = precedence is None and self.shape.max_duration is None
        self._standpoint = PromiseScope.APART
        if precedence is None and run.promise is None:
            self._standpoint = PromiseScope.STAYING if self._newcomer else PromiseScope.PASSING

    def find(self) -> StartOption | None:
        """The best start there is, or None where nothing known will bring one."""
        least = self.shape.min
        disruption, at = self._best_instant(least)
        if at is None:
            return None
        widths = self.shape.widths() if disruption == NO_DISRUPTION else (least,)
        outlooks = (self.option_at(disruption, width, at) for width in (*widths, least))
        return next((found for found in outlooks if found is not None), None)

    def _best_instant(self, width: int) -> tuple[Disruption, int | None]:
        """The earliest, but one without a lottery if it comes within ``maxNotice`` of that (R1).

        So nothing later than that is searched for, and no lottery where another start comes soon enough.
        """
        policy = self.world.policy
        no_sooner = max(self.world.now + policy.min_notice_ms, self.soonest)
        disruption, at = self._without_lottery(width, no_sooner + policy.max_notice_ms)
        if at is None:
            drawn = self._earliest(LOTTERY, width, FOREVER)
            until = FOREVER if drawn is None else drawn + policy.max_notice_ms
            disruption, at = self._without_lottery(width, until)
            if at is None:
                disruption, at = LOTTERY, drawn
        return disruption, at

    def _without_lottery(self, width: int, until: int) -> tuple[Disruption, int | None]:
        """The earliest up to that instant that takes nothing, or else spares and steps only."""
        free = self._earliest(NO_DISRUPTION, width, until)
        cut = self._earliest(STRUCTURAL, width, until if free is None else free - 1)
        return (NO_DISRUPTION, free) if cut is None else (STRUCTURAL, cut)

    def _earliest(self, disruption: Disruption, width: int, until: int) -> int | None:
        """Ask place, then money, then place again, until one instant suits both; none after ``until``."""
        policy, at = self.world.policy, self.world.now
        if disruption == STRUCTURAL:
            at += policy.structural_notice_ms
        elif disruption == LOTTERY:
            at += policy.min_notice_ms
        at = max(at, self.soonest)
        for _ in range(MAX_TURNS):
            placed = self._first_place(disruption, width // self.size, at, until) if at <= until else None
            if placed is None:
                return None
            paid = self._first_funded(width, placed)
            if paid is None or paid == placed:
                return paid
            at = paid
        return None

    def option_at(self, disruption: Disruption, width: int, at: int) -> StartOption | None:
        """The start at that instant and width in full; None where it is too wide."""
        shares = self._shares(disruption, width // self.size, at)
        if shares is None:
            return None
        funding, lacking = self._funding(width, at)
        if lacking:
            return None
        aligned = at > self.world.now and is_window_aligned(self.world, self.run, funding, at)
        return StartOption(at, disruption, width, shares, funding, aligned)

    def _first_funded(self, width: int, at: int) -> int | None:
        if self._paid(width, at):
            return at
        later: Iterable[int] = funding_instants(self.world, self.run, at)
        if self._funds is not None:
            later = (instant for instant in later if self._funds.gpus(instant) >= width)
        return next((instant for instant in later if self._paid(width, instant)), None)

    @cached_property
    def _funds(self) -> FutureFundingUpperBound | None:
        """What its payers could have at most, if it is behind all promises and has none itself."""
        promise = self.run.promise
        dated = promise is not None and promise.at is not None
        return (
            None
            if dated or self.precedence is not None
            else FutureFundingUpperBound(self.world, self.run, self.size)
        )

    def _paid(self, width: int, at: int) -> bool:
        return not self._funding(width, at)[1]

    def _funding(self, width: int, at: int) -> tuple[FundingSplit, int]:
        known = self._fundings.get((width, at))
        if known is None:
            terms = (width, self.size, at, self.precedence)
            known = self._fundings[width, at] = funding_at(self.world, self.run, *terms, only=self.payers)
        return known

    # Places

    @cached_property
    def fit_index(self) -> EarliestFitIndex:
        """Of all domains that could carry a pod."""
        return earliest_fit_index(self.world, self.run, self.demand, self.precedence)

    def _soonest(self, disruption: Disruption, pods: int) -> list[FitEntry]:
        """Domains by the first instant at which each might give so many."""
        return self.fit_index.by_earliest_fit(self._standpoint, disruption, pods)

    @property
    def profiles(self) -> list[AvailabilityProfile]:
        """The same, in pack order."""
        return self.fit_index.horizons

    def _end(self, at: int) -> int:
        return FOREVER if self.shape.max_duration is None else at + self.shape.max_duration

    def _pods(self, one: AvailabilityProfile, disruption: Disruption, at: int) -> int:
        """Pods that this domain could give then; for a lottery, only if all have had notice."""
        if disruption == LOTTERY and not one.all_had_notice(self.world.now, at):
            return 0
        if self._is_newcomer_in(one):
            return one.profile(disruption).at(at)
        return one.pods(disruption, at, self._end(at), self.run.key, self.precedence)

    def _is_newcomer_in(self, one: AvailabilityProfile) -> bool:
        """Whether all promises there hold against the Run, and it may stay: read off, not computed."""
        return self._newcomer and self.run.key not in one.domain.promises

    def _first_place(self, disruption: Disruption, pods: int, at: int, until: int) -> int | None:
        """The first instant at which the pods fit: in one domain if one could hold them, else in several."""
        chunk = self.shape.group // self.size if self.shape.spread else 0
        if 0 < chunk < pods:
            return self._first_together(disruption, pods, chunk, at, until)
        alone = self._first_alone(disruption, max(pods, chunk), at, until)
        if alone is not None or chunk or not self.shape.spread:
            return alone
        if self.fit_index.roomiest >= pods:
            return None
        return self._first_together(disruption, pods, 1, at, until)

    def _first_alone(self, disruption: Disruption, pods: int, at: int, until: int) -> int | None:
        """The first instant at which one domain alone suffices."""
        before = min(until, FOREVER - 1) + 1
        if self._standpoint is PromiseScope.PASSING:  # what is there for good is quickly found, and no later
            there = self.fit_index.by_earliest_fit(PromiseScope.STAYING, disruption, pods)
            before = self._first_of(there, self._first_of_profile, disruption, pods, at, before)
        found = self._first_of(
            self._soonest(disruption, pods), self._first_in_profile, disruption, pods, at, before
        )
        return found if found <= until and found < FOREVER else None

    @staticmethod
    def _first_of(  # noqa: PLR0913, PLR0917  one question with its circumstances
        entries: list[FitEntry],
        search: ProfileSearch,
        disruption: Disruption,
        pods: int,
        at: int,
        before: int,
    ) -> int:
        """The first instant from ``at`` on that a search finds in one of these domains, else ``before``."""
        for first, _, one in entries:
            if first >= before or before == at:
                break
            found = search(one, disruption, pods, max(at, first), before)
            before = before if found is None else found
        return before

    def _first_in_profile(
        self, one: AvailabilityProfile, disruption: Disruption, pods: int, at: int, before: int
    ) -> int | None:
        """The first instant from ``at`` on, and before ``before``, at which the domain gives so many."""
        if self._is_newcomer_in(one):
            return self._first_of_profile(one, disruption, pods, at, before)
        for instant in self._instants(one, disruption, at):
            if instant >= before:
                return None
            if self._pods(one, disruption, instant) >= pods:
                return instant
        return None

    def _first_of_profile(
        self, one: AvailabilityProfile, disruption: Disruption, pods: int, at: int, before: int
    ) -> int | None:
        now = self.world.now
        for start, end, _ in one.profile(disruption).since(at, pods):
            if start >= before:
                return None
            instant = max(start, at)
            if disruption == LOTTERY:
                instant = max(instant, now + one.longest_draw_notice(instant))
                if instant >= end or not one.all_had_notice(now, instant):
                    continue
            return instant if instant < before else None
        return None

    def _instants(self, one: AvailabilityProfile, disruption: Disruption, at: int) -> list[int]:
        """Instants from ``at`` on at which the domain may give more than before."""
        if disruption != LOTTERY and not one.domain.promises:
            return [at]  # nothing is ever taken back: what is there once stays
        if self.precedence is None and self.run.key not in one.domain.promises:
            known = one.profile(disruption).starts
        else:
            known = one.instants(disruption, self.run.key, self.precedence)
        later = known[bisect_right(known, at) :]
        if disruption == LOTTERY:
            told = {self.world.now + notice for _, _, notice in one.draw_notices}
            later = sorted({*later, *(instant for instant in told if instant > at)})
        return [at, *later]

    def _first_together(
        self, disruption: Disruption, pods: int, chunk: int, at: int, until: int
    ) -> int | None:
        """The first instant at which several domains together hold it, in whole chunks each."""
        needed = -(-pods // chunk)
        if self.fit_index.capacity(chunk) < needed:
            return None
        last = self._nth_chunk(disruption, needed, chunk, at, until)
        if last is None or self._share_together(disruption, pods, last) is not None:
            return last
        later = {instant for one in self.profiles for instant in self._instants(one, disruption, last)} - {
            last
        }
        for instant in sorted(later)[:MAX_TURNS]:
            if instant <= until and self._share_together(disruption, pods, instant) is not None:
                return instant
        return None

    def _nth_chunk(self, disruption: Disruption, needed: int, chunk: int, at: int, until: int) -> int | None:
        """When so many chunks have been free once, each in its domain: no earlier can all of them be."""
        soonest: list[int] = []  # a heap of the needed earliest instants, the latest on top
        last = until
        for first, _, one in self._soonest(disruption, chunk):
            if first > last:
                break
            reached = 0
            for instant, pods in self._change_instants(one, disruption, at):
                if instant > last:
                    break
                chunks = min(pods // chunk, needed)
                for _ in range(reached, chunks):
                    if len(soonest) < needed:
                        heappush(soonest, -instant)
                    else:
                        heapreplace(soonest, -instant)
                reached = max(reached, chunks)
                if len(soonest) == needed:
                    last = -soonest[0] - 1  # only sooner ones count from here on
        return -soonest[0] if len(soonest) == needed else None

    def _change_instants(
        self, one: AvailabilityProfile, disruption: Disruption, at: int
    ) -> Iterator[tuple[int, int]]:
        """Instants from ``at`` on, and the pods that the domain gives then, as long as that may rise."""
        if disruption != LOTTERY and not one.domain.promises:
            return one.steps(disruption, at)
        if not self._is_newcomer_in(one):
            return (
                (instant, self._pods(one, disruption, instant))
                for instant in self._instants(one, disruption, at)
            )
        later = ((max(start, at), end, pods) for start, end, pods in one.profile(disruption).since(at, 1))
        if disruption != LOTTERY:
            return ((instant, pods) for instant, _, pods in later)
        now = self.world.now
        told = (
            (max(instant, now + one.longest_draw_notice(instant)), end, pods) for instant, end, pods in later
        )
        return (
            (instant, pods)
            for instant, end, pods in told
            if instant < end and one.all_had_notice(now, instant)
        )

    def _shares(self, disruption: Disruption, pods: int, at: int) -> DomainGpus | None:
        """GPUs per domain for so many pods: least lottery, then least cuts, one domain before several."""
        alone = None if self.shape.group and self.shape.spread else self._share_alone(disruption, pods, at)
        if alone is not None or not self.shape.spread:
            return alone
        return self._share_together(disruption, pods, at)

    def _share_alone(self, disruption: Disruption, pods: int, at: int) -> DomainGpus | None:
        best: tuple[int, int] | None = None
        name = ""
        lenient = self._domains_with_less_disruption(disruption, at)
        for place, one in self._by_then(disruption, pods, at):
            if best is not None and (
                place not in lenient or self._shares_taken(one.max_pods, disruption, pods, at) >= best
            ):
                continue
            if self._pods(one, disruption, at) >= pods:
                option = self._shares_taken(partial(self._pods, one), disruption, pods, at)
                if best is None or option < best:
                    best, name = option, one.domain.name
                if option == (0, 0):
                    break
        return None if best is None else ((name, pods * self.size),)

    def _by_then(self, disruption: Disruption, pods: int, at: int) -> list[tuple[int, AvailabilityProfile]]:
        """Domains that might give so many at that instant, in pack order."""
        entries = self._soonest(disruption, pods)
        until = bisect_right(entries, at, key=itemgetter(0))
        return sorted(((place, one) for _, place, one in entries[:until]), key=itemgetter(0))

    def _domains_with_less_disruption(self, disruption: Disruption, at: int) -> set[int]:
        """Places of domains where less might have to be taken than all that is needed."""
        if disruption == NO_DISRUPTION:
            return set()
        entries = self.fit_index.by_earliest_fit(
            PromiseScope.APART, STRUCTURAL if disruption == LOTTERY else NO_DISRUPTION, 1
        )
        return {place for _, place, _ in entries[: bisect_right(entries, at, key=itemgetter(0))]}

    @staticmethod
    def _shares_taken(
        found: Callable[[Disruption, int], int], disruption: Disruption, pods: int, at: int
    ) -> tuple[int, int]:
        """Of so many pods, those for which a lottery must be held, and those that are not free."""
        drawn = pods - min(pods, max(0, found(STRUCTURAL, at))) if disruption == LOTTERY else 0
        return drawn, pods - min(pods, max(0, found(NO_DISRUPTION, at)))

    def _share_together(self, disruption: Disruption, pods: int, at: int) -> DomainGpus | None:
        """Whole groups per domain: first what is free, then what cuts would give, then the lottery."""
        chunk = self.shape.group // self.size if self.shape.group else 1
        given: dict[str, int] = {}
        missing = pods
        for allowed in DISRUPTIONS[: disruption + 1]:
            for one in self._fullest(allowed, at):
                have = given.get(one.domain.name, 0)
                if one.max_pods(allowed, at) // chunk * chunk <= have:
                    continue
                more = min(missing, self._pods(one, allowed, at) // chunk * chunk - have)
                if more > 0:
                    given[one.domain.name] = have + more
                    missing -= more
                if not missing:
                    return tuple(sorted((name, count * self.size) for name, count in given.items()))
        return None

    def _fullest(self, disruption: Disruption, at: int) -> Iterator[AvailabilityProfile]:
        """Grouped: pack order. Ungrouped: the domains that take most first, so that they are few."""
        if self.shape.group:
            yield from self.profiles
            return
        bounds: list[tuple[int, str, AvailabilityProfile | None]] = []
        for first, _, one in self._soonest(disruption, 1):
            if first > at:
                break
            bounds.append((-one.max_pods(disruption, at), one.domain.name, one))
        heapify(bounds)
        exact: dict[str, AvailabilityProfile] = {}
        while bounds:
            _, name, bounded = bounds[0]
            if bounded is None:
                heappop(bounds)
                yield exact[name]
            else:
                exact[name] = bounded
                heapreplace(bounds, (-self._pods(bounded, disruption, at), name, None))
