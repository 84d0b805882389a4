"""On which nodes the payers of a Run pay (C3).

A promise says where a Run starts and who pays for it, so its payers must pay where its slice is. If the best
start that all payers together could pay for does not satisfy that, a start is searched for each set of payers
that pay on the same nodes: those that pay anywhere, and for each selector those that pay on all of its nodes.
Only if none of these searches finds a start, payers of several places are combined, each for its part of the
slice.
"""

from collections.abc import Sequence, Set as AbstractSet

import msgspec

from jobtree.core.funding.payer_candidates import payer_candidates, selectors_of
from jobtree.core.model.gpu_lease import EnvelopeKey
from jobtree.core.model.promise import Promise
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.domain import Domain
from jobtree.core.supply.node_slots import NodeSelector, selector_matches
from jobtree.core.world.world import World

PayerKeys = frozenset[EnvelopeKey]
DomainGpus = Sequence[tuple[str, int]]
FundingParts = Sequence[tuple[EnvelopeKey, int]]

ANY_NODE: frozenset[NodeSelector] = frozenset({()})  # the selector of envelopes that pay anywhere


class PayerPlacement(msgspec.Struct, frozen=True):
    """Payers, and the selector of the nodes on which all of them pay."""

    selector: NodeSelector = ()
    payers: PayerKeys | None = None  # None: all

    def limited_to(self, payers: PayerKeys | None) -> "PayerPlacement":
        """Returns the same nodes with only those of its payers that are among these; None: all of them."""
        if payers is None or self.payers is None:
            return PayerPlacement(self.selector, self.payers if payers is None else payers)
        return PayerPlacement(self.selector, self.payers & payers)


ANYWHERE = PayerPlacement()


def payer_placements(world: World, run: RunState) -> list[PayerPlacement]:
    """Returns the sets of payers that pay on the same nodes: those that pay anywhere, then by selector."""
    selector_by_payer = {
        payer.envelope.key: payer.envelope.selector for payer in payer_candidates(world, run)
    }
    selectors = sorted(selectors_of(world, run))
    if ANY_NODE.issuperset(selectors):
        return [ANYWHERE]
    return [
        PayerPlacement(
            selector,
            frozenset(key for key, own in selector_by_payer.items() if set(own) <= set(selector)),
        )
        for selector in selectors
    ]


def payer_selector_of_promise(world: World, promise: Promise) -> NodeSelector:
    """Returns the selector of the nodes on which all payers of a promise pay.

    It is empty if they pay on all nodes of the slice, and if each pays for its own part of the slice.
    """
    if pay_throughout(world, promise.flavor, promise.domain_gpus, promise.funding):
        return ()
    envelopes = world.budgets.envelopes
    selectors = [envelopes[key].selector for key, _ in promise.funding if key in envelopes]
    narrowest = max(selectors, key=len, default=())
    slice_ = world.fleet.flavor(promise.flavor).domains_of_slice(promise.domain_gpus)
    together = all(set(selector) <= set(narrowest) for selector in selectors)
    return narrowest if together and all(pays_in(domain, {narrowest}) for domain in slice_) else ()


def payers_in_slice(world: World, run: RunState, promise: Promise) -> PayerKeys | None:
    """Returns the Run's payers that pay anywhere in the promised slice; None: all of them do."""
    selectors = selectors_of(world, run)
    if selectors <= ANY_NODE:
        return None
    slice_ = world.fleet.flavor(promise.flavor).domains_of_slice(promise.domain_gpus)
    paying = {selector for selector in selectors if any(pays_in(domain, {selector}) for domain in slice_)}
    if paying == selectors:
        return None
    return frozenset(
        payer.envelope.key for payer in payer_candidates(world, run) if payer.envelope.selector in paying
    )


def pay_throughout(world: World, flavor: str, domain_gpus: DomainGpus, funding: FundingParts) -> bool:
    """Whether each of these payers pays on all nodes of the slice, so that each can pay for any pod."""
    envelopes = world.budgets.envelopes
    selectors = {envelopes[key].selector for key, _ in funding if key in envelopes} - ANY_NODE
    return not selectors or all(
        selector_matches(state.node.labels, selector)
        for selector in selectors
        for domain in world.fleet.flavor(flavor).domains_of_slice(domain_gpus)
        for state in domain.nodes.values()
    )


def can_pay_slice(world: World, flavor: str, domain_gpus: DomainGpus, funding: FundingParts) -> bool:
    """Whether the payers that pay in each domain suffice for it, and each payer has domains for its part."""
    domains, envelopes = world.fleet.flavor(flavor).domains, world.budgets.envelopes

    def pays(name: str, key: EnvelopeKey) -> bool:
        return pays_in(domains[name], {envelopes[key].selector})

    return all(
        gpus <= sum(paid for key, paid in funding if pays(name, key)) for name, gpus in domain_gpus
    ) and all(paid <= sum(gpus for name, gpus in domain_gpus if pays(name, key)) for key, paid in funding)


def pays_in(domain: Domain, selectors: AbstractSet[NodeSelector]) -> bool:
    """Whether an envelope with one of these selectors pays on any node of this domain."""
    return any(
        selector_matches(state.node.labels, selector)
        for state in domain.nodes.values()
        for selector in selectors
    )
