"""Lists the envelopes that may pay for a Run, in order (C2, C3, C9)."""

from jobtree.api.kinds.lease import LeaseClass
from jobtree.core.accounts.envelope_accounts import EnvelopeState
from jobtree.core.accounts.payers import PayerCandidates, Payers, payers_of_owner, sponsor_candidates
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.node_slots import NodeSelector
from jobtree.core.world.world import World


def payer_candidates(world: World, run: RunState) -> PayerCandidates:
    """Returns all envelopes of the Run's flavor that may pay for it, in the order of C2."""
    return _payers(world, run).candidates


def funding_class(world: World, envelope: EnvelopeState, run: RunState) -> LeaseClass | None:
    """Returns the class of what this envelope pays for the Run; None where it may not pay."""
    return _payers(world, run).classes.get(envelope.key)


def selectors_of(world: World, run: RunState) -> frozenset[NodeSelector]:
    """Returns the node selectors of all its payers."""
    return _payers(world, run).selectors


def last_closing(world: World, run: RunState) -> int | None:
    """Returns when the last window of all its payers closes; None where it has no payers."""
    return _payers(world, run).last_closing


def sponsor_lends(world: World, run: RunState, sponsor: str) -> bool:
    """Whether that sponsor lends anything to the Run's owner."""
    return any(True for _ in sponsor_candidates(world.budgets, run.owner, run.flavor, sponsor))


def _payers(world: World, run: RunState) -> Payers:
    return payers_of_owner(world.budgets, run.owner, run.flavor, run.sponsors)
