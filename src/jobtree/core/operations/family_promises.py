"""Withdraws promises to the family for a Run of the owner of the budget that they count on (C14).

A promise that counts on budget of the family holds against all Runs but those of the owner of that budget
which the owner's own envelopes pay for in whole. Such a Run starts, or is promised its start, as if these
promises were not there. The youngest are withdrawn, as few as it needs. They get another start behind all
other promises, with the slip ``OwnerNeeds``.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter

from jobtree.api.schema.quantities import MILLI
from jobtree.core.accounts.envelope_accounts import FOREVER, EnvelopeState
from jobtree.core.funding.future_recall import family_reservations
from jobtree.core.funding.reserved_budget import unreserved_charge
from jobtree.core.model.promise import Precedence, Promise
from jobtree.core.model.reasons import Cause, Reason
from jobtree.core.operations.promise_changes import (
    find_date,
    make_promise,
    move_behind_others,
    ordered_behind_all,
    search_from,
    search_start,
)
from jobtree.core.operations.reclaim import end_if_in_the_way, own_envelopes
from jobtree.core.operations.stage_gang_promise import find_common_instant, members_by_precedence
from jobtree.core.operations.trial import Trial
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.world import World

Gang = Sequence[tuple[Promise, RunState]]  # the Runs that one Reservation starts, with their promises


def start_before_family(trial: Trial, run: RunState, attempt: Callable[[], bool]) -> bool:
    """Starts the Run on its own budget and on GPUs that are free, as if the family were promised neither."""
    if not may_start_before_family(trial.world, run):
        return False
    gangs = gangs_in_the_way(trial.world, run)
    return take_back(trial, gangs, lambda: attempt() and is_paid_by_owner(run))


def may_start_before_family(world: World, run: RunState) -> bool:
    """Whether the owner's budget and the free GPUs might suffice if the family were promised neither."""
    shape = run.shape
    if shape is None or world.fleet.flavor(run.flavor).free < shape.min or not world.considers_recalls(run):
        return False
    if not gangs_in_the_way(world, run):
        return False
    charges = (
        charge_before_family(world, run, envelope) for envelope in own_envelopes(world, run, world.now)
    )
    return sum(charges) >= shape.min * MILLI


def charge_before_family(world: World, run: RunState, envelope: EnvelopeState) -> int:
    """Returns the most that an own envelope leaves to a start now if it were promised to no relative."""
    free, now = envelope.account.free_charge(), world.now
    if free < MILLI:
        return 0
    end = run.certain_end(now)
    claims = family_reservations(world, envelope, None)
    family = [(claim.end, claim.charge) for claim in claims if claim.at < end]
    return max(0, min(free, unreserved_charge(world, envelope, now, end, run.key, None, family)))


def promise_before_family(trial: Trial, run: RunState, pod_size: int) -> bool:
    """Promises the Run an earlier start on its own budget than beside the promises to the family.

    Of two starts at the same instant, the one that its own budget pays for is better: it is firm.
    """
    world, gangs = trial.world, gangs_on_budget_of(trial.world, run)
    if not gangs:
        return False
    not_before = 0 if run.promise is None else search_from(world, run.promise)
    own = frozenset(envelope.key for envelope in world.budgets.by_owner[run.owner])
    beside = search_start(world, run, pod_size, None, not_before)
    checkpoint = trial.checkpoint()
    withdraw(trial, gangs)
    best = search_start(world, run, pod_size, None, not_before, payers=own)
    trial.rollback(checkpoint)
    if best is None:
        return False
    if beside is not None:
        best_beside = best.at if own.issuperset(key for key, _ in beside.funding) else best.at - 1
        if beside.at <= best_beside:
            return False

    def attempt() -> bool:
        if run.promise is None:
            make_promise(trial, run, pod_size, own)
        else:
            find_date(trial, run, pod_size, own)
        promise = run.promise
        return promise is not None and promise.at is not None and promise.at <= best.at

    return take_back(trial, gangs, attempt)


def take_back(trial: Trial, gangs: Sequence[Gang], attempt: Callable[[], bool]) -> bool:
    """Withdraws the first of these promises, as few as the attempt needs, and moves them."""
    checkpoint = trial.checkpoint()

    def succeeds_without(count: int) -> bool:
        withdraw(trial, gangs[:count])
        succeeds = attempt()
        trial.rollback(checkpoint)
        return succeeds

    fewest, most = 1, len(gangs)
    if not gangs or not succeeds_without(most):
        return False
    while fewest < most:
        middle = (fewest + most) // 2
        fewest, most = (fewest, middle) if succeeds_without(middle) else (middle + 1, most)
    withdraw(trial, gangs[:most])
    attempt()
    for gang in reversed(gangs[:most]):
        move_behind_all(trial, gang)
    return True


def gangs_in_the_way(world: World, run: RunState) -> list[Gang]:
    """Returns those promises to the family that begin before the Run has ended if it starts now."""
    return gangs_on_budget_of(world, run, run.certain_end(world.now))


def gangs_on_budget_of(world: World, run: RunState, before: int = FOREVER) -> list[Gang]:
    """Returns the promises to the family that count on own envelopes of the Run's owner, youngest first.

    Those that begin at ``before`` or later are left out.
    """
    by_rank: dict[Precedence, Gang] = {}
    for envelope in world.budgets.by_owner.get(run.owner, ()):
        if envelope.spec.flavor == run.flavor:
            for reservation in family_reservations(world, envelope, None):
                if reservation.at >= before:
                    continue
                holder = world.runs[reservation.promise.run_key]
                gang = members_by_precedence(world.run_graph.members(holder))
                by_rank[gang[0][0].precedence] = gang
    return [gang for _, gang in sorted(by_rank.items(), key=itemgetter(0), reverse=True)]


def withdraw(trial: Trial, gangs: Iterable[Gang]) -> None:
    for gang in gangs:
        for promise, run in gang:
            cause = Cause(Reason.OWNER_NEEDS, promise.name)
            trial.begin_action("Withdraw", run, trial.world.now, cause)


def move_behind_all(trial: Trial, gang: Gang) -> None:
    """Gives promises that were withdrawn another start, behind all others, or none for now (R5)."""
    promises, runs = [promise for promise, _ in gang], [run for _, run in gang]
    if runs[0].gang:
        promises = ordered_behind_all(trial.world, runs, promises)
        find_common_instant(trial, runs, promises, Reason.OWNER_NEEDS)
        return
    move_behind_others(trial, runs[0], promises[0])
    end_if_in_the_way(trial, runs[0])


def is_paid_by_owner(run: RunState) -> bool:
    """Whether its owner's envelopes pay for all of the Run."""
    return all(lease.payer_owner == run.owner for lease in run.leases.values())
