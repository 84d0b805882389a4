"""Sureties: money that an envelope has for anybody who asks now, behind all that is promised from it.

Whether a Run could be paid for is asked of every Run that waits whenever another ends, and the exact answer
differs from Run to Run by its own promise and duration. Here is an answer that all of them share: what an
envelope leaves to a stranger who is promised nothing and stays at least as long. It promises too little and
never too much, so a yes is certain, and whoever gets no yes is asked exactly (``cover.refusals``).
"""

from collections.abc import Iterator

from jobtree.api.schema.quantities import HOUR, MILLI
from jobtree.core.accounts.budget_timeline import HeadroomTimeline, reserved_charges_on
from jobtree.core.accounts.envelope_accounts import FOREVER, CapState, EnvelopeState, credits_used
from jobtree.core.funding.cover import gpus_for
from jobtree.core.funding.reserved_budget import unreserved_charge, unreserved_charge_under_cap
from jobtree.core.funding.reserved_hours import use_limits_of
from jobtree.core.model.gpu_lease import EnvelopeKey, RunKey
from jobtree.core.model.promise import CreationOrder, Promise
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.payer_candidates import funding_class, payer_candidates
from jobtree.core.world.world import World

NO_RUN: RunKey = ("", "")
FIRST_ORDER: CreationOrder = (0, "", "")
GRAIN = 16


class CurrentFundingLowerBound:
    """What envelopes leave to strangers, as things stand: ask anew when anything has changed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._known: dict[tuple[EnvelopeKey, int | None], int] = {}
        self._charges: dict[EnvelopeKey, int] = {}
        self._caps: dict[str, int] = {}

    def certainly_pays(self, run: RunState, gpus: int, size: int) -> bool:
        """Whether payers that pay anywhere certainly have enough for so many GPUs, in pods of that size.

        Of envelopes under one cap only the richest counts; those under several, lenders, and all payers of
        a Run with a quota are left to the exact answer.
        """
        if run.quotas or run.since is not None or run.precedence_at(self._world.now) is not None:
            return False
        shape = run.shape
        span = None if shape is None or shape.max_duration is None else rounded_up(shape.max_duration)
        capped: dict[str, int] = {}
        together = 0
        for candidate in payer_candidates(self._world, run):
            envelope = candidate.envelope
            if candidate.class_ == "Borrowed" or len(envelope.caps) > 1 or envelope.selector:
                continue
            whole = self._gpus(envelope, span) // size * size
            if envelope.caps:
                label = envelope.caps[0].account.label
                before = capped.get(label, 0)
                capped[label] = max(before, whole)
                whole = max(before, whole) - before
            together += whole
            if together >= gpus:
                return True
        return False

    def _gpus(self, envelope: EnvelopeState, duration: int | None) -> int:
        """GPUs that the envelope leaves to a stranger who declares that duration, or none."""
        key = (envelope.key, duration)
        known = self._known.get(key)
        if known is None:
            known = self._charge(envelope)
            if known:
                known = self._known[key] = max(0, min([known, *self._use(envelope, duration)]))
        return known

    def _charge(self, envelope: EnvelopeState) -> int:
        """By concurrency alone: what stays free for ever."""
        known = self._charges.get(envelope.key)
        if known is None:
            world, now = self._world, self._world.now
            least = envelope.account.free_charge() if envelope.open_at(now) else 0
            if least >= MILLI and envelope.promises:
                least = min(least, unreserved_charge(world, envelope, now, FOREVER, NO_RUN, None))
            for cap in envelope.caps if least >= MILLI else ():
                least = min(least, self._under(cap))
            known = self._charges[envelope.key] = max(0, least) // MILLI
        return known

    def _under(self, cap: CapState) -> int:
        label, free = cap.account.label, cap.account.free_charge()
        if cap.account.max_charge >= FOREVER:
            return free
        known = self._caps.get(label)
        if known is None:
            known = unreserved_charge_under_cap(self._world, cap, self._world.now, FOREVER, NO_RUN, None)
            known = self._caps[label] = min(free, known)
        return known

    def _use(self, envelope: EnvelopeState, duration: int | None) -> Iterator[int]:
        """By hours and credits, its own and those of its caps."""
        now = self._world.now
        span = HOUR if duration is None else min(duration, envelope.end - now)
        for account, max_credits, envelopes in envelope.exhaustible_limits:
            hours = account.free_use(now)
            if hours is not None:
                yield gpus_for(hours, MILLI * span)
            if max_credits is not None:
                left = max_credits - credits_used(envelopes, now)
                yield gpus_for(left, MILLI * span * envelope.price)
        declared = duration is not None
        for _, gpus in use_limits_of(NO_RUN, envelope, None, MILLI, now, span, declared=declared):
            yield gpus


def rounded_up(duration: int) -> int:
    """The duration, rounded up so that many Runs share one: whoever stays longer finds no more."""
    return HOUR << max(0, -(-duration // HOUR) - 1).bit_length()


def is_certainly_funded(world: World, run: RunState, promise: Promise) -> bool:
    """Whether each payer that a promise counts on has its part, even if all promises to others are kept.

    Told from what the envelopes keep free for all of them together, which is summed up once, or else once
    for all to whom much the same provisional work yields, or just the same; only of money that nothing but
    concurrency limits. Whoever gets no yes is asked exactly (``purse.funding_at``).
    """
    at, end = max(promise.at or 0, world.now), FOREVER if promise.end is None else promise.end
    if run.quotas or sum(gpus for _, gpus in promise.funding) < promise.width:
        return False
    found = {
        world.promise_index.first_provisional_after(promise.precedence, grain): None for grain in (GRAIN, 1)
    }
    ranks = [None, *((began, FOREVER, FIRST_ORDER) for began in found if began is not None)]
    for key, gpus in promise.funding:
        envelope = world.budgets.envelopes.get(key)
        if envelope is None or gpus % promise.pod_size or not _only_by_charge(world, run, envelope, at):
            return False
        free, known = (
            envelope.account.free_charge(),
            (reserved_charges_on(envelope, precedence) for precedence in ranks),
        )
        if all(free + HeadroomTimeline([claims], ()).lowest_between(at, end) < 0 for claims in known):
            return False
    return True


def _only_by_charge(world: World, run: RunState, envelope: EnvelopeState, at: int) -> bool:
    """Whether its concurrency alone limits what the envelope pays for this Run from that instant on."""
    if not envelope.limited_by_concurrency_only or envelope.selector or not envelope.open_at(at):
        return False
    return funding_class(world, envelope, run) in ("Owned", "Shared")
