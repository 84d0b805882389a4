"""Bounds from below what an envelope can pay now for any Run, beside all promises.

Whenever a Run ends, each waiting Run is tested for funding, and the exact answer depends on the promise and
the duration of each. The answer here is shared by all Runs: what an envelope leaves to a Run that has no
promise and lasts at least as long. It may be too low, never too high. So yes is certain, and otherwise the
exact computation decides (``cover.funding_refusals``).
"""

from collections.abc import Iterator

from jobtree.api.schema.quantities import HOUR, MILLI
from jobtree.core.accounts.budget_timeline import HeadroomTimeline, reserved_charges_on
from jobtree.core.accounts.envelope_accounts import FOREVER, CapState, EnvelopeState, credits_used
from jobtree.core.funding.cover import gpus_for
from jobtree.core.funding.payer_candidates import funding_class, payer_candidates
from jobtree.core.funding.reserved_budget import unreserved_charge, unreserved_charge_under_cap
from jobtree.core.funding.reserved_hours import use_limits_of
from jobtree.core.model.gpu_lease import EnvelopeKey, RunKey
from jobtree.core.model.promise import CreationOrder, Promise
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.world import World

NO_RUN: RunKey = ("", "")
FIRST_ORDER: CreationOrder = (0, "", "")
GRAIN = 16


class CurrentFundingLowerBound:
    """What envelopes leave to any Run; valid until the world changes."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._gpus_by_duration: dict[tuple[EnvelopeKey, int | None], int] = {}
        self._gpus_by_charge: dict[EnvelopeKey, int] = {}
        self._charge_under_cap: dict[str, int] = {}  # by label of the cap

    def certainly_pays(self, run: RunState, gpus: int, pod_size: int) -> bool:
        """Whether the payers of a Run certainly pay for that many GPUs, in pods of that size, on all nodes.

        Of the envelopes under one cap only the one that pays most counts. Envelopes under several caps,
        lenders, envelopes with a selector and Runs with a quota are left to the exact computation.
        """
        if run.quotas or run.since is not None or run.precedence_at(self._world.now) is not None:
            return False
        shape = run.shape
        duration = None if shape is None or shape.max_duration is None else rounded_up(shape.max_duration)
        gpus_under_cap: dict[str, int] = {}
        total = 0
        for candidate in payer_candidates(self._world, run):
            envelope = candidate.envelope
            if candidate.class_ == "Borrowed" or len(envelope.caps) > 1 or envelope.selector:
                continue
            in_pods = self._gpus(envelope, duration) // pod_size * pod_size
            if envelope.caps:
                label = envelope.caps[0].account.label
                before = gpus_under_cap.get(label, 0)
                gpus_under_cap[label] = max(before, in_pods)
                in_pods = max(before, in_pods) - before
            total += in_pods
            if total >= gpus:
                return True
        return False

    def _gpus(self, envelope: EnvelopeState, duration: int | None) -> int:
        """Returns the GPUs that the envelope leaves to a Run that declares that duration, or none."""
        key = (envelope.key, duration)
        gpus = self._gpus_by_duration.get(key)
        if gpus is None:
            gpus = self._gpus_within_charge(envelope)
            if gpus:
                use_limits = self._gpus_within_use(envelope, duration)
                gpus = self._gpus_by_duration[key] = max(0, min([gpus, *use_limits]))
        return gpus

    def _gpus_within_charge(self, envelope: EnvelopeState) -> int:
        """Returns the GPUs that concurrency alone leaves free for ever."""
        gpus = self._gpus_by_charge.get(envelope.key)
        if gpus is None:
            world, now = self._world, self._world.now
            charge = envelope.account.free_charge() if envelope.open_at(now) else 0
            if charge >= MILLI and envelope.promises:
                charge = min(charge, unreserved_charge(world, envelope, now, FOREVER, NO_RUN, None))
            for cap in envelope.caps if charge >= MILLI else ():
                charge = min(charge, self._free_charge_under_cap(cap))
            gpus = self._gpus_by_charge[envelope.key] = max(0, charge) // MILLI
        return gpus

    def _free_charge_under_cap(self, cap: CapState) -> int:
        label, free = cap.account.label, cap.account.free_charge()
        if cap.account.max_charge >= FOREVER:
            return free
        charge = self._charge_under_cap.get(label)
        if charge is None:
            unreserved = unreserved_charge_under_cap(self._world, cap, self._world.now, FOREVER, NO_RUN, None)
            charge = self._charge_under_cap[label] = min(free, unreserved)
        return charge

    def _gpus_within_use(self, envelope: EnvelopeState, duration: int | None) -> Iterator[int]:
        """Yields the GPUs that each limit of hours or credits leaves: of the envelope and of its caps."""
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
    """Returns the duration rounded up to a power of two of hours, so that many Runs share an answer.

    A longer Run can be paid for no more GPUs, so the bound stays a lower bound.
    """
    return HOUR << max(0, -(-duration // HOUR) - 1).bit_length()


def is_certainly_funded(world: World, run: RunState, promise: Promise) -> bool:
    """Whether each payer of a promise certainly has its part, even if all promises to others are kept.

    This considers only envelopes that nothing but concurrency limits. What they keep for all promises is
    summed once for all Runs, or once for all precedences that can reclaim the same, or almost the same,
    provisional work. Where the answer is no, the exact computation decides (``future_funding.funding_at``).
    """
    at, end = max(promise.at or 0, world.now), FOREVER if promise.end is None else promise.end
    if run.quotas or sum(gpus for _, gpus in promise.funding) < promise.width:
        return False
    starts = {
        world.promise_index.first_provisional_after(promise.precedence, grain): None for grain in (GRAIN, 1)
    }
    precedences = [None, *((start, FOREVER, FIRST_ORDER) for start in starts if start is not None)]
    for key, gpus in promise.funding:
        envelope = world.budgets.envelopes.get(key)
        if envelope is None or gpus % promise.pod_size or not _only_charge_limits(world, run, envelope, at):
            return False
        free = envelope.account.free_charge()
        reserved = (reserved_charges_on(envelope, precedence) for precedence in precedences)
        if all(free + HeadroomTimeline([charges], ()).lowest_between(at, end) < 0 for charges in reserved):
            return False
    return True


def _only_charge_limits(world: World, run: RunState, envelope: EnvelopeState, at: int) -> bool:
    """Whether concurrency alone limits what the envelope pays for this Run from that instant on."""
    if not envelope.limited_by_concurrency_only or envelope.selector or not envelope.open_at(at):
        return False
    return funding_class(world, envelope, run) in ("Owned", "Shared")
