"""Begins the next attempt after a pod failed, was evicted or deleted (F5), and replaces evicted spares."""

from jobtree.core.model.gpu_lease import lease_number, pods_of
from jobtree.core.model.reasons import Cause, Reason
from jobtree.core.operations.trial import Trial
from jobtree.core.planning.recovery import Losses, node_takes_pods, recover
from jobtree.core.runs.rank_assignment import rank_of, ranks_in_order
from jobtree.core.runs.run_state import RankLoss, RunState
from jobtree.core.world.world import World


def restart(trial: Trial, run: RunState) -> None:
    """Begins the next attempt: a failure counts as a restart, an eviction does not.

    Losses on nodes that the breaker holds wait until these return or fail (F2c).
    """
    losses = actual_losses(trial.world, run)
    if not losses:
        return
    first_loss = min(losses, key=lambda loss: (not loss.failed, loss))
    if first_loss.failed:
        fail_or_restart(trial, run, first_loss)
        return
    without_node = ranks_without_node(trial.world, run) | evicted_spares_without_node(trial.world, run)
    cause = Cause(Reason.EVICTED, failure_text(run, first_loss))
    if without_node:
        recover(trial, run, without_node, cause, "CapacityLost")
    else:
        trial.begin_action("Restart", run, trial.world.now, cause)


def actual_losses(world: World, run: RunState) -> list[RankLoss]:
    """Lost ranks, except those on nodes that the breaker holds."""
    slots = run.rank_slots
    return [
        loss
        for loss in run.rank_losses
        if loss.group_rank not in slots or not world.node_lifecycle.is_held(slots[loss.group_rank][0])
    ]


def drop_evicted_spares(trial: Trial, run: RunState) -> None:
    """Drops spares whose pods were evicted and cannot start again there; growth adds others."""
    lost = evicted_spares_without_node(trial.world, run)
    if lost:
        nodes = ", ".join(sorted({node for pods in lost.values() for node, _ in pods}))
        recover(trial, run, lost, Cause(Reason.SPARE_EVICTED, nodes), "CapacityLost")


def evicted_spares_without_node(world: World, run: RunState) -> Losses:
    """Spare pods that were evicted from nodes that take no pods now."""
    lost: Losses = {}
    for lease in sorted(run.leases.values(), key=lease_number):
        pods = [pod for pod in pods_of(lease.slots, run.pod_size) if pod[0] in run.evicted_spare_nodes]
        without_node = [pod for pod in pods if lease.role == "Spare" and is_lost_to_pods(world, run, pod[0])]
        if without_node:
            lost[lease.name] = without_node
    return lost


def is_lost_to_pods(world: World, run: RunState, node: str) -> bool:
    """Whether a node takes no pods of the Run now, and is not held by the breaker."""
    return not node_takes_pods(world, run, node) and not world.node_lifecycle.is_held(node)


def fail_or_restart(trial: Trial, run: RunState, first_loss: RankLoss) -> None:
    if run.restarts < run.run_object.spec.runtime.max_restarts:
        trial.begin_action(
            "Restart",
            run,
            first_loss.at,
            Cause(Reason.RESTARTED, failure_text(run, first_loss)),
            counts_as_restart=True,
        )
        return
    trial.begin_action(
        "Fail", run, first_loss.at, Cause(Reason.RESTARTS_EXHAUSTED, failure_text(run, first_loss))
    )
    for name in sorted(run.leases):
        trial.close(name, max(first_loss.at, run.leases[name].start), "Failed")


def ranks_without_node(world: World, run: RunState) -> Losses:
    """Evicted pods that cannot start again on their node, because it takes no pods now."""
    lost: Losses = {}
    rank_slots = ranks_in_order(run)
    for group_rank in sorted({loss.group_rank for loss in actual_losses(world, run)}):
        if group_rank in rank_slots:
            lease, pod = rank_slots[group_rank]
            if is_lost_to_pods(world, run, pod[0]):
                lost.setdefault(lease, []).append(pod)
    return lost


def failure_text(run: RunState, loss: RankLoss) -> str:
    """``3 (exit code 1)``: the rank that failed first, with its message."""
    rank = str(rank_of(run, loss.group_rank))
    return f"{rank} ({loss.message})" if loss.message else rank
