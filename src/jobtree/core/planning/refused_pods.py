"""Takes a Run away from what refuses its pods, once the grace is over (N3).

Ranks that a node refuses move like those of a failed node, and the Run avoids that node for a pause. Where
they find no place, or where the API server refuses them, a malleable Run becomes narrower, if it may; any
other is requeued. A Run that the API server refuses waits for a pause and holds nothing. None of this is a
failure of the Run. A Run without GPUs has no payer, so it only waits for its pods.
"""

from jobtree.core.model.gpu_lease import lease_number, pods_of
from jobtree.core.model.reasons import Cause, Reason
from jobtree.core.model.refusals import Refusal, describe, given_up
from jobtree.core.operations.reclaim import requeue
from jobtree.core.operations.trial import Trial
from jobtree.core.planning.recovery import Losses, try_recovery
from jobtree.core.runs.rank_assignment import ranks_in_order
from jobtree.core.runs.run_state import RunState


def leave_refusers(trial: Trial, run: RunState) -> None:
    """Moves, narrows or requeues a Run whose pods were refused for the whole grace."""
    now, grace = trial.world.now, trial.world.policy.placement_grace_ms
    due = [refusal for refusal in run.refusals if refusal.is_due(now)]
    if not due or (run.shape is None and not run.gang):
        return
    cause, lost = Cause(Reason.UNPLACEABLE, describe(due)), refused_pods(run, due)
    trial.begin_action("Avoid", run, now, cause, refusals=given_up(run.refusals, now, grace))
    if not lost and run.shape is not None:
        return  # they were moved since
    may_move = all(refusal.node for refusal in due) and not run.refused_everywhere
    if run.shape is None or not try_recovery(trial, run, lost, cause, "CapacityLost", may_move=may_move):
        wait(trial, run, cause)


def refused_pods(run: RunState, due: list[Refusal]) -> Losses:
    """The pods that these refuse, by lease."""
    lost: Losses = {}
    rank_slots = ranks_in_order(run)
    refused = {(group_rank, refusal.node) for refusal in due for group_rank in refusal.ranks}
    for group_rank, (lease, pod) in rank_slots.items():
        if (group_rank, pod[0]) in refused or (group_rank, "") in refused:
            lost.setdefault(lease, []).append(pod)
    spare_nodes = {node for refusal in due for node in refusal.spare_nodes}
    for spare in sorted(run.leases.values(), key=lease_number):
        pods = [pod for pod in pods_of(spare.slots, run.pod_size) if pod[0] in spare_nodes]
        if spare.role == "Spare" and pods:
            lost[spare.name] = pods
    return lost


def wait(trial: Trial, run: RunState, cause: Cause) -> None:
    """Requeues a Run with its gang; while the Run waits, its gang waits with it, without a promise."""
    now = trial.world.now
    if run.refused_everywhere:
        cause = Cause(Reason.UNPLACEABLE, describe(refusal for refusal in run.refusals if not refusal.node))
    for member in trial.world.run_graph.members(run):
        if run.refused_everywhere and member.promise is not None:
            trial.begin_action("Withdraw", member, now, cause, promise=member.promise)
        if run.refused_everywhere and member is not run:
            refusals = {refusal.node: refusal for refusal in (*member.refusals, *run.refusals)}
            trial.begin_action("Avoid", member, now, cause, refusals=tuple(sorted(refusals.values())))
    requeue(trial, run, now, cause, "CapacityLost")
