"""Moves a promise earlier where only provisional work is in its way (R5, R6).

Runs end before they must, and provisional Runs use what they leave. A promise that was made for a late end
would wait for its date, while small work comes and goes on the nodes that a gang needs as a whole. So in a
sweep (R14), in each domain with a node's worth of free GPUs, the promises on this domain are checked in
order. If a Run could start at once without the provisional work, it is promised the instant at which all of
that has had its notice. Nothing else ends, no more GPUs are reclaimed than were free, and all other promises
are kept.
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
from jobtree.core.operations.promise_changes import (
    broken_reason,
    payers_can_pay,
    replace_promise,
    with_option,
)
from jobtree.core.operations.trial import Trial
from jobtree.core.planning.activation import resolve_all
from jobtree.core.runs.notice import provisional_notice_ms
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.domain import Domain
from jobtree.core.world.world import World

MAX_PROMISES = 16  # promises checked in each domain, oldest first: each costs as much as a start


def pull_promises_forward(trial: Trial) -> None:
    """Promises an earlier start to Runs that wait only for provisional work to end."""
    world = trial.world
    if not world.sweep_due or not world.provisional_runs:
        return
    provisional = (world.runs[key] for key in world.provisional_runs)
    pull_to = world.now + max(provisional_notice_ms(world.policy, run.checkpoint_ms) for run in provisional)
    for domain in promised_domains(world):
        for promise in islice(pull_candidates(world, domain, pull_to), MAX_PROMISES):
            if pull_promise_to(trial, world.runs[promise.run_key], promise, pull_to):
                break


def promised_domains(world: World) -> list[Domain]:
    """The domains on which promises count, by flavor and name."""
    flavors = world.fleet.flavors.values()
    promised = (domain for flavor in flavors for domain in flavor.domains.values() if domain.promises)
    return sorted(promised, key=attrgetter("flavor", "name"))


def pull_candidates(world: World, domain: Domain, pull_to: int) -> Iterator[Promise]:
    """Promises due after ``pull_to``, oldest first, with half of their GPUs free in this domain.

    There is none while another promise is due there by then, since it might need the same nodes.
    """
    if any(other.at is not None and other.at <= pull_to for other in domain.promises.values()):
        return
    for promise in sorted(domain.promises.values(), key=attrgetter("precedence")):
        run, flavor = world.runs[promise.run_key], world.fleet.flavor(promise.flavor)
        free = domain.free if domain.free >= flavor.biggest_node else 0
        later = promise.at is not None and promise.at > pull_to
        if later and 2 * free >= promise.width and run.waiting and not run.gang:
            yield promise


def pull_promise_to(trial: Trial, run: RunState, promise: Promise, at: int) -> bool:
    """Moves a promise to that instant, if it can be kept then and breaks no other promise."""
    world, checkpoint = trial.world, trial.checkpoint()
    trial.begin_action("Withdraw", run, world.now, Cause(Reason.SUPERSEDED, promise.name))
    option = StartSearch(world, run, promise.pod_size, promise.precedence).option_at(
        NO_DISRUPTION, promise.width, at
    )
    if option is not None and pay_throughout(world, run.flavor, option.domain_gpus, option.funding):
        after = replace_promise(
            trial, run, promise, with_option(world, run, promise, option), Reason.RESERVED
        )
        beside = runs_with_promises_beside(world, run, option) | {run.key}
        if could_start(trial, run, after) and all(is_kept_as_paid(world, world.runs[key]) for key in beside):
            return True
    trial.rollback(checkpoint)
    return False


def is_kept_as_paid(world: World, run: RunState) -> bool:
    """Whether the promise of a Run can be kept, and each of its payers can pay its share.

    Other payers might pay instead, but perhaps for one such promise only, and those of the family may recall.
    """
    promise = run.promise
    if broken_reason(world, run) is not None:
        return False
    return promise is None or promise.at is None or payers_can_pay(world, run, promise)


def could_start(trial: Trial, run: RunState, promise: Promise) -> bool:
    """Whether the Run could start at this instant without the provisional work, pod by pod and funded."""
    world, checkpoint = trial.world, trial.checkpoint()
    due = msgspec.structs.replace(promise, at=world.now)
    trial.begin_action("Move", run, world.now, Cause(Reason.RESERVED, promise.name), promise=due)
    starts = resolve_all(trial, run) is None and keeps_other_promises(world, run)
    trial.rollback(checkpoint)
    return starts


def runs_with_promises_beside(world: World, run: RunState, option: StartOption) -> set[RunKey]:
    """Runs with promises on the domains of this start, or on its payers."""
    domains = world.fleet.flavor(run.flavor).domains
    runs = {run_key for name, _ in option.domain_gpus for run_key in domains[name].promises}
    for key, _ in option.funding:
        runs.update(
            run_key for sharing in world.budgets.envelopes[key].sharing_a_cap for run_key in sharing.promises
        )
    return runs
