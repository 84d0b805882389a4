"""Sooner: a promise moves earlier where only work on sufferance stands in its way (R5, R6).

Runs end before they must, and whoever fits into what they leave takes it at once, provisionally. A promise
that was made when those ends were far away would wait for its date all the same, while small work comes and
goes on the nodes that a gang needs whole, and leaves them half empty. So when work ends in a domain, and a
node's worth of GPUs then lies idle there in pieces, promises on that domain are asked in their order: what
could start at once if provisional work went is promised for the instant at which all of that has had its
notice. Nothing else is taken, no more is given up than lay idle, and every other promise must be kept.
"""

from collections.abc import Iterator
from itertools import islice
from operator import attrgetter

import msgspec

from jobtree.core.availability.payer_placement import pay_throughout
from jobtree.core.availability.start_search import StartOption, StartSearch
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.promise import NO_DISRUPTION, Promise
from jobtree.core.model.reasons import Cause, Reason
from jobtree.core.operations.payer_changes import keeps_other_promises
from jobtree.core.operations.promise_changes import broken_reason, replace_promise, with_option
from jobtree.core.operations.trial import Trial
from jobtree.core.planning.activation import resolve_all
from jobtree.core.runs.notice import min_provisional_ms
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.domain import Domain
from jobtree.core.world.world import World

MAX_PROMISES = 16  # promises that are asked at a time, oldest first: each costs as much as a start


def pull_promises_forward(trial: Trial) -> None:
    """Promise an earlier start to those that wait only for provisional work to go."""
    world = trial.world
    if not world.provisional_runs:
        return
    provisional = (world.runs[key] for key in world.provisional_runs)
    soon = world.now + max(min_provisional_ms(world.policy, run.checkpoint_ms) for run in provisional)
    for _, domain in sorted(trial.freed_domains().items()):
        for promise in islice(pull_candidates(world, domain, soon), MAX_PROMISES):
            if pull_promise_to(trial, world.runs[promise.run_key], promise, soon):
                break


def pull_candidates(world: World, domain: Domain, soon: int) -> Iterator[Promise]:
    """Promises there that are due later than that, oldest first, and for which half of the GPUs are free.

    One at a time: none while another is about to start there, which might want the same nodes.
    """
    if any(one.at is not None and one.at <= soon for one in domain.promises.values()):
        return
    for promise in sorted(domain.promises.values(), key=attrgetter("precedence")):
        run, flavor = world.runs[promise.run_key], world.fleet.flavor(promise.flavor)
        free = domain.free if domain.free >= flavor.biggest_node else 0
        later = promise.at is not None and promise.at > soon
        if later and 2 * free >= promise.width and run.waiting and not run.gang:
            yield promise


def pull_promise_to(trial: Trial, run: RunState, promise: Promise, at: int) -> bool:
    """Move a promise to that instant, if it can be kept then and harms nobody."""
    world, mark = trial.world, trial.checkpoint()
    trial.begin_action("Withdraw", run, world.now, Cause(Reason.SUPERSEDED, promise.name))
    found = StartSearch(world, run, promise.pod_size, promise.precedence).option_at(
        NO_DISRUPTION, promise.width, at
    )
    if found is not None and pay_throughout(world, run.flavor, found.shares, found.funding):
        after = replace_promise(trial, run, promise, with_option(world, run, promise, found), Reason.RESERVED)
        if could_start(trial, run, after) and all(
            broken_reason(world, world.runs[run_key]) is None
            for run_key in (run.key, *runs_with_promises_beside(world, run, found))
        ):
            return True
    trial.rollback(mark)
    return False


def could_start(trial: Trial, run: RunState, promise: Promise) -> bool:
    """Whether it could start this very instant if provisional work went: pod by pod, and paid for."""
    world, mark = trial.world, trial.checkpoint()
    due = msgspec.structs.replace(promise, at=world.now)
    trial.begin_action("Move", run, world.now, Cause(Reason.RESERVED, promise.name), promise=due)
    found = resolve_all(trial, run) is None and keeps_other_promises(world, run)
    trial.rollback(mark)
    return found


def runs_with_promises_beside(world: World, run: RunState, found: StartOption) -> set[RunKey]:
    """Runs that are promised something where it would start, or money of its payers."""
    domains = world.fleet.flavor(run.flavor).domains
    runs = {run_key for name, _ in found.shares for run_key in domains[name].promises}
    for key, _ in found.funding:
        runs.update(run_key for one in world.budgets.envelopes[key].sharing_a_cap for run_key in one.promises)
    return runs
