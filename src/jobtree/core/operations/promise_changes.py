"""Makes promises, moves them earlier, or moves them later with a reason (R1, R5, R9)."""

from collections.abc import Sequence, Set as AbstractSet
from operator import attrgetter

import msgspec

from jobtree.api.schema.quantities import format_duration
from jobtree.core.availability.availability_profile import keeps_promise, meets_lottery
from jobtree.core.availability.payer_placement import (
    PayerKeys,
    PayerPlacement,
    can_pay_slice,
    pay_throughout,
    payer_placements,
    payers_in_slice,
)
from jobtree.core.availability.start_search import StartOption, StartSearch
from jobtree.core.funding.conditional_promise import is_conditional
from jobtree.core.funding.current_funding_lower_bound import is_certainly_funded
from jobtree.core.funding.future_funding import FundingSplit, fundable_ever, funding_at
from jobtree.core.lottery.draw import commitment_of, nonce_for
from jobtree.core.model.gpu_lease import EnvelopeKey
from jobtree.core.model.promise import (
    LOTTERY,
    NO_DISRUPTION,
    RECALL,
    Precedence,
    Promise,
    PromiseSlip,
    add_slip,
)
from jobtree.core.model.reasons import Cause, Reason
from jobtree.core.operations.trial import Trial
from jobtree.core.runs.notice import immunity_ms
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.world import World


def make_promise(trial: Trial, run: RunState, pod_size: int, payers: PayerKeys | None = None) -> Promise:
    """Gives the Run a Reservation, behind all promises that exist; ``payers`` may pay for it, or all."""
    world = trial.world
    undated = empty_promise(world, run, pod_size, run, run.reservations_made + 1)
    promise = with_option(world, run, undated, search_start(world, run, pod_size, None, payers=payers))
    trial.begin_action("Reserve", run, world.now, Cause(Reason.RESERVED, promise.name), promise=promise)
    return promise


def promise_place(trial: Trial, run: RunState, pod_size: int) -> bool:
    """Gives the Run a Reservation without a date if too many funded Runs wait before it (R13).

    It holds nothing. A Run that nothing known will make fundable is told so instead, at any place.
    """
    world = trial.world
    if not world.is_beyond_depth(run) or not payable_ever(world, run, pod_size):
        return False
    promise = without_date(run, empty_promise(world, run, pod_size, run, run.reservations_made + 1))
    trial.begin_action("Reserve", run, world.now, Cause(Reason.RESERVED, promise.name), promise=promise)
    return True


def without_date(run: RunState, promise: Promise) -> Promise:
    """The promise of a Run that waits beyond the depth, at its present least width."""
    width = run.shape.min if run.shape else 0
    return msgspec.structs.replace(promise, width=width, beyond_depth=True)


def empty_promise(world: World, run: RunState, pod_size: int, named_run: RunState, number: int) -> Promise:
    """A promise without a date. Its Reservation is named after ``named_run``."""
    nonce = nonce_for(world.lottery_key, named_run.uid, number)
    return Promise(
        run_key=run.key,
        flavor=run.flavor,
        number=number,
        made_at=world.now,
        creation_order=run.creation_order,
        commitment=commitment_of(nonce),
        at=None,
        disruption=NO_DISRUPTION,
        width=run.shape.min if run.shape else 0,
        pod_size=pod_size,
        domain_gpus=(),
        funding=(),
        end=None,
        immune_until=0,
        sequence=next_sequence(world, run),
        named_after=named_run.key[1],
    )


def next_sequence(world: World, run: RunState) -> int:
    """The sequence number that puts a promise made now behind all that were made before (R5)."""
    if not world.promise_order or world.promise_order[-1][0] < world.now:
        return 0
    _, sequence, creation_order = world.promise_order[-1]
    return sequence if creation_order < run.creation_order else sequence + 1


def search_start(  # noqa: PLR0913  for whom, behind whom, from when, paid by whom
    world: World,
    run: RunState,
    pod_size: int,
    precedence: Precedence | None,
    not_before: int = 0,
    *,
    payers: PayerKeys | None = None,
) -> StartOption | None:
    """The best start that these payers of the Run, or all, can pay for, on nodes where they pay (C3)."""
    if precedence is None and not fundable_ever(world, run, pod_size):
        return None
    terms = (world, run, pod_size, precedence, not_before)
    best = StartSearch(*terms, PayerPlacement(payers=payers)).find()
    if best is None or pay_throughout(world, run.flavor, best.domain_gpus, best.funding):
        return best
    searches = (
        StartSearch(*terms, placement.limited_to(payers)).find() for placement in payer_placements(world, run)
    )
    options = [option for option in searches if option is not None]
    if options or not can_pay_slice(world, run.flavor, best.domain_gpus, best.funding):
        return preferred_option(world, options)
    return best


