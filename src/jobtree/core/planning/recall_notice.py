"""Promises an owner's Run a start on GPUs of Runs that a recall stops, once they have had notice (C11, R3).

A recall at once demotes Runs of the family and stops none of them. Where one has to stop to make room, the
owner's Run is promised the instant at which all that have to stop have had their notice. They are told then,
with probability 1, and all that has to go for the start goes in one decision.
"""

from collections.abc import Callable, Sequence

from jobtree.api.schema.quantities import SECOND
from jobtree.core.availability.start_search import DomainGpus, StartOption
from jobtree.core.funding.future_funding import FundingSplit
from jobtree.core.model.gpu_lease import EnvelopeKey
from jobtree.core.model.promise import LOTTERY, RECALL, Promise
from jobtree.core.model.reasons import Cause, Reason
from jobtree.core.operations.promise_changes import broken_reason, with_option
from jobtree.core.operations.reclaim import runs_with_notice
from jobtree.core.operations.trial import Trial
from jobtree.core.runs.notice import draw_notice_ms
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.world import World


def recall_options(trial: Trial, members: Sequence[RunState], start: Callable[[], bool]) -> list[StartOption]:
    """Returns the start of each member at its least width once recalled Runs have stopped, or nothing."""
    world, checkpoint = trial.world, trial.checkpoint()
    safe = runs_with_notice(trial, members, world.now + SECOND)
    flavor = world.fleet.flavor(members[0].flavor)
    room = flavor.free + flavor.opportunistic_slots + sum(world.runs[key].width for key in safe)
    starts = {key: world.runs[key].since or 0 for key in safe}
    if not safe or room < least_width(members[0]) or not start():
        return []
    stopped = sorted(key for key in safe if world.runs[key].phase != "Running")
    slices = [slice_and_payers(world, member) for member in members]
    trial.rollback(checkpoint)
    at = max((noticed_at(world, world.runs[key]) for key in stopped), default=world.now)
    recalls = tuple((key, starts[key]) for key in stopped)
    return [
        StartOption(
            at, RECALL, least_width(member), domain_gpus, funding, window_aligned=False, recalls=recalls
        )
        for member, (domain_gpus, funding) in zip(members, slices, strict=True)
    ]


def least_width(run: RunState) -> int:
    return run.shape.min if run.shape is not None else 0


def slice_and_payers(world: World, run: RunState) -> tuple[DomainGpus, FundingSplit]:
    """Returns the GPUs of a running Run by domain and by payer, spares not counted."""
    by_domain: dict[str, int] = {}
    by_payer: dict[EnvelopeKey, int] = {}
    for lease in run.leases.values():
        if lease.role == "Active":
            by_payer[lease.payer] = by_payer.get(lease.payer, 0) + lease.gpus
            for node, mask in lease.slots:
                domain = world.fleet.domain_by_node[node].name
                by_domain[domain] = by_domain.get(domain, 0) + mask.bit_count()
    return tuple(sorted(by_domain.items())), tuple(by_payer.items())


def noticed_at(world: World, run: RunState) -> int:
    """Returns when a Run that is told now has had its notice, counted from its own start at the earliest."""
    at = max(world.now, run.since or 0) + draw_notice_ms(world.policy, run.checkpoint_ms)
    return at if run.is_reclaimable_at(at) else max(at, run.reclaimable_from or 0)


def promise_after_recall(
    trial: Trial, members: Sequence[RunState], undated: Sequence[Promise], options: Sequence[StartOption]
) -> bool:
    """Promises each member its start after a recall, unless one of these promises could not be kept."""
    world, checkpoint = trial.world, trial.checkpoint()
    for member, promise, option in zip(members, undated, options, strict=True):
        dated = with_option(world, member, promise, option)
        trial.begin_action("Reserve", member, world.now, Cause(Reason.RESERVED, dated.name), promise=dated)
    if all(broken_reason(world, member) is None for member in members):
        return True
    trial.rollback(checkpoint)
    return False


def is_preferred(world: World, options: Sequence[StartOption], beside: Promise | None) -> bool:
    """Whether a start after a recall is preferred to a promise beside all others (R1)."""
    if not options:
        return False
    at, max_notice_ms = options[0].at, world.policy.max_notice_ms
    if beside is None or beside.at is None:
        return True
    return at <= beside.at + max_notice_ms if beside.disruption == LOTTERY else at + max_notice_ms < beside.at
