"""Makes and moves the one promise of stages that start together (J3): one instant, name and commitment.

Each member gets its part like any Run, one behind the other, until one instant suits all members.
"""

from collections.abc import Iterable, Sequence

import msgspec

from jobtree.core.model.promise import CreationOrder, Promise
from jobtree.core.model.reasons import Cause, Reason
from jobtree.core.operations.promise_changes import (
    empty_promise,
    is_improvement,
    ordered_behind_all,
    payable_ever,
    replace_promise,
    search_from,
    search_start,
    search_start_again,
    with_option,
    without_date,
)
from jobtree.core.operations.trial import Trial
from jobtree.core.runs.run_state import RunState

MAX_ROUNDS = 64  # rounds of searches for one instant that suits all members


def search_again_for_gang(trial: Trial, run: RunState, reason: Reason, not_before: int = 0) -> None:
    """Searches another start for a Run, or for all members of its gang."""
    if run.gang:
        search_gang_start_again(trial, run, reason, not_before)
    else:
        search_start_again(trial, run, reason, not_before)


def member_pod_size(trial: Trial, run: RunState) -> int:
    shape = run.shape
    if shape is None:
        return 0
    flavor = trial.world.fleet.flavors.get(shape.flavor)
    return shape.pod_size(flavor.biggest_node if flavor else 1)


def make_gang_promise(trial: Trial, members: Sequence[RunState]) -> None:
    """Makes one promise for all members, behind all that exist: the first instant that suits each."""
    gpu_members = by_width(members)
    find_common_instant(trial, gpu_members, empty_gang_promises(trial, gpu_members), None)


def promise_gang_place(trial: Trial, leader: RunState, members: Sequence[RunState]) -> bool:
    """Gives the gang a Reservation without a date if too many funded Runs wait before its leader (R13)."""
    world, gpu_members = trial.world, by_width(members)
    funded = (payable_ever(world, member, member_pod_size(trial, member)) for member in gpu_members)
    if not world.is_beyond_depth(leader) or not all(funded):
        return False
    for member, promise in zip(gpu_members, empty_gang_promises(trial, gpu_members), strict=True):
        record_promise(trial, member, promise, without_date(member, promise), None)
    return True


def by_width(members: Iterable[RunState]) -> list[RunState]:
    """Returns the members with GPUs, the widest first: it is the hardest to place, and is promised first."""
    return sorted((member for member in members if member.shape is not None), key=width_order)


def empty_gang_promises(trial: Trial, gpu_members: Sequence[RunState]) -> list[Promise]:
    """Returns promises without a date for the members of a gang, behind all promises that exist."""
    tree = trial.world.run_graph.tree_of(gpu_members[0])
    assert tree is not None
    number = 1 + max(member.reservations_made for member in trial.world.run_graph.children(tree))
    promises = [
        empty_promise(trial.world, member, member_pod_size(trial, member), tree, number)
        for member in gpu_members
    ]
    return ordered_behind_all(trial.world, gpu_members, promises)


def width_order(run: RunState) -> tuple[int, CreationOrder]:
    return (-run.shape.min if run.shape else 0, run.creation_order)


def find_common_instant(
    trial: Trial,
    members: Sequence[RunState],
    before: Sequence[Promise],
    reason: Reason | None,
    not_before: int = 0,
) -> None:
    """Searches a start of each member in turn until one instant suits all; else all wait without a date."""
    world = trial.world
    for _ in range(MAX_ROUNDS):
        checkpoint = trial.checkpoint()
        promises = [
            make_member_promise(trial, member, promise, reason, not_before)
            for member, promise in zip(members, before, strict=True)
        ]
        instants = {promise.at for promise in promises}
        if len(instants) == 1:
            return
        trial.rollback(checkpoint)
        if None in instants:
            break
        not_before = max(at for at in instants if at is not None)
    undated = [
        with_option(world, member, promise, None) for member, promise in zip(members, before, strict=True)
    ]
    if not payable_when_empty(trial, undated):
        undated = [msgspec.structs.replace(promise, funding=()) for promise in undated]
    for member, promise, after in zip(members, before, undated, strict=True):
        record_promise(trial, member, promise, after, reason)


def payable_when_empty(trial: Trial, promises: Sequence[Promise]) -> bool:
    """Whether the payers of the members could pay for all of them at once with all their budget (C12)."""
    gpus_by_payer: dict[tuple[str, str], int] = {}
    for promise in promises:
        for key, gpus in promise.funding:
            gpus_by_payer[key] = gpus_by_payer.get(key, 0) + gpus
    envelopes = trial.world.budgets.envelopes
    return all(promise.funding for promise in promises) and all(
        gpus <= envelopes[key].spec.concurrency for key, gpus in gpus_by_payer.items()
    )


def make_member_promise(
    trial: Trial, run: RunState, before: Promise, reason: Reason | None, not_before: int
) -> Promise:
    precedence = None if reason is None or before.at is None else before.precedence
    option = search_start(trial.world, run, before.pod_size, precedence, not_before)
    return record_promise(trial, run, before, with_option(trial.world, run, before, option), reason)


def record_promise(
    trial: Trial, run: RunState, before: Promise, after: Promise, reason: Reason | None
) -> Promise:
    """Makes the promise or, with a reason, moves it."""
    if reason is not None:
        return replace_promise(trial, run, before, after, reason)
    trial.begin_action("Reserve", run, trial.world.now, Cause(Reason.RESERVED, after.name), promise=after)
    return after


def members_by_precedence(members: Iterable[RunState]) -> list[tuple[Promise, RunState]]:
    """Members that have a promise, each with it, in the order in which their promises hold."""
    promised = ((member.promise, member) for member in members if member.promise is not None)
    return sorted(promised, key=lambda pair: pair[0].precedence)


def find_gang_date(trial: Trial, members: Sequence[RunState]) -> None:
    """Searches an instant that suits all members of a gang that waits without a date (R9)."""
    promised = members_by_precedence(members)
    before = [
        msgspec.structs.replace(promise, pod_size=member_pod_size(trial, member))
        for promise, member in promised
    ]
    members = [member for _, member in promised]
    not_before = max(search_from(trial.world, promise) for promise in before)
    checkpoint = trial.checkpoint()
    find_common_instant(
        trial, members, ordered_behind_all(trial.world, members, before), Reason.RESERVED, not_before
    )
    if any(member.promise is not None and member.promise.at is None for member in members):
        trial.rollback(checkpoint)
        find_common_instant(trial, members, before, Reason.RESERVED, not_before)
    if not any(member.promise and is_improvement(promise, member.promise) for promise, member in promised):
        trial.rollback(checkpoint)


def search_gang_start_again(trial: Trial, run: RunState, reason: Reason, not_before: int = 0) -> None:
    """Searches another start for the whole gang, its members in the order of their precedence."""
    promised = members_by_precedence(trial.world.run_graph.members(run))
    before, members = [promise for promise, _ in promised], [member for _, member in promised]
    if all(promise.beyond_depth and trial.world.is_beyond_depth(member) for promise, member in promised):
        for promise, member in promised:
            replace_promise(trial, member, promise, without_date(member, promise), reason)
        return
    for promise, member in promised:
        trial.begin_action("Withdraw", member, trial.world.now, Cause(reason, promise.name))
    if reason is Reason.EDITED:
        before = ordered_behind_all(trial.world, members, before)
    find_common_instant(trial, members, before, reason, not_before)
