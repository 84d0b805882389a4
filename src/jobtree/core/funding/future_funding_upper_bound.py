"""Bounds from above what the payers of a Run can pay at each future instant.

The search for a date asks for every instant at which a payer may have more than before, and there may be
hundreds. The bound counts concurrency alone, less what all promises reserve, plus all that the owner can
recall by then (C11). It may be too high, never too low, so a refusal is certain.
"""

from bisect import bisect_left, bisect_right

from jobtree.api.schema.quantities import MILLI
from jobtree.core.accounts.budget_timeline import CumulativeSum, funded_until, reserved_charges_on
from jobtree.core.accounts.envelope_accounts import FOREVER, EnvelopeState, ReservedCharge
from jobtree.core.funding.future_recall import family_reservations, recallable_from
from jobtree.core.funding.payer_candidates import payer_candidates
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.world import World


class FutureFundingUpperBound:
    """The bound for all payers of a Run without a date, in pods of one size."""

    def __init__(self, world: World, run: RunState, pod_size: int) -> None:
        self._duration = None if run.shape is None else run.shape.max_duration
        self._pod_charge = MILLI * pod_size
        self._world = world
        self._payers = payer_candidates(world, run)
        self._bounds: list[EnvelopeUpperBound] = []
        self._latest = FOREVER  # the latest instant that was asked for
        self._gpus: dict[int, int] = {}  # by instant

    def gpus(self, at: int) -> int:
        """Returns the GPUs that the payers can pay for from that instant on, for as long as the Run may last.

        Ask in order of time: an earlier instant than the last one starts the computation again.
        """
        gpus = self._gpus.get(at)
        if gpus is None:
            if at < self._latest:
                self._bounds = [
                    EnvelopeUpperBound(self._world, candidate.envelope, owned=candidate.tier == 0)
                    for candidate in self._payers
                ]
            self._latest = at
            end = FOREVER if self._duration is None else at + self._duration
            pod_charge = self._pod_charge
            pods = sum([max(0, bound.lowest_between(at, end)) // pod_charge for bound in self._bounds])
            gpus = self._gpus[at] = pods * pod_charge // MILLI
        return gpus


class EnvelopeUpperBound:
    """The bound for one payer, for instants in order of time."""

    def __init__(self, world: World, envelope: EnvelopeState, *, owned: bool) -> None:
        reserved = reserved_charges_on(envelope, None)
        shared = [lease for lease in envelope.leases.values() if owned and lease.class_ == "Shared"]
        posted = world.posted_leases
        recallable = CumulativeSum(
            (funded_until(envelope, lease.name, posted[lease.name].known_end), lease.charge)
            for lease in shared
        )
        self._free_now = envelope.account.free_charge()
        self._reserved, self._recallable = reserved, recallable
        self._starts = reserved.starts  # instants at which promises begin
        self._levels = [  # the free charge at each of them, less the free charge now
            level + recallable.after(start)
            for start, level in zip(reserved.starts, reserved.levels, strict=True)
        ]
        family = family_reservations(world, envelope, None) if owned else ()
        upcoming = sorted((recallable_from(world, reservation), reservation) for reservation in family)
        self._upcoming = upcoming[::-1]  # reservations that can be recalled later; the first is last
        self._recalled: list[ReservedCharge] = []  # reservations that can be recalled by now

    def lowest_between(self, at: int, end: int) -> int:
        """Returns the lowest charge that the payer can have from ``at`` on and before ``end``."""
        while self._upcoming and self._upcoming[-1][0] <= at:
            self._recall(self._upcoming.pop()[1])
        recalled = sum([reservation.charge for reservation in self._recalled if reservation.end > at])
        later = self._levels[bisect_right(self._starts, at) : bisect_left(self._starts, end)]
        first = self._reserved.change(at) + self._recallable.after(at) + recalled
        return self._free_now + min(first, min(later, default=FOREVER))

    def _recall(self, reservation: ReservedCharge) -> None:
        """Counts the charge of a reservation as free from its start to its end."""
        begin = bisect_left(self._starts, reservation.at)
        end = bisect_left(self._starts, reservation.end)
        self._levels[begin:end] = [level + reservation.charge for level in self._levels[begin:end]]
        self._recalled.append(reservation)
