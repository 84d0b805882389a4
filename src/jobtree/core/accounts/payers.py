"""Determines which envelopes may pay for an owner's Runs, and in what order (C2, C3, C9)."""

from collections.abc import Iterator

import msgspec

from jobtree.api.kinds.lease import LeaseClass
from jobtree.core.accounts.budget_index import BudgetIndex
from jobtree.core.accounts.envelope_accounts import EnvelopeState
from jobtree.core.model.gpu_lease import EnvelopeKey
from jobtree.core.model.versioned_cache import VersionedCache

SPONSOR_TIER = 1000  # sponsors come after all tiers of the family

EnvelopeSelector = tuple[tuple[str, str], ...]


class PayerCandidate(msgspec.Struct, frozen=True, eq=False):
    """An envelope that may pay, the tier of its owner, and the class of what it would pay for."""

    tier: int
    class_: LeaseClass
    envelope: EnvelopeState


PayerCandidates = tuple[PayerCandidate, ...]


class Payers(msgspec.Struct, frozen=True, eq=False):
    """The envelopes that may pay for all Runs of one owner with the same flavor and sponsors."""

    candidates: PayerCandidates  # in order
    classes: dict[EnvelopeKey, LeaseClass]
    selectors: frozenset[EnvelopeSelector]
    last_closing: int | None  # of all their windows; None without any candidate


PAYERS = VersionedCache[tuple[str, str, tuple[str, ...]], Payers]()  # by owner, flavor and sponsors


def payers_of_owner(budgets: BudgetIndex, owner: str, flavor: str, sponsors: tuple[str, ...]) -> Payers:
    """Returns the payers of an owner's Runs that want this flavor and name these sponsors."""
    key = (owner, flavor, sponsors)
    cached = PAYERS.at(budgets.version)
    payers = cached.get(key)
    if payers is None:
        payers = cached[key] = _payers(_nearest(budgets, owner, flavor, sponsors))
    return payers


def _payers(candidates: PayerCandidates) -> Payers:
    return Payers(
        candidates,
        {candidate.envelope.key: candidate.class_ for candidate in candidates},
        frozenset(candidate.envelope.selector for candidate in candidates),
        max((candidate.envelope.end for candidate in candidates), default=None),
    )


def _nearest(budgets: BudgetIndex, owner: str, flavor: str, sponsors: tuple[str, ...]) -> PayerCandidates:
    """Returns every envelope that may pay, once and in its nearest tier, in the order of C2."""
    candidates = list(_family_candidates(budgets, owner, flavor))
    for number, sponsor in enumerate(sponsors):
        candidates += sponsor_candidates(budgets, owner, flavor, sponsor, SPONSOR_TIER + number)
    nearest: dict[EnvelopeKey, PayerCandidate] = {}
    for candidate in sorted(candidates, key=_payer_order):
        nearest.setdefault(candidate.envelope.key, candidate)
    return tuple(nearest.values())


def _payer_order(candidate: PayerCandidate) -> tuple[int, int, str, str]:
    return (candidate.tier, candidate.envelope.end, *candidate.envelope.key)


def _family_candidates(budgets: BudgetIndex, owner: str, flavor: str) -> Iterator[PayerCandidate]:
    for tier, owners in enumerate(budgets.family.tiers(owner)):
        for relative in owners:
            for envelope in budgets.by_owner.get(relative, ()):
                if envelope.spec.flavor == flavor and (tier == 0 or envelope.spec.sharing == "family"):
                    yield PayerCandidate(tier, "Owned" if tier == 0 else "Shared", envelope)


def sponsor_candidates(
    budgets: BudgetIndex, owner: str, flavor: str, sponsor: str, tier: int = SPONSOR_TIER
) -> Iterator[PayerCandidate]:
    """Yields the envelopes from which that sponsor lends GPUs of this flavor to the owner."""
    for envelope in budgets.by_owner.get(sponsor, ()):
        if envelope.spec.flavor == flavor and envelope.lends_to(owner):
            yield PayerCandidate(tier, "Borrowed", envelope)