def preferred_option(world: World, options: Sequence[StartOption]) -> StartOption | None:
    """The earliest option, but one without a lottery if it is at most ``maxNotice`` later (R1)."""
    with_lottery = min(
        (option for option in options if option.disruption == LOTTERY), key=attrgetter("at"), default=None
    )
    without_lottery = min(
        (option for option in options if option.disruption != LOTTERY), key=attrgetter("at"), default=None
    )
    if with_lottery is None or without_lottery is None:
        return with_lottery or without_lottery
    return (
        without_lottery
        if without_lottery.at <= with_lottery.at + world.policy.max_notice_ms
        else with_lottery
    )


def with_option(world: World, run: RunState, promise: Promise, option: StartOption | None) -> Promise:
    """The promise with that start; without one it has no date and reserves what its payers get back (C12)."""
    shape = run.shape
    assert shape is not None
    if option is None:
        return msgspec.structs.replace(
            promise,
            beyond_depth=False,
            at=None,
            disruption=NO_DISRUPTION,
            width=shape.min,
            domain_gpus=(),
            funding=payable_ever(world, run, promise.pod_size) if promise.keeps_budget else (),
            end=None,
            immune_until=0,
            window_aligned=False,
            beacon=None,
            recalls=(),
            held=False,
        )
    source = world.policy.beacon
    return msgspec.structs.replace(
        promise,
        at=option.at,
        disruption=option.disruption,
        width=option.width,
        domain_gpus=option.domain_gpus,
        funding=option.funding,
        end=None if shape.max_duration is None else option.at + shape.max_duration,
        immune_until=option.at + immunity_ms(world.policy, run.lotteries_lost),
        window_aligned=option.window_aligned,
        beyond_depth=False,
        keeps_budget=True,
        recalls=option.recalls,
        held=False,
        beacon=None if source is None else (source.name, source.round_known_by(option.at)),
    )


def payable_ever(world: World, run: RunState, pod_size: int) -> FundingSplit:
    """Payers that could pay for the least width with all their budget, if the empty fleet could hold it."""
    assert run.shape is not None
    for placement in payer_placements(world, run):
        split, lacking = funding_at(
            world, run, run.shape.min, pod_size, world.now, None, empty=True, only=placement.payers
        )
        if not lacking and placeable_ever(StartSearch(world, run, pod_size, None, 0, placement)):
            return split
    return ()


