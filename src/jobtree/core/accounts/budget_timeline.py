"""Sums what returns to an envelope and what is reserved on it over time.

An envelope is asked about every instant at which a promise begins, and it may have a hundred promises and
leases. So each sum is computed once and then read by bisection. The sums are cached until a lease of the
envelope or a promise on it changes.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import itemgetter

from jobtree.core.accounts.envelope_accounts import FOREVER, EnvelopeState, ReservedCharge
from jobtree.core.model.promise import Precedence
from jobtree.core.model.versioned_cache import VersionedCache


class CumulativeSum:
    """Amounts at instants, and their sum up to any instant."""

    __slots__ = ("_instants", "_sums")

    def __init__(self, amounts: Iterable[tuple[int, int]], before: int = 0) -> None:
        ordered = sorted(amounts)  # fast if they are in order already
        self._instants = [at for at, _ in ordered]
        self._sums = list(accumulate([amount for _, amount in ordered], initial=before))

    @property
    def whole(self) -> int:
        return self._sums[-1]

    def until(self, at: int) -> int:
        return self._sums[bisect_right(self._instants, at)]

    def instants(self, after: int) -> list[int]:
        """Returns the instants of the amounts after ``after``, in order; some more than once."""
        return self._instants[bisect_right(self._instants, after) :]

    def at_each(self, instants: Iterable[int]) -> list[int]:
        """Returns the sum up to each of these instants."""
        own_instants, sums = self._instants, self._sums
        return [sums[bisect_right(own_instants, at)] for at in instants]

    def after(self, at: int) -> int:
        return self.whole - self.until(at)


class ReservedCharges:
    """The dated promises on one envelope up to a precedence, or all, and how they change its free charge.

    With a precedence, provisional work that began later counts as free: it ends for these promises.
    """

    __slots__ = ("_claimed", "_levels", "_returns", "dated", "of_others", "starts")

    def __init__(self, envelope: EnvelopeState, precedence: Precedence | None) -> None:
        self.dated = envelope.dated_reservations[
            : None if precedence is None else up_to_precedence(envelope.dated_reservations, precedence)
        ]
        self.of_others: list[ReservedCharge] | None = None  # those to Runs of other owners, when asked for
        provisional = (
            ()
            if precedence is None
            else [item for item in envelope.provisional_charges.items() if precedence[0] <= item[1].since]
        )
        provisional_ends = [
            (funded_until(envelope, name, lease.known_end), -lease.charge) for name, lease in provisional
        ]
        begun = [(at, -charge) for _, at, _, charge, _ in self.dated]
        ended = [(end, charge) for _, _, end, charge, _ in self.dated]
        free_now = -sum([charge for _, charge in provisional_ends])
        self._claimed = CumulativeSum([*begun, *ended, *provisional_ends], free_now)
        self._returns = returns_of(envelope)
        self.starts = sorted({claim.at for claim in self.dated})
        self._levels: list[int] | None = None

    def change(self, at: int) -> int:
        """Returns the free charge at that instant minus the free charge now."""
        return self._returns.until(at) + self._claimed.until(at)

    def starts_between(self, after: int, before: int) -> list[int]:
        """Returns the instants in between at which promises begin; elsewhere the free charge only rises."""
        return self.starts[bisect_right(self.starts, after) : bisect_left(self.starts, before)]

    @property
    def levels(self) -> list[int]:
        """The change at each instant at which a promise begins."""
        if self._levels is None:
            pairs = zip(self._returns.at_each(self.starts), self._claimed.at_each(self.starts), strict=True)
            self._levels = [returned + claimed for returned, claimed in pairs]
        return self._levels


class HeadroomTimeline:
    """The free charge of some envelopes together at later instants, minus their free charge now.

    ``recallable`` lists charges that count as free: until when each is paid, and the charge. From then on it
    is free anyway.
    """

    def __init__(self, reserved: Sequence[ReservedCharges], recallable: Sequence[tuple[int, int]]) -> None:
        self._reserved = reserved
        self._recallable = CumulativeSum(recallable) if recallable else None
        self._starts = (
            reserved[0].starts
            if len(reserved) == 1
            else sorted({start for charges in reserved for start in charges.starts})
        )

    def at(self, at: int) -> int:
        change = sum([charges.change(at) for charges in self._reserved])
        return change if self._recallable is None else change + self._recallable.after(at)

    def lowest_between(self, at: int, end: int) -> int:
        """Returns the lowest value from ``at`` on and before ``end``."""
        return min(self.at(at), self.lowest(at + 1, end))

    def lowest(self, first: int, before: int) -> int:
        """Returns the lowest value at the instants from ``first`` on at which promises begin.

        At all other instants the value only rises.
        """
        begin, end = bisect_left(self._starts, first), bisect_left(self._starts, before)
        if begin >= end:
            return FOREVER
        if len(self._reserved) > 1:
            return min([self.at(start) for start in self._starts[begin:end]])
        levels = self._reserved[0].levels[begin:end]
        if self._recallable is None:
            return min(levels)
        starts = self._starts[begin:end]
        return min([level + self._recallable.after(at) for at, level in zip(starts, levels, strict=True)])


def funded_until(envelope: EnvelopeState, lease: str, known_end: int | None) -> int:
    """Returns until when the envelope pays for a lease at the latest: its interim or its known end."""
    interim = envelope.interim_charges.get(lease)
    end = known_end if interim is None else interim.at
    return FOREVER if end is None else end


RESERVED_CHARGES = VersionedCache[Precedence | None, ReservedCharges]()
RETURNS = VersionedCache[None, CumulativeSum]()


def reserved_charges_on(envelope: EnvelopeState, precedence: Precedence | None) -> ReservedCharges:
    """Returns the envelope's dated promises up to that precedence, cached until they change."""
    cached = RESERVED_CHARGES.at(envelope.reserved_version)
    reserved = cached.get(precedence)
    if reserved is None:
        reserved = cached[precedence] = ReservedCharges(envelope, precedence)
    return reserved


def returns_of(envelope: EnvelopeState) -> CumulativeSum:
    """Returns the charge that returns to an envelope by known and interim ends, cached until they change."""
    cached = RETURNS.at(envelope.returns_version)
    returns = cached.get(None)
    if returns is None:
        interim = envelope.interim_charges.values()  # each returns at its interim end, not at its known end
        corrections = [(lease.known_end, -lease.charge) for lease in interim if lease.known_end is not None]
        interim_ends = [(lease.at, lease.charge) for lease in interim]
        returns = cached[None] = CumulativeSum([*envelope.known_ends, *corrections, *interim_ends])
    return returns


def up_to_precedence(dated: Sequence[ReservedCharge], precedence: Precedence) -> int:
    """Returns how many of these reservations have at most that precedence."""
    return bisect_right(dated, precedence, key=itemgetter(0))
