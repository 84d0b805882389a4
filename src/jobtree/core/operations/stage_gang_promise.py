"""Promises to stages that start together (J3): one instant, one name and one commitment for all.

Each member is promised its part like any Run, one behind the other, until one instant suits all of them.
"""

from collections.abc import Sequence

import msgspec

from jobtree.core.model.promise import CreationOrder, Promise
from jobtree.core.model.reasons import Cause, Reason
from jobtree.core.operations.promise_changes import (
    empty_promise,
    is_improvement,
    ordered_behind_all,
    replace_promise,
    search_from,
    search_start,
    search_start_again,
    with_option,
)
from jobtree.core.operations.trial import Trial
from jobtree.core.runs.run_state import RunState

MAX_TURNS = 64  # members asked in turn for one instant that suits all


def search_again_for_gang(trial: Trial, run: RunState, reason: Reason, not_before: int = 0) -> None:
    """Promise another start, to a Run or to all of its gang."""
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


def make_gang_promise(trial: Trial, party: Sequence[RunState]) -> None:
    """One promise for all: the first instant that suits every member, behind those promised already.

    The widest is asked first, since it is the hardest to place; the others come behind it in rank too.
    """
    gpus = sorted((one for one in party if one.shape is not None), key=width_order)
    tree = trial.world.run_graph.tree_of(gpus[0])
    assert tree is not None
    number = 1 + max(one.reservations_made for one in trial.world.run_graph.children(tree))
    blank = [empty_promise(trial.world, one, member_pod_size(trial, one), tree, number) for one in gpus]
    find_common_instant(trial, gpus, ordered_behind_all(trial.world, gpus, blank), None)


def width_order(run: RunState) -> tuple[int, CreationOrder]:
    return (-run.shape.min if run.shape else 0, run.creation_order)


def find_common_instant(
    trial: Trial,
    party: Sequence[RunState],
    before: Sequence[Promise],
    reason: Reason | None,
    not_before: int = 0,
) -> None:
    """Ask the members in turn until one instant suits all; where none does, all wait without a date."""
    world = trial.world
    for _ in range(MAX_TURNS):
        mark = trial.checkpoint()
        made = [
            make_member_promise(trial, one, promise, reason, not_before)
            for one, promise in zip(party, before, strict=True)
        ]
        instants = {promise.at for promise in made}
        if len(instants) == 1:
            return
        trial.rollback(mark)
        if None in instants:
            break
        not_before = max(at for at in instants if at is not None)
    undated = [with_option(world, one, promise, None) for one, promise in zip(party, before, strict=True)]
    if not payable_when_empty(trial, undated):
        undated = [msgspec.structs.replace(promise, funding=()) for promise in undated]
    for one, promise, after in zip(party, before, undated, strict=True):
        record_promise(trial, one, promise, after, reason)


def payable_when_empty(trial: Trial, promises: Sequence[Promise]) -> bool:
    """Whether the payers that each member counts on could pay for all of them at once (C12)."""
    wanted: dict[tuple[str, str], int] = {}
    for promise in promises:
        for key, gpus in promise.funding:
            wanted[key] = wanted.get(key, 0) + gpus
    envelopes = trial.world.budgets.envelopes
    return all(promise.funding for promise in promises) and all(
        gpus <= envelopes[key].spec.concurrency for key, gpus in wanted.items()
    )


def make_member_promise(
    trial: Trial, run: RunState, before: Promise, reason: Reason | None, not_before: int
) -> Promise:
    precedence = None if reason is None or before.at is None else before.precedence
    found = search_start(trial.world, run, before.pod_size, precedence, not_before)
    return record_promise(trial, run, before, with_option(trial.world, run, before, found), reason)


def record_promise(
    trial: Trial, run: RunState, before: Promise, after: Promise, reason: Reason | None
) -> Promise:
    """Make the promise or, with a reason, move it."""
    if reason is not None:
        return replace_promise(trial, run, before, after, reason)
    trial.begin_action("Reserve", run, trial.world.now, Cause(Reason.RESERVED, after.name), promise=after)
    return after


def find_gang_date(trial: Trial, party: Sequence[RunState]) -> None:
    """Something new is known: perhaps there is an instant that suits all who wait without one (R9)."""
    found = sorted(
        ((one.promise, one) for one in party if one.promise is not None), key=lambda pair: pair[0].precedence
    )
    before = [
        msgspec.structs.replace(promise, pod_size=member_pod_size(trial, one)) for promise, one in found
    ]
    party = [one for _, one in found]
    not_before = max(search_from(trial.world, promise) for promise in before)
    mark = trial.checkpoint()
    find_common_instant(
        trial, party, ordered_behind_all(trial.world, party, before), Reason.RESERVED, not_before
    )
    if any(one.promise is not None and one.promise.at is None for one in party):
        trial.rollback(mark)
        find_common_instant(trial, party, before, Reason.RESERVED, not_before)
    if not any(one.promise and is_improvement(promise, one.promise) for promise, one in found):
        trial.rollback(mark)


def search_gang_start_again(trial: Trial, run: RunState, reason: Reason, not_before: int = 0) -> None:
    """Look again for the whole gang, in the order in which its members rank."""
    found = [(one.promise, one) for one in trial.world.run_graph.members(run) if one.promise is not None]
    found.sort(key=lambda pair: pair[0].precedence)
    before, party = [promise for promise, _ in found], [one for _, one in found]
    for promise, one in found:
        trial.begin_action("Withdraw", one, trial.world.now, Cause(reason, promise.name))
    find_common_instant(trial, party, before, reason, not_before)
