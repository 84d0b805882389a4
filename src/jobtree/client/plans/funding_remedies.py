"""Lists what would let an envelope pay for a waiting Run.

It suffices to raise one payer by what all payers together lack, so each remedy names that amount and not
what its payer lacks by itself. A payer pays for whole pods, so its remainder below a pod is counted too.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator

from jobtree.api.schema.near_names import suggestion
from jobtree.api.schema.quantities import HOUR, MILLI, MINUTE, format_duration, format_time
from jobtree.client.plans.holder_lines import holders
from jobtree.core import (
    BESIDE_PROMISES,
    GPU_HOUR,
    Account,
    Cause,
    EnvelopeState,
    GpuLease,
    Reason,
    RunState,
    World,
    committed_duration,
    credits_used,
    funding_refusals,
    payable,
    payer_candidates,
    reservation_forecast,
)
from jobtree.messages.wording import counted_noun, joined_list

FundingRemedyText = Callable[[World, RunState, Cause, int], Iterator[str]]


def shortage(world: World, run: RunState, cause: Cause) -> int:
    """Returns the GPUs by which a limit must be raised so that its payer covers what all payers lack."""
    label = cause.where.removesuffix(BESIDE_PROMISES).removesuffix(" lending")
    paid = cause.have
    for candidate in payer_candidates(world, run):
        if candidate.envelope.label == label:
            paid = min(paid, payable(world, run, candidate, MILLI, world.now))
    pod_size = run_pod_size(world, run)
    return paid // pod_size * pod_size + deficit(world, run) - cause.have


def run_pod_size(world: World, run: RunState) -> int:
    return run.shape.pod_size(world.fleet.flavor(run.flavor).biggest_node) if run.shape else 1


def deficit(world: World, run: RunState) -> int:
    """Returns the GPUs that all payers together lack for the minimum width, of a gang of stages for all."""
    shape = run.shape
    if shape is None:
        return 0
    if run.gang and run.promise is not None:
        return reservation_forecast(world, run, run.promise).funding_deficit
    pod_size = run_pod_size(world, run)
    pods = bisect_right(
        range(1, shape.min // pod_size + 1),
        0,
        key=lambda pods: len(funding_refusals(world, run, pods * pod_size, pod_size, world.now)),
    )
    return shape.min - pods * pod_size


def new_envelope(_: World, run: RunState, __: Cause, short: int) -> Iterator[str]:
    yield (
        f"give {run.owner}, or a parent of it, an envelope of {run.flavor}"
        f" with at least {counted_noun(short, 'GPU')}"
    )


def other_window(world: World, _: RunState, cause: Cause, __: int) -> Iterator[str]:
    envelope = envelope_of(world, cause.where)
    if envelope.start > world.now:
        yield f"wait until {format_time(envelope.start)}: its window opens then"
    else:
        yield f"its window closed at {format_time(envelope.end)}: move its end"


def more_concurrency(world: World, run: RunState, cause: Cause, short: int) -> Iterator[str]:
    if cause.where.endswith(BESIDE_PROMISES):
        yield "what returns to it is reserved for older Runs: 'kubectl runs reservations' lists them"
        if run.shape is not None and run.shape.checkpoint is None:
            yield "declare a runtime.checkpoint, and it may use that provisionally"
        return
    yield f"raise envelope {cause.where} by {counted_noun(short, 'GPU')}"
    yield from wait_for(world, envelope_of(world, cause.where).leases.values())


def more_hours(world: World, run: RunState, cause: Cause, short: int) -> Iterator[str]:
    """Suggests GPU-hours for the committed duration of the Run: its maxDuration, or one hour without it."""
    envelope = envelope_of(world, cause.where)
    left = max(0, envelope.account.free_use(world.now) or 0)
    wanted = (cause.have + short) * MILLI * committed_duration(run, envelope, world.now)
    yield f"raise maxGPUHours of envelope {cause.where} by {-((left - wanted) // GPU_HOUR)}"
    affordable = left // ((cause.have + short) * MILLI) // MINUTE * MINUTE
    if run.shape is not None and run.shape.max_duration is not None and affordable:
        yield f"or declare a runtime.maxDuration of at most {format_duration(affordable)}"


def more_credits(world: World, run: RunState, cause: Cause, short: int) -> Iterator[str]:
    envelope = envelope_of(world, cause.where)
    left = max(0, (envelope.max_credits or 0) - credits_used([envelope], world.now))
    hours = (cause.have + short) * MILLI * committed_duration(run, envelope, world.now)
    amount = -((left - hours * envelope.price) // (GPU_HOUR * MILLI))
    yield f"raise maxCredits of envelope {cause.where} by {amount}"


def ask_sponsor(world: World, run: RunState, cause: Cause, _: int) -> Iterator[str]:
    owned = world.budgets.by_owner.get(cause.where, [])
    of_flavor = [envelope for envelope in owned if envelope.spec.flavor == run.flavor]
    if not owned:
        hint = suggestion(cause.where, world.budgets.by_owner) or "check how it is spelled"
        yield f"no Budget is owned by {cause.where}: {hint}"
    elif not of_flavor:
        yield f"ask another sponsor: {cause.where} has no envelope of {run.flavor}"
    else:
        names = joined_list([envelope.label for envelope in of_flavor])
        yield f"ask {cause.where} to lend: lending.allow: true and {run.owner} in lending.to of {names}"


def borrow_more(world: World, _: RunState, cause: Cause, short: int) -> Iterator[str]:
    label = cause.where.removesuffix(" lending")
    if label == cause.where:
        yield f"raise {cause.where} of this Run by {short}"
        return
    envelope = envelope_of(world, label)
    yield f"ask {envelope.owner} to raise the lending of envelope {label} by {counted_noun(short, 'GPU')}"
    lent = (lease for lease in envelope.leases.values() if lease.class_ == "Borrowed")
    yield from wait_for(world, lent)


def higher_cap(world: World, _: RunState, cause: Cause, short: int) -> Iterator[str]:
    budget, __, name = cause.where.partition("/")
    caps = [cap for cap in world.budgets.caps.get(budget, []) if cap.spec.name == name]
    for cap in caps:
        if binds_gpus(cap.account, cause.have):
            yield f"raise maxConcurrency of cap {cause.where} by {short}"
            yield from wait_for(
                world, (lease for envelope in cap.envelopes for lease in envelope.leases.values())
            )
        else:
            yield f"raise maxGPUHours or maxCredits of cap {cause.where}: it is used up or committed"


def binds_gpus(account: Account, have: int) -> bool:
    return account.free_charge() // MILLI <= have


def larger_quota(world: World, run: RunState, cause: Cause, short: int) -> Iterator[str]:
    label = cause.where.removesuffix(BESIDE_PROMISES)
    if label != cause.where:
        yield f"the rest of the quota of {label} is kept for stages that were promised their start"
        return
    for quota in run.quotas:
        if quota.label != label:
            continue
        if binds_gpus(quota, cause.have):
            yield f"raise spec.quota.maxGPUs of the tree {label} by {short}"
        hours = missing_hours(quota, (cause.have + short) * committed_span(run), world.now)
        if hours > 0:
            yield f"raise spec.quota.maxGPUHours of the tree {label} by {hours}"


def committed_span(run: RunState) -> int:
    """Returns for how long a start commits GPU-hours of a quota: its maxDuration, or an hour without it."""
    shape = run.shape
    return HOUR if shape is None or shape.max_duration is None else shape.max_duration


def missing_hours(account: Account, wanted: int, now: int) -> int:
    """Returns the whole GPU-hours that an account lacks for so many GPU-milliseconds; 0 without a limit."""
    left = account.free_use(now)
    return 0 if left is None else max(0, -((max(0, left) - wanted * MILLI) // GPU_HOUR))


def wait_for(world: World, leases: Iterable[GpuLease]) -> Iterator[str]:
    text = holders(world, leases)
    if text:
        yield f"or wait for {text}"


def envelope_of(world: World, label: str) -> EnvelopeState:
    budget, _, name = label.partition("/")
    return world.budgets.envelopes[budget, name]


FUNDING: dict[Reason, FundingRemedyText] = {
    Reason.NO_ENVELOPE: new_envelope,
    Reason.WINDOW_NOT_OPEN: other_window,
    Reason.CONCURRENCY_EXHAUSTED: more_concurrency,
    Reason.HOURS_EXHAUSTED: more_hours,
    Reason.CREDITS_EXHAUSTED: more_credits,
    Reason.LENDING_DENIED: ask_sponsor,
    Reason.BORROW_LIMIT: borrow_more,
    Reason.AGGREGATE_CAP: higher_cap,
    Reason.TREE_QUOTA: larger_quota,
}


def further_funding(world: World, run: RunState) -> Iterator[str]:
    """Yields ways to pay that the Run does not use yet."""
    shape = run.shape
    if shape is None or not deficit(world, run):
        return
    lenders = [
        f"{owner} (up to {counted_noun(gpus, 'GPU')})" for owner, gpus in unasked_lenders(world, run).items()
    ]
    if lenders:
        yield f"borrow from {joined_list(lenders)}: funding.allowBorrow: true, with sponsors"
    if not shape.allow_opportunistic and world.fleet.flavor(run.flavor).free >= shape.min:
        yield "start opportunistically, until a funded Run needs the GPUs: funding.allowOpportunistic: true"


def unasked_lenders(world: World, run: RunState) -> dict[str, int]:
    """Returns owners that would lend to the Run and are not its payers, with the GPUs they can lend."""
    payers = {candidate.envelope.key for candidate in payer_candidates(world, run)}
    lenders: dict[str, int] = {}
    for key, envelope in sorted(world.budgets.envelopes.items()):
        fits = envelope.spec.flavor == run.flavor and envelope.open_at(world.now)
        free = min(envelope.account.free_charge(), envelope.lending_account.free_charge()) // MILLI
        if fits and free > 0 and key not in payers and envelope.lends_to(run.owner):
            lenders[envelope.owner] = lenders.get(envelope.owner, 0) + free
    return lenders
