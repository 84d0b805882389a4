"""Funds: the most that a Run's payers could have for it at any coming instant.

Whoever looks for a date asks the payers at every instant at which one of them may have more than before, and
there may be hundreds. Here that is told from concurrency alone, behind all promises, with whatever the owner
could recall by then (C11): it promises too much and never too little, so a no is certain.
"""

from bisect import bisect_left, bisect_right

from jobtree.api.schema.quantities import MILLI
from jobtree.core.accounts.budget_timeline import CumulativeSum, funded_until, reserved_charges_on
from jobtree.core.accounts.envelope_accounts import FOREVER, EnvelopeState, ReservedCharge
from jobtree.core.funding.future_recall import family_reservations, recallable_from
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.payer_candidates import payer_candidates
from jobtree.core.world.world import World


class FutureFundingUpperBound:
    """All payers of a Run that is promised nothing by a date, in pods of that size."""

    def __init__(self, world: World, run: RunState, size: int) -> None:
        self._duration = None if run.shape is None else run.shape.max_duration
        self._unit = MILLI * size
        self._world = world
        self._payers = payer_candidates(world, run)
        self._funds: list[EnvelopeUpperBound] = []
        self._latest = FOREVER
        self._known: dict[int, int] = {}

    def gpus(self, at: int) -> int:
        """For how many they might pay from that instant on, for as long as the Run may last.

        Instants are best asked for in their order: it begins anew for an earlier one.
        """
        known = self._known.get(at)
        if known is None:
            if at < self._latest:
                self._funds = [
                    EnvelopeUpperBound(self._world, one.envelope, owned=one.tier == 0) for one in self._payers
                ]
            self._latest = at
            end = FOREVER if self._duration is None else at + self._duration
            pods = sum([max(0, one.lowest_between(at, end)) // self._unit for one in self._funds])
            known = self._known[at] = pods * self._unit // MILLI
        return known


class EnvelopeUpperBound:
    """What one payer has from now on, as one instant after another is asked for."""

    def __init__(self, world: World, envelope: EnvelopeState, *, owned: bool) -> None:
        claims = reserved_charges_on(envelope, None)
        lent = [one for one in envelope.leases.values() if owned and one.class_ == "Shared"]
        held = world.posted_leases
        back = CumulativeSum(
            (funded_until(envelope, one.name, held[one.name].known_end), one.charge) for one in lent
        )
        self._free = envelope.account.free_charge()
        self._claims, self._back = claims, back
        self._starts = claims.starts  # when promises begin, and how much more there is then than now
        self._levels = [
            level + back.after(start) for start, level in zip(claims.starts, claims.levels, strict=True)
        ]
        family = family_reservations(world, envelope, None) if owned else ()
        coming = sorted((recallable_from(world, one), one) for one in family)
        self._coming = coming[::-1]  # what can be recalled one day, the first of it last
        self._given: list[ReservedCharge] = []  # what can by now

    def lowest_between(self, at: int, end: int) -> int:
        """The lowest from that instant until the end."""
        while self._coming and self._coming[-1][0] <= at:
            self._reserve(self._coming.pop()[1])
        given = sum([claim.charge for claim in self._given if claim.end > at])
        between = self._levels[bisect_right(self._starts, at) : bisect_left(self._starts, end)]
        now = self._claims.change(at) + self._back.after(at) + given
        return self._free + min(now, min(between, default=FOREVER))

    def _reserve(self, claim: ReservedCharge) -> None:
        """What this one has can be recalled from here on."""
        begin, over = bisect_left(self._starts, claim.at), bisect_left(self._starts, claim.end)
        self._levels[begin:over] = [level + claim.charge for level in self._levels[begin:over]]
        self._given.append(claim)
