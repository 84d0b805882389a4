"""Flows: what comes back to an envelope and what is promised from it, as running sums over time.

An envelope is asked at every instant at which a promise begins, and it may carry a hundred promises and
leases. So each flow is summed once and then read by bisection, and the lowest level from any instant on is
kept too. All of it is remembered until a lease of the envelope or a promise on it changes.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate

from jobtree.api.quantities import MILLI
from jobtree.core.books import FOREVER, EnvelopeState
from jobtree.core.promise import Promise, Rank


class Flow:
    """Amounts that come one after another, and their sum up to any instant."""

    __slots__ = ("_instants", "_sums")

    def __init__(self, amounts: Iterable[tuple[int, int]]) -> None:
        ordered = sorted(amounts)  # what is in order already takes no time to sort
        self._instants = [at for at, _ in ordered]
        self._sums = list(accumulate([amount for _, amount in ordered], initial=0))

    def until(self, at: int) -> int:
        return self._sums[bisect_right(self._instants, at)]


class Claims:
    """Dated promises on one envelope, made up to a rank (all, without one), and what they leave of it."""

    __slots__ = ("_begun", "_ended", "_lowest", "_returns", "of_others", "promises", "starts")

    def __init__(self, envelope: EnvelopeState, returns: Flow, rank: Rank | None) -> None:
        self.promises = [
            promise
            for promise in envelope.promises.values()
            if promise.at is not None and (rank is None or promise.rank <= rank)
        ]
        self.of_others: list[Promise] | None = None  # of Runs that are not the envelope's owner's own
        dated = [
            (one.at or 0, FOREVER if one.end is None else one.end, charge_on(envelope, one))
            for one in self.promises
        ]
        lapses = envelope.lapses.values()  # each comes back then, and not once more at its known end
        again = [(one.known_end, one.charge) for one in lapses if one.known_end is not None]
        lapsed = [(one.at, one.charge) for one in lapses]
        self._begun = Flow([*((at, charge) for at, _, charge in dated), *again])
        self._ended = Flow([*((end, charge) for _, end, charge in dated), *lapsed])
        self._returns = returns
        self.starts = sorted({at for at, _, _ in dated})
        self._lowest: list[int] | None = None

    def change(self, at: int) -> int:
        """How much more (or, below zero, less) is free at that instant than now, by ends and promises."""
        return self._returns.until(at) - self._begun.until(at) + self._ended.until(at)

    def within(self, after: int, before: int) -> list[int]:
        """Instants in between at which promises begin: between them it only rises."""
        return self.starts[bisect_right(self.starts, after) : bisect_left(self.starts, before)]

    def lowest_after(self, at: int) -> int | None:
        """The lowest change at any later instant; None where no promise begins later."""
        if self._lowest is None:
            found: list[int] = []
            for start in reversed(self.starts):
                found.append(min(self.change(start), found[-1] if found else FOREVER))
            self._lowest = found[::-1]
        later = bisect_right(self.starts, at)
        return self._lowest[later] if later < len(self.starts) else None


def charge_on(envelope: EnvelopeState, promise: Promise) -> int:
    """What a promise will cost the envelope."""
    return sum(gpus for key, gpus in promise.funding if key == envelope.key) * MILLI


def claims_on(envelope: EnvelopeState, rank: Rank | None) -> Claims:
    """The envelope's dated promises made up to that rank, remembered until something there changes."""
    known = envelope.claims.get(rank)
    if known is None:
        returns = envelope.returns
        if returns is None:
            returns = envelope.returns = Flow(envelope.ends)
        known = envelope.claims[rank] = Claims(envelope, returns, rank)
    return known
