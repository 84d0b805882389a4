"""Payers: who may be asked to pay for a Run, in what order (C2, C3, C9)."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from jobtree.api.kinds.lease import LeaseClass
from jobtree.core.accounts.envelope_accounts import EnvelopeState
from jobtree.core.model.gpu_lease import EnvelopeKey
from jobtree.core.model.versioned_cache import VersionedCache
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.node_slots import NodeSelector

if TYPE_CHECKING:
    from jobtree.core.world.world import World

SPONSOR_TIER = 1000


class PayerCandidate(msgspec.Struct, frozen=True, eq=False):
    """An envelope that may be asked: how far its owner is, and what its money would be called."""

    tier: int
    class_: LeaseClass
    envelope: EnvelopeState


PayerCandidates = tuple[PayerCandidate, ...]


class Payers(msgspec.Struct, frozen=True, eq=False):
    """Who may be asked, for all Runs of an owner that want one flavor and name the same sponsors."""

    candidates: PayerCandidates
    classes: dict[EnvelopeKey, LeaseClass]
    selectors: frozenset[NodeSelector]
    last_closing: int | None  # of all their windows; None where there are none


PAYERS = VersionedCache[tuple[str, str, tuple[str, ...]], Payers]()  # by owner, flavor and sponsors


def payer_candidates(world: "World", run: RunState) -> PayerCandidates:
    """All envelopes of the Run's flavor that may be asked, in the order of C2."""
    return payers_for(world, run.owner, run.flavor, run.sponsors).candidates


def payers_for(world: "World", owner: str, flavor: str, sponsors: tuple[str, ...]) -> Payers:
    key = (owner, flavor, sponsors)
    cached = PAYERS.at(world.budgets.version)
    payers = cached.get(key)
    if payers is None:
        found = list(_family(world, owner, flavor))
        for number, sponsor in enumerate(sponsors):
            found += _sponsor(world, owner, flavor, sponsor, SPONSOR_TIER + number)
        found.sort(key=_payer_order)
        asked = _first_of_each(found)
        payers = cached[key] = Payers(
            asked,
            {one.envelope.key: one.class_ for one in asked},
            frozenset(one.envelope.selector for one in asked),
            max((one.envelope.end for one in asked), default=None),
        )
    return payers


def funding_class(world: "World", envelope: EnvelopeState, run: RunState) -> LeaseClass | None:
    """What this envelope's money is called where it pays for the Run; None where it may not be asked."""
    return payers_for(world, run.owner, run.flavor, run.sponsors).classes.get(envelope.key)


def selectors_of(world: "World", run: RunState) -> frozenset[NodeSelector]:
    """The selectors of all its payers."""
    return payers_for(world, run.owner, run.flavor, run.sponsors).selectors


def last_closing(world: "World", run: RunState) -> int | None:
    """When the last window of all its payers closes; None where it has no payers."""
    return payers_for(world, run.owner, run.flavor, run.sponsors).last_closing


def _payer_order(candidate: PayerCandidate) -> tuple[int, int, str, str]:
    return (candidate.tier, candidate.envelope.end, *candidate.envelope.key)


def _family(world: "World", owner: str, flavor: str) -> Iterator[PayerCandidate]:
    for tier, owners in enumerate(world.budgets.family.tiers(owner)):
        for relative in owners:
            for envelope in world.budgets.by_owner.get(relative, ()):
                if envelope.spec.flavor == flavor and (tier == 0 or envelope.spec.sharing == "family"):
                    yield PayerCandidate(tier, "Owned" if tier == 0 else "Shared", envelope)


def _sponsor(world: "World", owner: str, flavor: str, sponsor: str, tier: int) -> Iterator[PayerCandidate]:
    for envelope in world.budgets.by_owner.get(sponsor, ()):
        if envelope.spec.flavor == flavor and envelope.lends_to(owner):
            yield PayerCandidate(tier, "Borrowed", envelope)


def _first_of_each(found: Sequence[PayerCandidate]) -> PayerCandidates:
    """An envelope is asked once, in its nearest tier."""
    nearest: dict[tuple[str, str], PayerCandidate] = {}
    for candidate in found:
        nearest.setdefault(candidate.envelope.key, candidate)
    return tuple(nearest.values())


def sponsor_lends(world: "World", run: RunState, sponsor: str) -> bool:
    """Whether that sponsor has anything to lend to the Run's owner."""
    return any(True for _ in _sponsor(world, run.owner, run.flavor, sponsor, SPONSOR_TIER))
