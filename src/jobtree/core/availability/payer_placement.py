"""The reach of money: on which nodes a Run's payers pay (C3), since a promise says where and paid by whom.

All that a promise counts on must pay wherever its slice is. Where the best start that all payers together
could pay for does not agree with that, one is looked for with every set of payers that go together: those
that pay anywhere, and for each selector those that pay on all of its nodes. Only where none of them finds
one, payers of several places are put together, each for its part of the slice.
"""

from collections.abc import Sequence, Set as AbstractSet

import msgspec

from jobtree.core.model.gpu_lease import EnvelopeKey
from jobtree.core.model.promise import Promise
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.domain import Domain
from jobtree.core.supply.node_slots import NodeSelector, selector_matches
from jobtree.core.world.payer_candidates import payer_candidates, selectors_of
from jobtree.core.world.world import World

PayerKeys = frozenset[EnvelopeKey]
DomainGpus = Sequence[tuple[str, int]]
FundingParts = Sequence[tuple[EnvelopeKey, int]]

UNBOUND: frozenset[NodeSelector] = frozenset({()})  # the selector of money that pays anywhere


class PayerPlacement(msgspec.Struct, frozen=True):
    """Payers, and the selector of the nodes on which all of them pay."""

    selector: NodeSelector = ()
    payers: PayerKeys | None = None  # None: all


ANYWHERE = PayerPlacement()


def payer_placements(world: World, run: RunState) -> list[PayerPlacement]:
    """Sets of payers that go together: those that pay anywhere, then by selector."""
    found = {one.envelope.key: one.envelope.selector for one in payer_candidates(world, run)}
    selectors = sorted(selectors_of(world, run))
    if UNBOUND.issuperset(selectors):
        return [ANYWHERE]
    return [
        PayerPlacement(selector, frozenset(key for key, own in found.items() if set(own) <= set(selector)))
        for selector in selectors
    ]


def placement_of_promise(world: World, promise: Promise) -> NodeSelector:
    """The selector of the nodes on which all who will pay for a promise pay.

    None is needed where they pay in all of the slice, and there is none where each has its own part of it.
    """
    if pay_throughout(world, promise.flavor, promise.domain_gpus, promise.funding):
        return ()
    envelopes = world.budgets.envelopes
    found = [envelopes[key].selector for key, _ in promise.funding if key in envelopes]
    narrowest = max(found, key=len, default=())
    slice_ = world.fleet.flavor(promise.flavor).domains_of_slice(promise.domain_gpus)
    together = all(set(one) <= set(narrowest) for one in found)
    return narrowest if together and all(pays_in(one, {narrowest}) for one in slice_) else ()


def payers_in_slice(world: World, run: RunState, promise: Promise) -> PayerKeys | None:
    """The Run's payers that pay anywhere in the promised slice; None where all of them do."""
    selectors = selectors_of(world, run)
    if selectors <= UNBOUND:
        return None
    slice_ = world.fleet.flavor(promise.flavor).domains_of_slice(promise.domain_gpus)
    there = {one for one in selectors if any(pays_in(domain, {one}) for domain in slice_)}
    if there == selectors:
        return None
    return frozenset(
        one.envelope.key for one in payer_candidates(world, run) if one.envelope.selector in there
    )


def pay_throughout(world: World, flavor: str, shares: DomainGpus, funding: FundingParts) -> bool:
    """Whether each of these payers pays on all nodes of the slice: so it does not matter who pays where."""
    envelopes = world.budgets.envelopes
    bound = {envelopes[key].selector for key, _ in funding if key in envelopes} - UNBOUND
    return not bound or all(
        selector_matches(one.node.labels, selector)
        for selector in bound
        for domain in world.fleet.flavor(flavor).domains_of_slice(shares)
        for one in domain.nodes.values()
    )


def can_pay_slice(world: World, flavor: str, shares: DomainGpus, funding: FundingParts) -> bool:
    """Whether each domain of a slice has payers enough who pay there, and each payer domains enough."""
    domains, envelopes = world.fleet.flavor(flavor).domains, world.budgets.envelopes

    def pays(name: str, key: EnvelopeKey) -> bool:
        return pays_in(domains[name], {envelopes[key].selector})

    return all(
        gpus <= sum(paid for key, paid in funding if pays(name, key)) for name, gpus in shares
    ) and all(paid <= sum(gpus for name, gpus in shares if pays(name, key)) for key, paid in funding)


def pays_in(domain: Domain, selectors: AbstractSet[NodeSelector]) -> bool:
    """Whether an envelope with one of these selectors pays anywhere in this domain."""
    return any(selector_matches(one.node.labels, only) for one in domain.nodes.values() for only in selectors)
