"""Kill probabilities, computed with the functions that draw and give back (X9).

They are exact while the number of orders of draws is at most that of six tickets: always for up to six
tickets, and for more tickets where one or two draws suffice. Otherwise the lottery is simulated with a fixed
seed, often enough for an error of at most 0.02 (at 95 % confidence). Many simulated lotteries begin with the
same draws, so the states after the first draws are cached.
"""

import hashlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import accumulate, chain, count, islice
from math import log, perm
from struct import unpack

from jobtree.core.lottery.draw import canonical_json
from jobtree.core.lottery.resolution import Case, CaseSolver, SolverState

MAX_ORDERS = 720  # of six tickets
SAMPLES = 2_401  # 1.96 · √(¼ / n) ≤ 0.02
CACHED_DRAWS = 2  # the states after up to so many draws are cached
BLOCK_WORDS = 1_024  # computed by one hash
SPACE = 1 << 64  # the number of values of a word


LoserShares = dict[tuple[str, ...], Fraction]
"""The probability of each set of losers, by their UIDs in order; it sums to 1 if the gang packs at all."""


def kill_probabilities(case: Case) -> dict[str, int]:
    """Returns the probability that the Run of each ticket loses, in thousandths, by UID."""
    try:
        return exact_probabilities(case)
    except TooManyOrdersError:
        return simulated_probabilities(case)


def loser_shares(case: Case, samples: int) -> LoserShares:
    """Returns the probability of each set of losers: exactly if it can be, else of that many samples."""
    try:
        return exact_shares(case)
    except TooManyOrdersError:
        return simulated_shares(case, samples)


def exact_probabilities(case: Case) -> dict[str, int]:
    odds = {ticket.run: Fraction(0) for ticket in case.tickets}
    for losers, share in exact_shares(case).items():
        for uid in losers:
            odds[uid] += share
    return {uid: round(chance * 1000) for uid, chance in odds.items()}


def exact_shares(case: Case) -> LoserShares:
    orders = DrawOrders(case)
    orders.add_losers((), (1, 1))
    return {
        tuple(sorted(case.tickets[index].run for index in losers)): sum(
            (Fraction(part, whole) for whole, part in parts.items()), start=Fraction(0)
        )
        for losers, parts in orders.shares.items()
    }


class TooManyOrdersError(Exception):
    """Raised if there are more than ``MAX_ORDERS`` orders of draws."""


class DrawOrders:
    """All orders of draws with their losers. Whether the gang packs depends only on the set that is drawn."""

    def __init__(self, case: Case) -> None:
        self._solver = CaseSolver(case)
        self._weights = [ticket.weight for ticket in case.tickets]
        self._packs_by_drawn: dict[frozenset[int], bool] = {}
        # The probability of each set of losers: numerators by denominator.
        self.shares: dict[frozenset[int], dict[int, int]] = {}

    def add_losers(self, drawn: tuple[int, ...], chance: tuple[int, int]) -> None:
        """Adds the losers of these draws; if the gang does not pack yet, those of each possible next draw."""
        part, whole = chance
        if self._packs(frozenset(drawn)):
            parts = self.shares.setdefault(self._losers(drawn), {})
            parts[whole] = parts.get(whole, 0) + part
            return
        if perm(len(self._weights), len(drawn) + 1) > MAX_ORDERS:
            raise TooManyOrdersError
        left = [index for index, weight in enumerate(self._weights) if weight and index not in drawn]
        total = sum([self._weights[index] for index in left])
        for index in left:
            self.add_losers((*drawn, index), (part * self._weights[index], whole * total))

    def _losers(self, drawn: tuple[int, ...]) -> frozenset[int]:
        """The tickets that remain after those not needed are given back, last drawn first (X5)."""
        losers = frozenset(drawn)
        for index in reversed(drawn):
            if self._packs(losers - {index}):
                losers -= {index}
        return losers

    def _packs(self, tickets: frozenset[int]) -> bool:
        cached = self._packs_by_drawn.get(tickets)
        if cached is None:
            state = self._solver.before_draws()[0]
            for index in tickets:
                self._solver.draw(state, index)
            cached = self._packs_by_drawn[tickets] = not state.short
        return cached