def placeable_ever(search: StartSearch) -> bool:
    """Whether the fleet, empty, could hold the Run at its least width."""
    shape, pods = search.shape, search.shape.min // search.size
    if not shape.spread:
        return any(profile.capacity_pods >= pods for profile in search.profiles)
    chunk = max(1, shape.group // search.size) if shape.group else 1
    return sum(profile.capacity_pods // chunk for profile in search.profiles) * chunk >= pods


def search_start_again(trial: Trial, run: RunState, reason: Reason, not_before: int = 0) -> None:
    """Searches another start for a Run with a promise and moves the promise to it; an edit costs its rank."""
    world, before = trial.world, run.promise
    assert before is not None
    if before.beyond_depth and world.is_beyond_depth(run):
        replace_promise(trial, run, before, without_date(run, before), reason)
        return
    if before.at is not None:
        trial.begin_action("Withdraw", run, world.now, Cause(reason, before.name))
        if reason is Reason.EDITED:
            (before,) = ordered_behind_all(world, [run], [before])
    # Without a date it delayed no other promise, and must not do so now.
    precedence = None if before.at is None else before.precedence
    option = search_start(world, run, before.pod_size, precedence, not_before)
    replace_promise(trial, run, before, with_option(world, run, before, option), reason)


def replace_promise(trial: Trial, run: RunState, before: Promise, after: Promise, reason: Reason) -> Promise:
    """Replaces a promise. If it is later than before, or has no date any more, that is a slip with a reason.

    A promise that was made in this very pass was not reported to any user: it does not slip.
    """
    slips = before.slips
    later = before.at is not None and (after.at is None or after.at > before.at)
    if before.at is not None and later and not trial.has_promised(run, before):
        slips = add_slip(slips, PromiseSlip(before.at, after.at, str(reason)))
    after = msgspec.structs.replace(after, slips=slips)
    trial.begin_action("Move", run, trial.world.now, Cause(reason, before.name), promise=after)
    return after


def find_date(trial: Trial, run: RunState, pod_size: int, payers: PayerKeys | None = None) -> bool:
    """Searches a date for a promise without one, behind all promises that have one (R9).

    A date that breaks as soon as it is promised is dropped: it would be found and lost again in every pass.
    Returns whether a date was found.
    """
    world, before, checkpoint = trial.world, run.promise, trial.checkpoint()
    assert before is not None
    undated = msgspec.structs.replace(before, pod_size=pod_size)
    option = search_start(world, run, pod_size, None, search_from(world, before), payers=payers)
    after = with_option(world, run, undated, option)
    if after.at is not None:
        (after,) = ordered_behind_all(world, [run], [after])
    if is_improvement(before, after):
        trial.begin_action("Move", run, world.now, Cause(Reason.RESERVED, before.name), promise=after)
        if broken_reason(world, run) is not None:
            trial.rollback(checkpoint)
            if before.beyond_depth:
                after = with_option(world, run, undated, None)
                replace_promise(trial, run, before, after, Reason.RESERVED)
    return after.at is not None


def ordered_behind_all(world: World, runs: Sequence[RunState], promises: Sequence[Promise]) -> list[Promise]:
    """The promises as made now, in their order: promises that had a date before hold against them (R5)."""
    first_sequence = max(next_sequence(world, run) for run in runs)
    return [
        msgspec.structs.replace(promise, made_at=world.now, sequence=first_sequence + position)
        for position, promise in enumerate(promises)
    ]


def search_from(world: World, promise: Promise) -> int:
    """The earliest date to search: a promise that failed is put off by ``maxNotice``, as when it failed."""
    return world.now + world.policy.max_notice_ms if promise.has_failed_by(world.now) else 0


def keep_date(trial: Trial, run: RunState) -> bool:
    """Keeps the firm date of a Run that starts before it, for the nodes on which it runs (R7).

    Its leases and its promise count once: the leases until the date, the promise from then on. Returns False
    where there is no such date, or no room for the promise beside others.
    """
    world, promise, shape = trial.world, run.promise, run.shape
    if promise is None or promise.at is None or shape is None or promise.at <= world.now:
        return False
    if run.gang or shape.malleable or shape.spares or is_conditional(world, promise):
        return False
    checkpoint = trial.checkpoint()
    cause = Cause(Reason.STARTED_EARLY, promise.name)
    after = held_promise(world, run, promise)
    trial.begin_action("Move", run, world.now, cause, promise=after)
    others = {
        run_key
        for name, _ in after.domain_gpus
        for run_key in world.fleet.flavor(run.flavor).domains[name].promises
    }
    if all(broken_reason(world, world.runs[run_key]) is None for run_key in sorted({run.key, *others})):
        return True
    trial.rollback(checkpoint)
    return False


def held_promise(world: World, run: RunState, promise: Promise) -> Promise:
    """Returns a promise as the Run holds it that runs before its date, where it runs."""
    domain_gpus = domains_of_leases(world, run)
    return msgspec.structs.replace(
        promise, domain_gpus=domain_gpus, disruption=NO_DISRUPTION, recalls=(), held=True
    )


def domains_of_leases(world: World, run: RunState) -> tuple[tuple[str, int], ...]:
    """Returns the GPUs that a Run uses in each domain, by name."""
    gpus: dict[str, int] = {}
    for lease in run.leases.values():
        for node, mask in lease.slots:
            name = world.fleet.domain_by_node[node].name
            gpus[name] = gpus.get(name, 0) + mask.bit_count()
    return tuple(sorted(gpus.items()))


def stop_keeping_budget(trial: Trial, run: RunState, at: int) -> None:
    """Leaves to others what was kept for a Run without a date: enough of it was left idle (C12)."""
    promise = run.promise
    assert promise is not None
    cause = Cause(Reason.BUDGET_LEFT_IDLE, format_duration(trial.world.policy.keep_idle_ms), 0, promise.width)
    after = msgspec.structs.replace(promise, funding=(), keeps_budget=False)
    trial.begin_action("Move", run, at, cause, promise=after)


def is_improvement(before: Promise, after: Promise) -> bool:
    """Whether a promise has a date now, or reserves budget, or has moved up (R13), and did not before."""
    return after.at is not None or before.beyond_depth or (bool(after.funding) and not before.funding)


def replace_payers(trial: Trial, run: RunState) -> bool:
    """Counts on other payers, or on other amounts of them, where a payer can no longer pay its share.

    What other promises count on is left to them. A promise that can then be paid by the family alone moves
    behind all others (C14). A promise that recalls budget itself keeps its payers.
    """
    world, promise = trial.world, run.promise
    if promise is None or promise.at is None or promise.disruption == RECALL:
        return False
    if payers_can_pay(world, run, promise):
        return False
    payers = payers_in_slice(world, run, promise)
    split, lacking = funding_then(world, run, promise, payers, beside_all=True)
    if lacking and not run.gang and is_conditional(world, promise):
        trial.begin_action("Withdraw", run, world.now, Cause(Reason.OWNER_NEEDS, promise.name))
        move_behind_others(trial, run, promise, promise.at)
        return True
    if lacking:
        before = frozenset(key for key, _ in promise.funding)
        split, lacking = funding_then(world, run, promise, before if payers is None else before & payers)
    if lacking:
        split, _ = funding_then(world, run, promise, payers)
    if split == promise.funding:
        return False
    after = msgspec.structs.replace(promise, funding=split)
    trial.begin_action("Move", run, world.now, Cause(Reason.FUNDING_LOST, promise.name), promise=after)
    return True


def move_behind_others(trial: Trial, run: RunState, promise: Promise, not_before: int = 0) -> None:
    """Moves a conditional promise that was withdrawn to a start behind all others (C14)."""
    world = trial.world
    option = search_start(world, run, promise.pod_size, None, not_before)
    (later,) = ordered_behind_all(world, [run], [with_option(world, run, promise, option)])
    replace_promise(trial, run, promise, later, Reason.OWNER_NEEDS)


def payers_can_pay(world: World, run: RunState, promise: Promise) -> bool:
    """Whether each payer of a promise pays in its slice and can pay its share, and all together the width."""
    in_slice = payers_in_slice(world, run, promise)
    if in_slice is not None and any(key not in in_slice for key, _ in promise.funding):
        return False
    shares = [(frozenset((key,)), gpus) for key, gpus in promise.funding]
    if len(shares) > 1:
        shares.append((frozenset(key for key, _ in promise.funding), promise.width))
    at = max(promise.at or 0, world.now)
    terms = (promise.pod_size, at, promise.precedence)
    return not any(funding_at(world, run, gpus, *terms, only=payers)[1] for payers, gpus in shares)


def funding_then(
    world: World,
    run: RunState,
    promise: Promise,
    payers: AbstractSet[EnvelopeKey] | None,
    *,
    beside_all: bool = False,
) -> tuple[FundingSplit, int]:
    """The payers of a promise at the instant it is due, and the GPUs that they could not pay for then.

    Promises made before it count, or all others.
    """
    at, precedence = max(promise.at or 0, world.now), None if beside_all else promise.precedence
    return funding_at(world, run, promise.width, promise.pod_size, at, precedence, only=payers)


def broken_reason(world: World, run: RunState) -> Reason | None:
    """The reason why a promise can no longer be kept as it is; None if it can (R2, R5)."""
    return broken_reason_and_certainty(world, run)[0]


def broken_reason_and_certainty(world: World, run: RunState) -> tuple[Reason | None, bool]:
    """The same, and whether it is certain that each of its payers can pay its share."""
    promise = run.promise
    if promise is None or promise.at is None or run.shape is None:
        return None, True
    at, crowded = max(promise.at, world.now), None
    domains = world.fleet.flavor(promise.flavor).domains
    for name, _ in promise.domain_gpus if not promise.held else ():
        if name not in domains:
            return Reason.NODES_LOST, False
        if not keeps_promise(world, domains[name], promise):
            if name in world.domains_that_shrank:
                return Reason.NODES_LOST, False
            crowded = Reason.COLLISION if meets_lottery(world, domains[name], promise) else Reason.CROWDED_OUT
    if is_certainly_funded(world, run, promise):
        return crowded, True
    terms, payers = (
        (promise.width, promise.pod_size, at, promise.precedence),
        payers_in_slice(world, run, promise),
    )
    _, lacking = funding_at(world, run, *terms, only=payers)
    return Reason.FUNDING_LOST if lacking else crowded, False


def exhausts_own_promise(world: World, run: RunState) -> bool:
    """Whether an interim Run uses so much budget that its own promise could not be paid."""
    return run.interim_until is not None and broken_reason(world, run) is Reason.FUNDING_LOST
