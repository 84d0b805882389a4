"""Computes what an owner's envelope can recall from its family by a future instant (C11).

A promise to the owner's own Run may count on it: when the promise is due, as much as it needs gets another
payer or is demoted, as for any start. What is promised to the family is paid at its start (R5, R6): it can be
recalled only once the longest notice has passed since then.
"""

from collections.abc import Iterable, Iterator, Sequence

from jobtree.core.accounts.budget_timeline import funded_until, reserved_charges_on
from jobtree.core.accounts.envelope_accounts import EnvelopeState, ReservedCharge
from jobtree.core.funding.payer_candidates import funding_class
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.promise import Precedence
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.world import World

RecallableCharges = Sequence[tuple[int, int]]  # until when the family would use each charge, and the charge


def recallable_charges(
    world: World,
    envelopes: Iterable[EnvelopeState],
    at: int,
    run_key: RunKey,
    precedence: Precedence | None,
) -> RecallableCharges:
    """Returns the family charges on one owner's envelopes that can be recalled by that instant.

    These are leases, and promises that have started by then. A lease that was promised counts once its
    protection is over. With a precedence, provisional leases that end for it in any case do not count.
    """
    charges: list[tuple[int, int]] = []
    for envelope in envelopes:
        if envelope.by_class["shared"].amount:
            for lease in envelope.leases.values():
                if lease.class_ == "Shared":
                    posted = world.posted_leases[lease.name]
                    run = posted.run
                    if run is not None and not run.is_recallable_at(at):
                        continue
                    if precedence is None or run is None or not run.is_provisional_to(precedence):
                        charges.append((funded_until(envelope, lease.name, posted.known_end), lease.charge))
        charges += [
            (reservation.end, reservation.charge)
            for reservation in family_reservations(world, envelope, precedence)
            if reservation.promise.run_key != run_key and recallable_from(world, reservation) <= at
        ]
    return charges


def recallable_instants(world: World, envelope: EnvelopeState) -> Iterator[int]:
    """Yields the instants from which leases and promises of the family can be recalled."""
    for reservation in family_reservations(world, envelope, None):
        yield recallable_from(world, reservation)
    for lease in envelope.leases.values() if envelope.by_class["shared"].amount else ():
        run = world.posted_leases[lease.name].run if lease.class_ == "Shared" else None
        if run is not None and run.recallable_from is not None:
            yield run.recallable_from


def recallable_from(world: World, reservation: ReservedCharge) -> int:
    """Returns from when the charge of a dated promise to the family can be recalled."""
    return reservation.at + world.policy.max_notice_ms


def family_reservations(
    world: World, envelope: EnvelopeState, precedence: Precedence | None
) -> list[ReservedCharge]:
    """Returns what dated promises to other owners of the family reserve on the envelope."""
    if not envelope.promises:
        return []
    reserved, runs = reserved_charges_on(envelope, precedence), world.runs
    if reserved.of_others is None:
        reserved.of_others = [
            reservation
            for reservation in reserved.dated
            if runs[reservation.promise.run_key].owner != envelope.owner
        ]
    return [
        reservation
        for reservation in reserved.of_others
        if funding_class(world, envelope, runs[reservation.promise.run_key]) == "Shared"
    ]


def has_recallable(world: World, run: RunState, precedence: Precedence | None) -> bool:
    """Whether the Run's owner can recall anything, now or once a promise to the family has started."""
    return any(
        envelope.by_class["shared"].amount or family_reservations(world, envelope, precedence)
        for envelope in world.budgets.by_owner.get(run.owner, ())
        if envelope.spec.flavor == run.flavor
    )
