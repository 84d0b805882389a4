"""Changes the payer of open leases that it can no longer pay for (C7, C8, C10), and of demoted leases.

No pod is touched. The same slots get another payer, or none: the Run then keeps them until a funded Run
needs them.
"""

from collections.abc import Collection, Sequence

import msgspec

from jobtree.api.kinds.lease import ClosureReason, OpenReason, Role
from jobtree.core.accounts.envelope_accounts import EnvelopeState
from jobtree.core.funding.cover import payable
from jobtree.core.funding.payer_candidates import payer_candidates
from jobtree.core.model.gpu_lease import EnvelopeKey, GpuLease, count_slots, join_pods, pods_of
from jobtree.core.model.outcomes import REPAY_REASONS
from jobtree.core.model.reasons import Cause, Reason
from jobtree.core.operations.promise_changes import broken_reason, exhausts_own_promise, keep_date
from jobtree.core.operations.trial import LeaseTerms, Trial, promises_affected_by
from jobtree.core.runs.run_state import PodSlots, RunState
from jobtree.core.supply.node_slots import selector_matches
from jobtree.core.world.timers import exhaustion_instants
from jobtree.core.world.world import World


def end_leases_of_envelope(trial: Trial, envelope: EnvelopeState, at: int) -> None:
    """Ends what the envelope pays for when its window closes or its hours run out, at that instant (C7)."""
    reason: ClosureReason = "WindowClosed" if at >= envelope.end else "BudgetExhausted"
    for lease in in_queue_order(trial, leases_ending(trial, envelope, at)):
        change_payer(trial, lease, at, reason, {envelope.key})


def leases_ending(trial: Trial, envelope: EnvelopeState, at: int) -> list[GpuLease]:
    """Leases that end then: all if the window closes; if hours run out, those without a known end (C5)."""
    if at >= envelope.end:
        return list(envelope.leases.values())
    spent = [borrowed for instant, borrowed in exhaustion_instants(envelope) if instant <= at]
    return [
        lease
        for lease in envelope.leases.values()
        if trial.world.posted_leases[lease.name].known_end is None
        and (False in spent or (spent and lease.class_ == "Borrowed"))
    ]


def end_leases_under_quota(trial: Trial, tree: RunState, at: int) -> None:
    """Ends the open-ended leases below a tree whose hours run out at that instant (C5, J4)."""
    world = trial.world
    all_leases = [lease for run in world.run_graph.descendants(tree) for lease in run.leases.values()]
    open_ended = [
        lease
        for lease in all_leases
        if lease.role != "Opportunistic" and world.posted_leases[lease.name].known_end is None
    ]
    for lease in in_queue_order(trial, open_ended):
        change_payer(trial, lease, at, "BudgetExhausted", ())


def apply_budget_cuts(trial: Trial) -> None:
    """Finds other payers for pods above the new limits of edited Budgets, newest leases first (C10)."""
    world = trial.world
    for key in sorted(world.budgets.edited_envelopes):
        envelope = world.budgets.envelopes[key]
        for lease in newest_first(envelope.leases.values()):
            excess = lease.gpus if not envelope.open_at(world.now) else excess_gpus(envelope, lease)
            change_payer_of_gpus(trial, lease, excess, world.now, "BudgetExhausted", {key})


