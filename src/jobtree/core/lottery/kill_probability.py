"""Kill probabilities, from the very functions that draw and give back (X9).

Every order of draws is followed, with its exact probability, as long as there are no more of them than six
tickets can have; so up to six tickets always, and with more where a draw or two suffice. Beyond that the draw
is repeated with a fixed seed, often enough that the error is at most 0.02 (at 95 % confidence). Most drawings
begin alike, so the stages after the first draws are kept; only as many tickets are drawn as are needed.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Iterator
from fractions import Fraction
from itertools import accumulate, chain, count, islice
from math import log, perm
from struct import unpack

from jobtree.core.lottery.draw import canonical_json
from jobtree.core.lottery.resolution import Case, CaseSolver, SolverState

MOST_ORDERS = 720  # of six tickets
SAMPLES = 2_401  # 1.96 · √(¼ / n) ≤ 0.02
KEPT_DRAWS = 2
WORDS = 1_024  # hashed at a time
SPACE = 1 << 64  # of a word


def kill_probabilities(case: Case) -> dict[str, int]:
    """The probability that each ticket's Run loses, in thousandths."""
    try:
        return exact_probabilities(case)
    except TooManyOrdersError:
        return simulated_probabilities(case)


def exact_probabilities(case: Case) -> dict[str, int]:
    orders = DrawOrders(case)
    orders.follow((), (1, 1))
    odds = (sum(Fraction(part, whole) for whole, part in parts.items()) for parts in orders.lost)
    return {ticket.run: round(one * 1000) for ticket, one in zip(case.tickets, odds, strict=True)}


class TooManyOrdersError(Exception):
    """There are more orders of draws than can be followed."""


class DrawOrders:
    """Every order of draws, and who loses in it. Whether it packs depends only on which were drawn."""

    def __init__(self, case: Case) -> None:
        self._board = CaseSolver(case)
        self._weights = [ticket.weight for ticket in case.tickets]
        self._known: dict[frozenset[int], bool] = {}
        self.lost: list[dict[int, int]] = [{} for _ in case.tickets]  # chances: numerators by denominator

    def follow(self, drawn: tuple[int, ...], chance: tuple[int, int]) -> None:
        """Add up who loses after these draws; where another draw is needed, branch by weight."""
        part, whole = chance
        if self._packs(frozenset(drawn)):
            for index in self._losers(drawn):
                self.lost[index][whole] = self.lost[index].get(whole, 0) + part
            return
        if perm(len(self._weights), len(drawn) + 1) > MOST_ORDERS:
            raise TooManyOrdersError
        left = [index for index, weight in enumerate(self._weights) if weight and index not in drawn]
        total = sum([self._weights[index] for index in left])
        for index in left:
            self.follow((*drawn, index), (part * self._weights[index], whole * total))

    def _losers(self, drawn: tuple[int, ...]) -> frozenset[int]:
        """Those of them who are not given back, last drawn first (X5)."""
        kept = frozenset(drawn)
        for index in reversed(drawn):
            if self._packs(kept - {index}):
                kept -= {index}
        return kept

    def _packs(self, tickets: frozenset[int]) -> bool:
        known = self._known.get(tickets)
        if known is None:
            stage = self._board.before_draws()[0]
            for index in tickets:
                self._board.draw(stage, index)
            known = self._known[tickets] = not stage.short
        return known


def simulated_probabilities(case: Case) -> dict[str, int]:
    sampler, lost = Sampler(case), [0] * len(case.tickets)
    for _ in range(SAMPLES):
        for index in sampler.losers():
            lost[index] += 1
    odds = ((times * 1000 + SAMPLES // 2) // SAMPLES for times in lost)
    return {ticket.run: one for ticket, one in zip(case.tickets, odds, strict=True)}


class Sampler:
    """Holds the same lottery again and again, each time with other numbers."""

    def __init__(self, case: Case) -> None:
        self._board = CaseSolver(case)
        self._words = random_numbers(hashlib.sha256(canonical_json(case)).digest())
        self._weights = [ticket.weight for ticket in case.tickets]
        self._sums = list(accumulate(self._weights))
        self._opening = self._board.before_draws()[0]
        self._stages: dict[tuple[int, ...], SolverState] = {}
        self._losers: dict[tuple[int, ...], list[int]] = {}

    def losers(self) -> list[int]:
        """Who loses this time: indexes of tickets."""
        stage, path = self._first_draws()
        if not stage.short:
            known = self._losers.get(path)
            if known is None:
                known = self._losers[path] = self._board.losers(stage.copy(), reversed(path))
            return known
        return self._board.losers_of_order(stage.copy(), path, self._others(path))

    def _others(self, path: tuple[int, ...]) -> Iterator[int]:
        """The other tickets in the order drawn: one by one while half of the weight is left."""
        words, weights, sums = self._words, self._weights, self._sums
        drawn, total = set(path), sums[-1]
        left = total - sum([weights[index] for index in path])
        while left * 2 > total:
            index = bisect_right(sums, next(words) % total)
            if index not in drawn:
                drawn.add(index)
                left -= weights[index]
                yield index
        yield from self._race(drawn)

    def _first_draws(self) -> tuple[SolverState, tuple[int, ...]]:
        """Draw from all until it is a new one, while half of the weight is left: rarely in vain."""
        path: tuple[int, ...] = ()
        stage, total = self._opening, self._sums[-1]
        left = total
        while stage.short and left * 2 > total and len(path) < KEPT_DRAWS:
            index = bisect_right(self._sums, next(self._words) % total)
            if index in path:
                continue
            left -= self._weights[index]
            path = (*path, index)
            after = self._stages.get(path)
            if after is None:
                after = self._stages[path] = stage.copy()
                self._board.draw(after, index)
            stage = after
        return stage, path

    def _race(self, drawn: set[int]) -> list[int]:
        """The rest in order: each arrives after an exponential time with its weight as rate."""
        rest = [index for index, weight in enumerate(self._weights) if weight and index not in drawn]
        pairs = zip(rest, islice(self._words, len(rest)), strict=True)
        arrivals = {index: -log((word + 1) / SPACE) / self._weights[index] for index, word in pairs}
        return sorted(rest, key=arrivals.__getitem__)


def random_numbers(seed: bytes) -> Iterator[int]:
    """Numbers of 64 bits without end, the same for the same seed."""
    return chain.from_iterable(random_block(seed, block) for block in count())


def random_block(seed: bytes, block: int) -> tuple[int, ...]:
    words = hashlib.shake_256(seed + block.to_bytes(8, "big")).digest(8 * WORDS)
    return unpack(f">{WORDS}Q", words)
