"""Computes what a Run that arrives now could really get of an envelope, and which limit binds.

A probe is asked as any Run: open-ended, without a checkpoint, last in line. Cover says what each limit leaves
to it. A Run of the envelope's owner takes back what the family has of its budget, by recall (C11) and from
promises (C14), so its probe is asked in a trial without them. Room on nodes is not considered.
"""

from collections.abc import Iterator

import msgspec

from jobtree.api.kinds.lease import LeaseClass
from jobtree.api.kinds.run import Funding, Resources, Run, RunSpec
from jobtree.api.schema.object_meta import ObjectMeta
from jobtree.api.schema.quantities import MILLI, format_time
from jobtree.core.accounts.envelope_accounts import FOREVER, Account, EnvelopeState
from jobtree.core.accounts.payers import PayerCandidate
from jobtree.core.funding.cover import BESIDE_PROMISES, Limit, payer_limits
from jobtree.core.funding.payer_candidates import funding_class
from jobtree.core.funding.reserved_hours import reserved_usages
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.reasons import Cause, Reason
from jobtree.core.operations.reclaim import recallable_leases
from jobtree.core.operations.trial import Trial
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.world import World

PROBE: RunKey = ("", "a Run that arrives now")


class Headroom(msgspec.Struct, frozen=True):
    """What an envelope leaves to a Run that arrives now."""

    gpus: int  # for a Run of its owner
    family_gpus: int  # for a Run of another owner of its family
    lendable_gpus: int  # for a sponsored Run
    hours_left: int | None  # thousandths of a GPU times milliseconds, for a Run of its owner; None: no limit
    committed: int  # the same: for running Runs with a maxDuration and for promises
    limited_by: str  # why gpus is less than the concurrency; empty if it is not


def headroom_of(world: World, envelope: EnvelopeState) -> Headroom:
    committed = committed_use(world, envelope)
    if not envelope.open_at(world.now):
        hours = None if hours_limit(envelope) is None else 0
        return Headroom(0, 0, 0, hours, committed, closed_text(envelope, world.now))
    family, _ = least(limits_for(world, envelope, "Shared"))
    lendable, _ = least(limits_for(world, envelope, "Borrowed"))
    lending = envelope.spec.lending
    trial = Trial(world)
    returned = take_back_from_family(trial, envelope)
    limits = limits_for(world, envelope, "Owned")
    gpus, binding = least(limits)
    hours = hours_left_of(world, envelope)
    trial.rollback()
    return Headroom(
        gpus=gpus,
        family_gpus=family if envelope.spec.sharing == "family" else 0,
        lendable_gpus=lendable if lending is not None and lending.allow else 0,
        hours_left=hours,
        committed=committed,
        limited_by="; ".join(limit_texts(envelope, gpus, binding, returned)),
    )


def limits_for(world: World, envelope: EnvelopeState, class_: LeaseClass) -> list[Limit]:
    return payer_limits(world, probe(world, envelope), PayerCandidate(0, class_, envelope), MILLI, world.now)


def probe(world: World, envelope: EnvelopeState) -> RunState:
    """Returns a Run of the envelope's owner and flavor that is in no world."""
    spec = RunSpec(
        owner=envelope.owner,
        resources=Resources(gpu_type=envelope.spec.flavor, total_gpus=1),
        funding=Funding(),
    )
    return RunState(Run(metadata=ObjectMeta(namespace=PROBE[0], name=PROBE[1]), spec=spec), world.now)


def least(limits: list[Limit]) -> tuple[int, list[Limit]]:
    """Returns the GPUs that all limits leave, and those limits that leave no more."""
    gpus = min(have for _, _, have in limits)
    return gpus, [limit for limit in limits if limit[2] == gpus]


def take_back_from_family(trial: Trial, envelope: EnvelopeState) -> int:
    """Ends what the family uses of the owner's budget and is promised of it; returns the GPUs in use."""
    world, now = trial.world, trial.world.now
    for run_key, promise in list(envelope.promises.items()):
        run = world.runs[run_key]
        if funding_class(world, envelope, run) == "Shared":
            trial.begin_action("Withdraw", run, now, Cause(Reason.OWNER_NEEDS, promise.name))
    returned = 0
    if envelope.by_class["shared"].amount:
        for lease in recallable_leases(world, probe(world, envelope), now):
            trial.begin_action("Demote", world.runs[lease.run_key], now, Cause(Reason.DEMOTED))
            trial.close(lease.name, now, "Recalled")
            returned += lease.gpus if lease.payer == envelope.key else 0
    return returned


def committed_use(world: World, envelope: EnvelopeState) -> int:
    """Returns what running Runs with a maxDuration have not used yet, and what dated promises will use."""
    return declared_use(envelope.account, world.now) + promised_use([envelope], world.now)


def declared_use(account: Account, now: int) -> int:
    """Returns what running Runs with a maxDuration have not used yet."""
    return max(0, account.declared_end - account.declared * now)


def promised_use(envelopes: list[EnvelopeState], now: int, *, priced: bool = False) -> int:
    """Returns the usage that dated promises on these envelopes will have; with ``priced``, in credits."""
    reserved = reserved_usages(envelopes, PROBE, None, priced=priced)
    return sum(usage.used_by(max(now, usage.at)) for usage in reserved)


def hours_limit(envelope: EnvelopeState) -> int | None:
    limits = [envelope.account.max_use, *(cap.account.max_use for cap in envelope.caps)]
    return min((limit for limit in limits if limit is not None), default=None)


def hours_left_of(world: World, envelope: EnvelopeState) -> int | None:
    """Returns the usage that hours of the envelope and of its caps still allow, within its window."""
    left = []
    for account, _, envelopes in envelope.exhaustible_limits:
        free = account.free_use(world.now)
        if free is not None:
            left.append(max(0, free - promised_use(envelopes, world.now)))
    if left and envelope.end < FOREVER:
        left.append(envelope.account.max_charge * (envelope.end - world.now))
    return min(left, default=None)


def closed_text(envelope: EnvelopeState, now: int) -> str:
    if envelope.retired_at is None and envelope.start > now:
        return f"its window opens at {format_time(envelope.start)}"
    return f"its window closed at {format_time(envelope.end)}" if envelope.end <= now else "it is removed"


def limit_texts(envelope: EnvelopeState, gpus: int, binding: list[Limit], returned: int) -> Iterator[str]:
    """Yields why a Run of the owner cannot get all GPUs of the envelope, and what it takes back."""
    if gpus * MILLI < envelope.account.max_charge:
        yield " and ".join(dict.fromkeys(limit_text(envelope, limit) for limit in binding))
    if returned:
        yield f"{returned} in use by the family, until the owner needs them"


def limit_text(envelope: EnvelopeState, limit: Limit) -> str:
    reason, label, _ = limit
    if label.endswith(BESIDE_PROMISES):
        return "kept for waiting Runs"
    match reason:
        case Reason.CONCURRENCY_EXHAUSTED:
            return "in use"
        case Reason.HOURS_EXHAUSTED:
            return "GPU-hours used or committed"
        case Reason.CREDITS_EXHAUSTED:
            return "credits used or committed"
    return f"cap {label.rpartition('/')[2]}" if label != envelope.label else str(reason)
