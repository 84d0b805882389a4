"""Foresee: the first instant at which a waiting Run can start, where, and at what cost (R1–R3).

Place and money are asked in turn until both say yes. The earliest slice wins, except that one without a
lottery is preferred if it comes within ``maxNotice`` of it.
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from heapq import heappush, heapreplace

import msgspec

from jobtree.core.books import FOREVER
from jobtree.core.cover import candidates
from jobtree.core.fleet import Domain, Flavor, Selector, matches
from jobtree.core.horizon import LEVELS, Horizon, base_demand, horizon
from jobtree.core.promise import FREE, LOTTERY, STRUCTURAL, Level, Rank
from jobtree.core.purse import Split, funding_at, money_instants, opens_then
from jobtree.core.runs import RunState
from jobtree.core.shape import Shape
from jobtree.core.world import World

MAX_TURNS = 64  # place and money asked in turn

Shares = tuple[tuple[str, int], ...]


class Outlook(msgspec.Struct, frozen=True):
    """When, at what level, how wide, where and paid by whom."""

    at: int
    level: Level
    width: int
    shares: Shares
    funding: Split
    window_aligned: bool


class Foresight:
    """One look ahead for one Run, behind the promises made before its rank."""

    def __init__(
        self, world: World, state: RunState, size: int, rank: Rank | None, not_before: int = 0
    ) -> None:
        assert state.shape is not None
        self.world = world
        self.state = state
        self.shape: Shape = state.shape
        self.rank = rank
        self.soonest = max(world.now, not_before)
        self.flavor: Flavor = world.fleet.flavor(state.flavor)
        self.demand = base_demand(state, size)
        self.size = size
        self._newcomer = rank is None and self.shape.max_duration is None
        self._horizons: list[Horizon] | None = None

    def look(self) -> Outlook | None:
        """The best start there is, or None where nothing known will bring one."""
        least = self.shape.min
        free, cut, drawn = (self._earliest(level, least) for level in (FREE, STRUCTURAL, LOTTERY))
        level, at = FREE, free
        if at is None or (cut is not None and cut < at):
            level, at = STRUCTURAL, cut
        if drawn is not None and (at is None or drawn + self.world.policy.max_notice_ms < at):
            level, at = LOTTERY, drawn
        if at is None:
            return None
        widths = self.shape.widths() if level == FREE else (least,)
        outlooks = (self._outlook(level, width, at) for width in (*widths, least))
        return next((found for found in outlooks if found is not None), None)

    def _earliest(self, level: Level, width: int) -> int | None:
        """Ask place, then money, then place again, until one instant suits both."""
        policy, at = self.world.policy, self.world.now
        if level == STRUCTURAL:
            at += policy.structural_notice_ms
        elif level == LOTTERY:
            at += policy.min_notice_ms
        at = max(at, self.soonest)
        for _ in range(MAX_TURNS):
            placed = self._first_place(level, width // self.size, at)
            if placed is None:
                return None
            paid = self._first_money(width, placed)
            if paid is None or paid == placed:
                return paid
            at = paid
        return None

    def _outlook(self, level: Level, width: int, at: int) -> Outlook | None:
        """The start at that instant and width in full; None where it is too wide."""
        shares = self._shares(level, width // self.size, at)
        if shares is None:
            return None
        funding, lacking = funding_at(self.world, self.state, width, self.size, at, self.rank)
        if lacking:
            return None
        aligned = at > self.world.now and opens_then(self.world, self.state, funding, at)
        return Outlook(at, level, width, shares, funding, aligned)

    def _first_money(self, width: int, at: int) -> int | None:
        if self._paid(width, at):
            return at
        later = money_instants(self.world, self.state, at)
        return next((instant for instant in later if self._paid(width, instant)), None)

    def _paid(self, width: int, at: int) -> bool:
        return not funding_at(self.world, self.state, width, self.size, at, self.rank)[1]

    # Places

    @property
    def horizons(self) -> list[Horizon]:
        """Of all domains that could carry a pod, in pack order."""
        if self._horizons is None:
            domains, payers = self.flavor.domains, candidates(self.world, self.state)
            selectors = {candidate.envelope.selector for candidate in payers}
            anywhere = not selectors or () in selectors
            self._horizons = [
                horizon(self.world, domains[name], self.demand, self.rank)
                for _, _, name in self.flavor.order
                if domains[name].capacity >= self.size and (anywhere or pays_in(domains[name], selectors))
            ]
        return self._horizons

    def _end(self, at: int) -> int:
        return FOREVER if self.shape.max_duration is None else at + self.shape.max_duration

    def _pods(self, one: Horizon, level: Level, at: int) -> int:
        """Pods that this domain could give then; for a lottery, only if all have had notice."""
        if level == LOTTERY and not one.noticed(self.world.now, at):
            return 0
        return one.pods(level, at, self._end(at), self.state.key, self.rank)

    def _first_place(self, level: Level, pods: int, at: int) -> int | None:
        """The first instant at which the pods fit: in one domain if one could hold them, else in several."""
        chunk = self.shape.group // self.size if self.shape.spread else 0
        if 0 < chunk < pods:
            return self._first_together(level, pods, chunk, at)
        alone = self._first_alone(level, max(pods, chunk), at)
        if alone is not None or chunk or not self.shape.spread:
            return alone
        if any(one.capacity >= pods for one in self.horizons):
            return None
        return self._first_together(level, pods, 1, at)

    def _first_alone(self, level: Level, pods: int, at: int) -> int | None:
        """The first instant at which one domain alone suffices."""
        best: int | None = None
        for one in self.horizons:
            found = self._first_in(one, level, pods, at, best)
            if found is not None and (best is None or found < best):
                best = found
            if best == at:
                break
        return best

    def _first_in(self, one: Horizon, level: Level, pods: int, at: int, before: int | None) -> int | None:
        """The first instant from ``at`` on (and before ``before``) at which the domain gives so many."""
        first = one.first(level, pods)
        if first is None or (before is not None and first >= before):
            return None
        if self._newcomer and self.state.key not in one.domain.promises:
            return self._first_of_profile(one, level, pods, at, FOREVER if before is None else before)
        for instant in self._instants(one, level, max(at, first)):
            if before is not None and instant >= before:
                return None
            if self._pods(one, level, instant) >= pods:
                return instant
        return None

    def _first_of_profile(self, one: Horizon, level: Level, pods: int, at: int, before: int) -> int | None:
        """The same for somebody whom all promises hold against and who may stay: read off, not computed."""
        now = self.world.now
        for start, end, found in one.profile(level):
            if start >= before:
                return None
            if found < pods or end <= at:
                continue
            instant = max(start, at)
            if level == LOTTERY:
                instant = max(instant, now + one.notice(instant))
                if instant >= end or not one.noticed(now, instant):
                    continue
            return instant if instant < before else None
        return None

    def _instants(self, one: Horizon, level: Level, at: int) -> list[int]:
        """Instants from ``at`` on at which the domain may give more than before."""
        if level != LOTTERY and not one.domain.promises:
            return [at]  # nothing is ever taken back: what is there once stays
        later = set(one.instants(level, self.state.key, self.rank))
        if level == LOTTERY:
            later.update(self.world.now + notice for _, _, notice in one.notices)
        return [at, *sorted(instant for instant in later if instant > at)]

    def _first_together(self, level: Level, pods: int, chunk: int, at: int) -> int | None:
        """The first instant at which several domains together hold it, in whole chunks each."""
        needed = -(-pods // chunk)
        if sum(one.capacity // chunk for one in self.horizons) < needed:
            return None
        last = self._nth_chunk(level, needed, chunk, at)
        if last is None or self._share_together(level, pods, last) is not None:
            return last
        later = {instant for one in self.horizons for instant in self._instants(one, level, last)} - {last}
        for instant in sorted(later)[:MAX_TURNS]:
            if self._share_together(level, pods, instant) is not None:
                return instant
        return None

    def _nth_chunk(self, level: Level, needed: int, chunk: int, at: int) -> int | None:
        """When so many chunks have been free once, each in its domain: no earlier can all of them be."""
        soonest: list[int] = []  # a heap of the needed earliest instants, the latest on top
        for one in self.horizons:
            reached = 0
            for instant, pods in self._rises(one, level, at):
                if len(soonest) == needed and instant >= -soonest[0]:
                    break
                chunks = min(pods // chunk, needed)
                for _ in range(reached, chunks):
                    if len(soonest) < needed:
                        heappush(soonest, -instant)
                    elif instant < -soonest[0]:
                        heapreplace(soonest, -instant)
                reached = max(reached, chunks)
        return -soonest[0] if len(soonest) == needed else None

    def _rises(self, one: Horizon, level: Level, at: int) -> Iterator[tuple[int, int]]:
        """Instants from ``at`` on, and the pods that the domain gives then, as long as that may rise."""
        if level != LOTTERY and not one.domain.promises:
            return one.steps(level, at)
        if not self._newcomer or self.state.key in one.domain.promises:
            return ((instant, self._pods(one, level, instant)) for instant in self._instants(one, level, at))
        later = ((max(start, at), end, pods) for start, end, pods in one.profile(level) if end > at)
        if level != LOTTERY:
            return ((instant, pods) for instant, _, pods in later)
        now = self.world.now
        told = ((max(instant, now + one.notice(instant)), end, pods) for instant, end, pods in later)
        return ((instant, pods) for instant, end, pods in told if instant < end and one.noticed(now, instant))

    def _shares(self, level: Level, pods: int, at: int) -> Shares | None:
        """GPUs per domain for so many pods: least lottery, then least cuts, one domain before several."""
        alone = None if self.shape.group and self.shape.spread else self._share_alone(level, pods, at)
        if alone is not None or not self.shape.spread:
            return alone
        return self._share_together(level, pods, at)

    def _share_alone(self, level: Level, pods: int, at: int) -> Shares | None:
        best: tuple[int, int, int] | None = None
        name = ""
        for position, one in enumerate(self.horizons):
            first = one.first(level, pods)
            if first is not None and first <= at and self._pods(one, level, at) >= pods:
                drawn = max(0, pods - self._pods(one, STRUCTURAL, at)) if level == LOTTERY else 0
                option = (drawn, max(0, pods - self._pods(one, FREE, at)), position)
                if best is None or option < best:
                    best, name = option, one.domain.name
                if option[:2] == (0, 0):
                    break
        return None if best is None else ((name, pods * self.size),)

    def _share_together(self, level: Level, pods: int, at: int) -> Shares | None:
        """Whole groups per domain: first what is free, then what cuts would give, then the lottery."""
        chunk = self.shape.group // self.size if self.shape.group else 1
        given: dict[str, int] = {}
        missing = pods
        for allowed in LEVELS[: level + 1]:
            for one in self._fullest(allowed, at):
                have = given.get(one.domain.name, 0)
                if one.most(allowed, at) // chunk * chunk <= have:
                    continue
                more = min(missing, self._pods(one, allowed, at) // chunk * chunk - have)
                if more > 0:
                    given[one.domain.name] = have + more
                    missing -= more
                if not missing:
                    return tuple(sorted((name, count * self.size) for name, count in given.items()))
        return None

    def _fullest(self, level: Level, at: int) -> list[Horizon]:
        """Grouped: pack order. Ungrouped: the domains that take most first, so that they are few."""
        if self.shape.group:
            return self.horizons
        found = [one for one in self.horizons if one.most(level, at) > 0]
        return sorted(found, key=lambda one: (-self._pods(one, level, at), one.domain.name))


def pays_in(domain: Domain, selectors: AbstractSet[Selector]) -> bool:
    """Whether an envelope with one of these selectors pays anywhere in this domain (C3)."""
    return any(matches(one.node.labels, only) for one in domain.nodes.values() for only in selectors)