def simulated_probabilities(case: Case) -> dict[str, int]:
    sampler, lost = Sampler(case), [0] * len(case.tickets)
    for _ in range(SAMPLES):
        for index in sampler.losers():
            lost[index] += 1
    odds = ((times * 1000 + SAMPLES // 2) // SAMPLES for times in lost)
    return {ticket.run: chance for ticket, chance in zip(case.tickets, odds, strict=True)}


def simulated_shares(case: Case, samples: int) -> LoserShares:
    sampler = Sampler(case)
    if not sampler.packs:
        return {}
    counts = Counter(frozenset(sampler.losers()) for _ in range(samples))
    return {
        tuple(sorted(case.tickets[index].run for index in losers)): Fraction(times, samples)
        for losers, times in counts.items()
    }


class Sampler:
    """Simulates one lottery repeatedly, each time with new random numbers."""

    def __init__(self, case: Case) -> None:
        self._solver = CaseSolver(case)
        self._words = random_numbers(hashlib.sha256(canonical_json(case)).digest())
        self._weights = [ticket.weight for ticket in case.tickets]
        self._sums = list(accumulate(self._weights))
        self._initial = self._solver.before_draws()[0]
        self._states: dict[tuple[int, ...], SolverState] = {}
        self._losers: dict[tuple[int, ...], list[int]] = {}

    @property
    def packs(self) -> bool:
        """Whether the gang packs if everybody is drawn."""
        state = self._initial.copy()
        for index in range(len(self._weights)):
            self._solver.draw(state, index)
        return not state.short

    def losers(self) -> list[int]:
        """Returns the tickets that lose in the next simulated lottery, by index."""
        state, drawn = self._first_draws()
        if not state.short:
            cached = self._losers.get(drawn)
            if cached is None:
                cached = self._losers[drawn] = self._solver.losers(state.copy(), reversed(drawn))
            return cached
        return self._solver.losers_of_order(state.copy(), drawn, self._other_tickets(drawn))

    def _other_tickets(self, first: tuple[int, ...]) -> Iterator[int]:
        """Yields the other tickets in the order drawn.

        While they have more than half of the weight, a draw from all tickets is repeated until it hits one of
        them; then the rest is ordered at once.
        """
        words, weights, sums = self._words, self._weights, self._sums
        drawn, total = set(first), sums[-1]
        left = total - sum([weights[index] for index in first])
        while left * 2 > total:
            index = bisect_right(sums, next(words) % total)
            if index not in drawn:
                drawn.add(index)
                left -= weights[index]
                yield index
        yield from self._ordered_rest(drawn)

    def _first_draws(self) -> tuple[SolverState, tuple[int, ...]]:
        """Draws up to ``CACHED_DRAWS`` tickets, while the others have more than half of the weight."""
        drawn: tuple[int, ...] = ()
        state, total = self._initial, self._sums[-1]
        left = total
        while state.short and left * 2 > total and len(drawn) < CACHED_DRAWS:
            index = bisect_right(self._sums, next(self._words) % total)
            if index in drawn:
                continue
            left -= self._weights[index]
            drawn = (*drawn, index)
            after = self._states.get(drawn)
            if after is None:
                after = self._states[drawn] = state.copy()
                self._solver.draw(after, index)
            state = after
        return state, drawn

    def _ordered_rest(self, drawn: set[int]) -> list[int]:
        """Orders the rest by weighted random arrival times: exponential, with the weight as rate."""
        rest = [index for index, weight in enumerate(self._weights) if weight and index not in drawn]
        pairs = zip(rest, islice(self._words, len(rest)), strict=True)
        arrivals = {index: -log((word + 1) / SPACE) / self._weights[index] for index, word in pairs}
        return sorted(rest, key=arrivals.__getitem__)


def random_numbers(seed: bytes) -> Iterator[int]:
    """Yields numbers of 64 bits without end, the same for the same seed."""
    return chain.from_iterable(random_block(seed, block) for block in count())


def random_block(seed: bytes, block: int) -> tuple[int, ...]:
    words = hashlib.shake_256(seed + block.to_bytes(8, "big")).digest(8 * BLOCK_WORDS)
    return unpack(f">{BLOCK_WORDS}Q", words)