def excess_gpus(envelope: EnvelopeState, lease: GpuLease) -> int:
    """Returns how many GPUs of the lease exceed a limit of its payer."""
    excess_charge = max(account.charge - account.max_charge for account in envelope.accounts(lease))
    return 0 if excess_charge <= 0 else -(-excess_charge // lease.rate) if lease.rate else lease.gpus


def change_payer_of_gpus(  # noqa: PLR0913, PLR0917  of how many GPUs of which lease, when, why, by whom not
    trial: Trial,
    lease: GpuLease,
    gpus: int,
    at: int,
    reason: ClosureReason,
    without: Collection[EnvelopeKey],
) -> None:
    """Changes the payer of the last pods of a lease that have at least so many GPUs; the others continue."""
    if gpus <= 0:
        return
    pod_size = trial.world.runs[lease.run_key].pod_size
    pods = list(pods_of(lease.slots, pod_size))
    change_payer(trial, lease, at, reason, without, pods[-min(len(pods), -(-gpus // pod_size)) :])


def newest_first(leases: Collection[GpuLease]) -> list[GpuLease]:
    return sorted(
        leases, key=lambda lease: (lease.start, lease.run_key, lease.group, lease.name), reverse=True
    )


def in_queue_order(trial: Trial, leases: Collection[GpuLease]) -> list[GpuLease]:
    """Leases by creation of their Runs: they compete for freed budget in this order (C8)."""
    runs = trial.world.runs
    return sorted(
        leases, key=lambda lease: (runs[lease.run_key].creation_order, lease.group, lease.role, lease.name)
    )


def change_payer(  # noqa: PLR0913, PLR0917  of which lease and pods, when, why, by whom not
    trial: Trial,
    lease: GpuLease,
    at: int,
    reason: ClosureReason,
    without: Collection[EnvelopeKey],
    pods: Sequence[PodSlots] | None = None,
) -> None:
    """Charges these pods of a lease (None: all) to other envelopes; else demotes them, or drops spares."""
    run = trial.world.runs[lease.run_key]
    at = max(at, lease.start)
    pods = list(pods_of(lease.slots, run.pod_size)) if pods is None else pods
    slots = join_pods(pods)
    part = msgspec.structs.replace(lease, slots=slots, gpus=count_slots(slots))
    cause = Cause(REPAY_REASONS[reason], "/".join(lease.payer), 0, part.gpus)
    checkpoint = trial.checkpoint()
    trial.begin_action("Repay", run, at, cause)
    trial.end_pods(run, lease.name, pods, at, reason)
    if repay(trial, run, part, at, without) and not exhausts_own_promise(trial.world, run):
        return
    trial.rollback(checkpoint)
    if lease.role == "Spare":
        trial.begin_action("DropSpare", run, at, cause)
        trial.end_pods(run, lease.name, pods, at, reason)
        return
    trial.begin_action("Demote", run, at, Cause(Reason.DEMOTED, "/".join(lease.payer), 0, part.gpus))
    trial.end_pods(run, lease.name, pods, at, reason)
    demote(trial, run, part, at)


def repay(  # noqa: PLR0913, PLR0917  whose slots, from when, by whom not, and why
    trial: Trial,
    run: RunState,
    lease: GpuLease,
    at: int,
    without: Collection[EnvelopeKey],
    reason: OpenReason = "Repay",
) -> bool:
    """Charges exactly these slots to the remaining candidates: all of them or none (C6)."""
    checkpoint = trial.checkpoint()
    role: Role = "Spare" if lease.role == "Spare" else "Active"
    pods = list(pods_of(lease.slots, run.pod_size))
    for candidate in payer_candidates(trial.world, run):
        if not pods:
            break
        if candidate.envelope.key in without:
            continue
        affordable = payable(trial.world, run, candidate, trial.rate(role), at) // run.pod_size
        paid = [pod for pod in pods if pays_on(trial, candidate.envelope, pod[0])][:affordable]
        if paid:
            slots = join_pods(paid)
            terms = LeaseTerms(candidate.envelope, candidate.class_, role, lease.group)
            trial.open(run, terms, slots, at, reason)
            pods = [pod for pod in pods if pod not in paid]
    if pods:
        trial.rollback(checkpoint)
    return not pods


def demote(trial: Trial, run: RunState, lease: GpuLease, at: int) -> None:
    """Opens opportunistic leases on the same slots. Their nominal payer is the first that pays there (C9)."""
    world = trial.world
    rest = dict(lease.slots)
    payers = [(candidate.envelope, False) for candidate in payer_candidates(world, run)]
    # If its envelope is gone and no other pays there, it stays the nominal payer.
    last = world.budgets.envelope(lease.payer, lease.payer_owner, lease.flavor)
    for envelope, anywhere in (*payers, (last, True)):
        slots = tuple(
            (node, mask) for node, mask in rest.items() if anywhere or pays_on(trial, envelope, node)
        )
        if slots:
            terms = LeaseTerms(envelope, "Opportunistic", "Opportunistic", lease.group)
            trial.open(run, terms, slots, at, "Demote")
            rest = {node: mask for node, mask in rest.items() if (node, mask) not in slots}


def pays_on(trial: Trial, envelope: EnvelopeState, node: str) -> bool:
    state = trial.world.fleet.nodes.get(node)
    return state is not None and selector_matches(state.node.labels, envelope.selector)


def repay_opportunistic(trial: Trial, run: RunState) -> None:
    """Charges the opportunistic leases of a Run to envelopes that can pay again (C8)."""
    at = trial.world.now
    for lease in sorted(run.leases.values(), key=lambda lease: (lease.group, lease.name)):
        if lease.role != "Opportunistic" or on_spare(trial, lease):
            continue
        checkpoint = trial.checkpoint()
        trial.begin_action("Repay", run, at, Cause(Reason.ADMITTED, run.owner, lease.gpus, lease.gpus))
        trial.close(lease.name, at, "Repaid")
        paid = repay(trial, run, lease, at, ()) and keeps_other_promises(trial.world, run)
        if not paid or exhausts_own_promise(trial.world, run):
            trial.rollback(checkpoint)
    promise = run.promise
    if promise is not None and not (run.opportunistic_gpus or run.provisional or keep_date(trial, run)):
        trial.begin_action("Supersede", run, at, Cause(Reason.SUPERSEDED, promise.name), promise=promise)


def keeps_other_promises(world: World, run: RunState) -> bool:
    """Whether promises to other Runs that this Run's nodes and payers affect can all be kept."""
    paid = [lease for lease in run.leases.values() if lease.role != "Opportunistic"]
    others = {run_key for lease in paid for run_key in promises_affected_by(world, lease)} - {run.key}
    return all(broken_reason(world, world.runs[run_key]) is None for run_key in others)


def on_spare(trial: Trial, lease: GpuLease) -> bool:
    nodes = trial.world.fleet.nodes
    return any(node in nodes and nodes[node].spare & mask for node, mask in lease.slots)
