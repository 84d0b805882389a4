"""Flows: what comes back to an envelope and what is promised from it, as running sums over time.

An envelope is asked at every instant at which a promise begins, and it may carry a hundred promises and
leases. So each flow is summed once and then read by bisection, and the lowest level from any instant on is
kept too. All of it is remembered until a lease of the envelope or a promise on it changes.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import itemgetter

from jobtree.core.accounts.envelope_accounts import FOREVER, EnvelopeState, ReservedCharge
from jobtree.core.model.promise import Precedence
from jobtree.core.model.versioned_cache import VersionedCache


class CumulativeSum:
    """Amounts that come one after another, and their sum up to any instant."""

    __slots__ = ("_instants", "_sums")

    def __init__(self, amounts: Iterable[tuple[int, int]], before: int = 0) -> None:
        ordered = sorted(amounts)  # what is in order already takes no time to sort
        self._instants = [at for at, _ in ordered]
        self._sums = list(accumulate([amount for _, amount in ordered], initial=before))

    @property
    def whole(self) -> int:
        return self._sums[-1]

    def until(self, at: int) -> int:
        return self._sums[bisect_right(self._instants, at)]

    def instants(self, after: int) -> list[int]:
        """Instants later than that at which something comes, in order; some more than once."""
        return self._instants[bisect_right(self._instants, after) :]

    def at_each(self, instants: Iterable[int]) -> list[int]:
        """The sums up to each of these."""
        known, sums = self._instants, self._sums
        return [sums[bisect_right(known, at)] for at in instants]

    def after(self, at: int) -> int:
        return self.whole - self.until(at)


class ReservedCharges:
    """Dated promises on one envelope, made up to a rank (all, without one), and what they leave of it.

    To those made up to a rank provisional work that began later gives back what it has.
    """

    __slots__ = ("_claimed", "_levels", "_returns", "dated", "of_others", "starts")

    def __init__(self, envelope: EnvelopeState, precedence: Precedence | None) -> None:
        self.dated = envelope.dated_reservations[
            : None if precedence is None else up_to_precedence(envelope.dated_reservations, precedence)
        ]
        self.of_others: list[ReservedCharge] | None = None  # of Runs that are not the envelope's owner's own
        yielding = (
            ()
            if precedence is None
            else [one for one in envelope.provisional_charges.items() if precedence[0] <= one[1].since]
        )
        yielded = [(funded_until(envelope, name, one.known_end), -one.charge) for name, one in yielding]
        begun = [(at, -charge) for _, at, _, charge, _ in self.dated]
        ended = [(end, charge) for _, _, end, charge, _ in self.dated]
        self._claimed = CumulativeSum([*begun, *ended, *yielded], -sum([charge for _, charge in yielded]))
        self._returns = returns_of(envelope)
        self.starts = sorted({claim.at for claim in self.dated})
        self._levels: list[int] | None = None

    def change(self, at: int) -> int:
        """How much more (or, below zero, less) is there at that instant than is free now."""
        return self._returns.until(at) + self._claimed.until(at)

    def starts_between(self, after: int, before: int) -> list[int]:
        """Instants in between at which promises begin: between them it only rises."""
        return self.starts[bisect_right(self.starts, after) : bisect_left(self.starts, before)]

    @property
    def levels(self) -> list[int]:
        """The change at each instant at which a promise begins."""
        if self._levels is None:
            both = zip(self._returns.at_each(self.starts), self._claimed.at_each(self.starts), strict=True)
            self._levels = [returned + claimed for returned, claimed in both]
        return self._levels


class HeadroomTimeline:
    """How much more (or less) some envelopes together have later than now, with what would be given back.

    ``back`` is who gives what back, and until when each would have had it: then it is there anyway.
    """

    def __init__(self, known: Sequence[ReservedCharges], back: Sequence[tuple[int, int]]) -> None:
        self._known = known
        self._gone = CumulativeSum(back) if back else None
        self._starts = (
            known[0].starts if len(known) == 1 else sorted({start for one in known for start in one.starts})
        )

    def at(self, at: int) -> int:
        found = sum([claims.change(at) for claims in self._known])
        return found if self._gone is None else found + self._gone.after(at)

    def lowest_between(self, at: int, end: int) -> int:
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


def funded_until(envelope: EnvelopeState, lease: str, known_end: int | None) -> int:
    """Until when a lease would have its money: until it lapses, or ends for certain."""
    lapse = envelope.interim_charges.get(lease)
    end = known_end if lapse is None else lapse.at
    return FOREVER if end is None else end


RESERVED_CHARGES = VersionedCache[Precedence | None, ReservedCharges]()
RETURNS = VersionedCache[None, CumulativeSum]()


def reserved_charges_on(envelope: EnvelopeState, precedence: Precedence | None) -> ReservedCharges:
    """The envelope's dated promises made up to that rank, remembered until something there changes."""
    cached = RESERVED_CHARGES.at(envelope.reserved_version)
    reserved = cached.get(precedence)
    if reserved is None:
        reserved = cached[precedence] = ReservedCharges(envelope, precedence)
    return reserved


def returns_of(envelope: EnvelopeState) -> CumulativeSum:
    """What comes back to an envelope and when, whatever is promised from it."""
    cached = RETURNS.at(envelope.returns_version)
    returns = cached.get(None)
    if returns is None:
        lapses = envelope.interim_charges.values()  # each comes back then, and not once more at its known end
        again = [(one.known_end, -one.charge) for one in lapses if one.known_end is not None]
        lapsed = [(one.at, one.charge) for one in lapses]
        returns = cached[None] = CumulativeSum([*envelope.known_ends, *again, *lapsed])
    return returns


def up_to_precedence(dated: Sequence[ReservedCharge], precedence: Precedence) -> int:
    """How many of these hold against somebody of that rank, or are its own."""
    return bisect_right(dated, precedence, key=itemgetter(0))
