"""Recall ahead of time: what an owner's envelope could get back from its family by a coming instant (C11).

A promise of the owner's own Run may count on it: when it is due, as much as needed is paid elsewhere or
demoted, as for any start. What is promised to the family has its start (R5, R6): it is counted on no sooner
than the longest notice after that.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from jobtree.core.accounts.budget_timeline import funded_until, reserved_charges_on
from jobtree.core.accounts.envelope_accounts import EnvelopeState, ReservedCharge
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.promise import Precedence
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.payer_candidates import funding_class

if TYPE_CHECKING:
    from jobtree.core.world.world import World

RecallableCharges = Sequence[
    tuple[int, int]
]  # until when somebody of the family would have it, and the charge


def recallable_charges(
    world: "World",
    envelopes: Iterable[EnvelopeState],
    at: int,
    run_key: RunKey,
    precedence: Precedence | None,
) -> RecallableCharges:
    """Charges of the family on one owner's envelopes by then: leases, and promises that have begun.

    A lease that was promised counts from when its start no longer holds against the owner's Runs.
    """
    found: list[tuple[int, int]] = []
    for envelope in envelopes:
        if envelope.by_class["shared"].amount:
            for lease in envelope.leases.values():
                if lease.class_ == "Shared":
                    held = world.posted_leases[lease.name]
                    if held.run is not None and not held.run.is_recallable_at(at):
                        continue
                    if precedence is None or held.run is None or not held.run.is_provisional_to(precedence):
                        found.append((funded_until(envelope, lease.name, held.known_end), lease.charge))
        found += [
            (claim.end, claim.charge)
            for claim in family_reservations(world, envelope, precedence)
            if claim.promise.run_key != run_key and recallable_from(world, claim) <= at
        ]
    return found


def recallable_instants(world: "World", envelope: EnvelopeState) -> Iterator[int]:
    """When more of an owner's envelope can be counted on: what kept promises have, and coming ones will."""
    for claim in family_reservations(world, envelope, None):
        yield recallable_from(world, claim)
    for lease in envelope.leases.values() if envelope.by_class["shared"].amount else ():
        run = world.posted_leases[lease.name].run if lease.class_ == "Shared" else None
        if run is not None and run.protected_until is not None:
            yield run.protected_until


def recallable_from(world: "World", claim: ReservedCharge) -> int:
    """When the money of a dated promise to the family can be counted on."""
    return claim.at + world.policy.max_notice_ms


def family_reservations(
    world: "World", envelope: EnvelopeState, precedence: Precedence | None
) -> list[ReservedCharge]:
    """Dated promises that the envelope will pay for as money shared with the family."""
    if not envelope.promises:
        return []
    claims, runs = reserved_charges_on(envelope, precedence), world.runs
    if claims.of_others is None:
        claims.of_others = [one for one in claims.dated if runs[one.promise.run_key].owner != envelope.owner]
    return [
        one
        for one in claims.of_others
        if funding_class(world, envelope, runs[one.promise.run_key]) == "Shared"
    ]


def has_recallable(world: "World", run: RunState, precedence: Precedence | None) -> bool:
    """Whether the Run's owner has anything to recall, now or when a promise has begun."""
    return any(
        one.by_class["shared"].amount or family_reservations(world, one, precedence)
        for one in world.budgets.by_owner.get(run.owner, ())
        if one.spec.flavor == run.flavor
    )
