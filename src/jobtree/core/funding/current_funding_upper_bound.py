"""Ceilings: the most that a Run's payers could have for it now, with all that the family gives back (C11).

The opposite of sureties: an answer that promises too much and never too little, so a no is certain. What
is promised from an envelope before a Run's own promise is due, and while it would run, it cannot have; the
lowest level up to any instant is summed up once for all Runs that ask.
"""

from bisect import bisect_left
from heapq import nsmallest
from itertools import accumulate

from jobtree.api.schema.quantities import MILLI
from jobtree.core.accounts.budget_timeline import CumulativeSum, funded_until, reserved_charges_on
from jobtree.core.accounts.envelope_accounts import FOREVER, EnvelopeState
from jobtree.core.model.gpu_lease import EnvelopeKey, RunKey
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.payer_candidates import payer_candidates
from jobtree.core.world.world import World

LowestHeadroom = tuple[list[int], list[int]]  # instants, and the lowest free charge up to each


class CurrentFundingUpperBound:
    """What envelopes could give at most, as things stand: ask anew when anything has changed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._levels: dict[tuple[EnvelopeKey, bool], LowestHeadroom] = {}
        self._dues: dict[EnvelopeKey, list[tuple[int, RunKey]]] = {}

    def pods(self, run: RunState, size: int, *, recalled: bool = True) -> int:
        """Pods of that size that could be paid for, a pod by one payer."""
        end, found = run.certain_end(self._world.now), 0
        for one in payer_candidates(self._world, run):
            charge = self._charge(run, one.envelope, end, recalled=recalled and one.tier == 0)
            found += max(0, charge) // (MILLI * size)
        return found

    def pods_before(self, run: RunState, size: int, notice: int) -> int:
        """The same, with what is promised to others if that is not due for so long (R6)."""
        now, found = self._world.now, 0
        end = run.certain_end(now)
        for one in payer_candidates(self._world, run):
            flows = self._first_due(one.envelope, run) - now >= notice
            envelope = one.envelope
            charge = envelope.account.free_charge() if flows else self._charge(run, envelope, end)
            found += max(0, charge) // (MILLI * size)
        return found

    def _first_due(self, envelope: EnvelopeState, run: RunState) -> int:
        """When the first of others' promises on the envelope is due."""
        known = self._dues.get(envelope.key)
        if known is None:
            first = nsmallest(2, ((claim.at, claim.promise.run_key) for claim in envelope.dated_reservations))
            known = self._dues[envelope.key] = [*first, (FOREVER, run.key), (FOREVER, run.key)]
        return known[1][0] if known[0][1] == run.key else known[0][0]

    def _charge(self, run: RunState, envelope: EnvelopeState, end: int, *, recalled: bool = False) -> int:
        if envelope.promises:
            promise = envelope.promises.get(run.key)
            if promise is not None and promise.at is not None:
                end = min(end, promise.at)  # from then on it will have its share anyway (R7)
        else:
            end = self._world.now
        instants, lowest = self._cached(envelope, recalled=recalled)
        return lowest[max(0, bisect_left(instants, end) - 1)]

    def _cached(self, envelope: EnvelopeState, *, recalled: bool) -> LowestHeadroom:
        key = (envelope.key, recalled)
        known = self._levels.get(key)
        if known is None:
            known = self._levels[key] = self._computed(envelope, recalled=recalled)
        return known

    def _computed(self, envelope: EnvelopeState, *, recalled: bool) -> LowestHeadroom:
        """What is free now, and the least that what is promised leaves of it up to any instant."""
        claims, now, free = (
            reserved_charges_on(envelope, None),
            self._world.now,
            envelope.account.free_charge(),
        )
        lent = [one for one in envelope.leases.values() if recalled and one.class_ == "Shared"]
        held = self._world.posted_leases
        back = CumulativeSum(
            (funded_until(envelope, one.name, held[one.name].known_end), one.charge) for one in lent
        )
        instants = [now, *claims.starts_between(now, FOREVER)]
        later = claims.levels[len(claims.starts) - len(instants) + 1 :]
        changes = zip(instants, (claims.change(now), *later), strict=True)
        levels = accumulate((change + back.after(at) for at, change in changes), min, initial=back.whole)
        return instants, [free + one for one in levels][1:]
