"""Bounds from above what the payers of a Run can pay now, with all that its owner can recall (C11).

The answer may be too high, never too low, so a refusal is certain. A Run cannot use what other promises
reserve before its own promise is due and while it would run. The lowest free charge up to any instant is
computed once for all Runs.
"""

from bisect import bisect_left
from heapq import nsmallest
from itertools import accumulate

from jobtree.api.schema.quantities import MILLI
from jobtree.core.accounts.budget_timeline import CumulativeSum, funded_until, reserved_charges_on
from jobtree.core.accounts.envelope_accounts import FOREVER, EnvelopeState
from jobtree.core.funding.payer_candidates import payer_candidates
from jobtree.core.model.gpu_lease import EnvelopeKey, RunKey
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.world import World

LowestHeadroom = tuple[list[int], list[int]]  # instants, and the lowest free charge up to each


class CurrentFundingUpperBound:
    """What envelopes can pay at most; valid until the world changes."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._headroom: dict[tuple[EnvelopeKey, bool], LowestHeadroom] = {}
        self._first_two_due: dict[EnvelopeKey, list[tuple[int, RunKey]]] = {}

    def pods(self, run: RunState, pod_size: int, *, recalled: bool = True) -> int:
        """Returns how many pods of that size could be paid for, each by one payer."""
        end, pods = run.certain_end(self._world.now), 0
        for candidate in payer_candidates(self._world, run):
            charge = self._charge(run, candidate.envelope, end, recalled=recalled and candidate.tier == 0)
            pods += max(0, charge) // (MILLI * pod_size)
        return pods

    def pods_before(self, run: RunState, pod_size: int, notice: int) -> int:
        """Returns how many pods could be paid for, with the budget of promises that are due later (R6).

        An envelope counts in full if no promise to another Run is due on it for as long as ``notice``, and if
        the Run yields to all of them: none was made after it started.
        """
        now, pods = self._world.now, 0
        end = run.certain_end(now)
        for candidate in payer_candidates(self._world, run):
            envelope = candidate.envelope
            counts_in_full = self._first_due(envelope, run) - now >= notice and yields_to_all(run, envelope)
            charge = envelope.account.free_charge() if counts_in_full else self._charge(run, envelope, end)
            pods += max(0, charge) // (MILLI * pod_size)
        return pods

    def _first_due(self, envelope: EnvelopeState, run: RunState) -> int:
        """Returns when the first promise to another Run is due on the envelope."""
        first_two = self._first_two_due.get(envelope.key)
        if first_two is None:
            dates = (
                (reservation.at, reservation.promise.run_key) for reservation in envelope.dated_reservations
            )
            first_two = self._first_two_due[envelope.key] = [
                *nsmallest(2, dates),
                (FOREVER, run.key),
                (FOREVER, run.key),
            ]
        return first_two[1][0] if first_two[0][1] == run.key else first_two[0][0]

    def _charge(self, run: RunState, envelope: EnvelopeState, end: int, *, recalled: bool = False) -> int:
        if envelope.promises:
            promise = envelope.promises.get(run.key)
            if promise is not None and promise.at is not None:
                end = min(end, promise.at)  # from then on it has its share in any case (R7)
        else:
            end = self._world.now
        instants, lowest = self._lowest_headroom(envelope, recalled=recalled)
        return lowest[max(0, bisect_left(instants, end) - 1)]

    def _lowest_headroom(self, envelope: EnvelopeState, *, recalled: bool) -> LowestHeadroom:
        key = (envelope.key, recalled)
        headroom = self._headroom.get(key)
        if headroom is None:
            headroom = self._headroom[key] = self._compute_headroom(envelope, recalled=recalled)
        return headroom

    def _compute_headroom(self, envelope: EnvelopeState, *, recalled: bool) -> LowestHeadroom:
        """Returns the charge that is free now, and the lowest that promises leave of it up to any instant."""
        reserved, now = reserved_charges_on(envelope, None), self._world.now
        free = envelope.account.free_charge()
        shared = [lease for lease in envelope.leases.values() if recalled and lease.class_ == "Shared"]
        posted = self._world.posted_leases
        recallable = CumulativeSum(
            (funded_until(envelope, lease.name, posted[lease.name].known_end), lease.charge)
            for lease in shared
        )
        instants = [now, *reserved.starts_between(now, FOREVER)]
        later = reserved.levels[len(reserved.starts) - len(instants) + 1 :]
        changes = zip(instants, (reserved.change(now), *later), strict=True)
        levels = accumulate(
            (change + recallable.after(at) for at, change in changes), min, initial=recallable.whole
        )
        return instants, [free + level for level in levels][1:]


def yields_to_all(run: RunState, envelope: EnvelopeState) -> bool:
    """Whether all promises to others on the envelope were made before a provisional Run started."""
    since = run.provisional_since
    if since is None:
        return True
    made_at = (
        claim.precedence[0]
        for claim in reversed(envelope.dated_reservations)
        if claim.promise.run_key != run.key
    )
    return next(made_at, since) <= since
