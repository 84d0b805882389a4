"""Flows: what comes back to an envelope and what is promised from it, as running sums over time.

An envelope is asked at every instant at which a promise begins, and it may carry a hundred promises and
leases. So each flow is summed once and then read by bisection, and the lowest level from any instant on is
kept too. All of it is remembered until a lease of the envelope or a promise on it changes.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
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

    @property
    def whole(self) -> int:
        return self._sums[-1]

    def until(self, at: int) -> int:
        return self._sums[bisect_right(self._instants, at)]

    def after(self, at: int) -> int:
        return self.whole - self.until(at)


class Claims:
    """Dated promises on one envelope, made up to a rank (all, without one), and what they leave of it.

    To those made up to a rank provisional work that began later gives back what it has.
    """

    __slots__ = ("_begun", "_ended", "_levels", "_returns", "_yielded", "of_others", "promises", "starts")

    def __init__(self, envelope: EnvelopeState, returns: Flow, rank: Rank | None) -> None:
        self.promises = [promise for promise in envelope.dated if rank is None or promise.rank <= rank]
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
        yielding = () if rank is None else [one for one in envelope.yields.items() if rank[0] <= one[1].since]
        self._yielded = Flow((had_until(envelope, name, one.known_end), one.charge) for name, one in yielding)
        self.starts = sorted({at for at, _, _ in dated})
        self._levels: list[int] | None = None

    def change(self, at: int) -> int:
        """How much more (or, below zero, less) is there at that instant than is free now."""
        by_others = self._returns.until(at) + self._yielded.after(at)
        return by_others - self._begun.until(at) + self._ended.until(at)

    def within(self, after: int, before: int) -> list[int]:
        """Instants in between at which promises begin: between them it only rises."""
        return self.starts[bisect_right(self.starts, after) : bisect_left(self.starts, before)]

    @property
    def levels(self) -> list[int]:
        """The change at each instant at which a promise begins."""
        if self._levels is None:
            self._levels = [self.change(start) for start in self.starts]
        return self._levels


class Levels:
    """How much more (or less) some envelopes together have later than now, with what would be given back.

    ``back`` is who gives what back, and until when each would have had it: then it is there anyway.
    """

    def __init__(self, known: Sequence[Claims], back: Sequence[tuple[int, int]]) -> None:
        self._known = known
        self._gone = Flow(back) if back else None
        self._starts = (
            known[0].starts if len(known) == 1 else sorted({start for one in known for start in one.starts})
        )

    def at(self, at: int) -> int:
        found = sum([claims.change(at) for claims in self._known])
        return found if self._gone is None else found + self._gone.after(at)

    def least(self, at: int, end: int) -> int:
        """The lowest from that instant until the end."""
        return min(self.at(at), self.lowest(at + 1, end))

    def lowest(self, first: int, before: int) -> int:
        """The lowest of all instants in between at which a promise begins: apart from those it only rises."""
        begin, end = bisect_left(self._starts, first), bisect_left(self._starts, before)
        if begin >= end:
            return FOREVER
        if len(self._known) > 1:
            return min([self.at(start) for start in self._starts[begin:end]])
        levels = self._known[0].levels[begin:end]
        if self._gone is None:
            return min(levels)
        starts = self._starts[begin:end]
        return min([level + self._gone.after(at) for at, level in zip(starts, levels, strict=True)])


def charge_on(envelope: EnvelopeState, promise: Promise) -> int:
    """What a promise will cost the envelope."""
    return sum(gpus for key, gpus in promise.funding if key == envelope.key) * MILLI


def had_until(envelope: EnvelopeState, lease: str, known_end: int | None) -> int:
    """Until when a lease would have its money: until it lapses, or ends for certain."""
    lapse = envelope.lapses.get(lease)
    end = known_end if lapse is None else lapse.at
    return FOREVER if end is None else end


def claims_on(envelope: EnvelopeState, rank: Rank | None) -> Claims:
    """The envelope's dated promises made up to that rank, remembered until something there changes."""
    known = envelope.claims.get(rank)
    if known is None:
        returns = envelope.returns
        if returns is None:
            returns = envelope.returns = Flow(envelope.ends)
        known = envelope.claims[rank] = Claims(envelope, returns, rank)
    return known
