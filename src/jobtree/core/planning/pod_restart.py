"""Restarts: a pod failed, or somebody evicted or deleted it (F5). So may standby pods be."""

from jobtree.core.model.gpu_lease import lease_number, pods_of
from jobtree.core.model.reasons import Cause, Reason
from jobtree.core.operations.trial import Trial
from jobtree.core.planning.recovery import Losses, node_takes_pods, recover
from jobtree.core.runs.rank_assignment import rank_of, ranks_in_order
from jobtree.core.runs.run_state import RankLoss, RunState
from jobtree.core.world.world import World


def restart(trial: Trial, run: RunState) -> None:
    """Begin the next attempt: a failure counts, an eviction does not. Too many failures end the Run."""
    first = min(run.rank_losses, key=lambda mishap: (not mishap.failed, mishap))
    if first.failed:
        fail_or_restart(trial, run, first)
        return
    homeless = ranks_without_node(trial.world, run) | evicted_spares_without_node(trial.world, run)
    cause = Cause(Reason.EVICTED, failure_text(run, first))
    if homeless:
        recover(trial, run, homeless, cause, "CapacityLost")
    else:
        trial.begin_action("Restart", run, trial.world.now, cause)


def drop_evicted_spares(trial: Trial, run: RunState) -> None:
    """Spares whose pods were evicted and cannot come back are given up; others are looked for."""
    lost = evicted_spares_without_node(trial.world, run)
    if lost:
        nodes = ", ".join(sorted({node for pods in lost.values() for node, _ in pods}))
        recover(trial, run, lost, Cause(Reason.SPARE_EVICTED, nodes), "CapacityLost")


def evicted_spares_without_node(world: World, run: RunState) -> Losses:
    """Standby pods that were evicted from nodes that take no pods now."""
    lost: Losses = {}
    for lease in sorted(run.leases.values(), key=lease_number):
        pods = [pod for pod in pods_of(lease.slots, run.pod_size) if pod[0] in run.evicted_spare_nodes]
        away = [pod for pod in pods if lease.role == "Spare" and not node_takes_pods(world, pod[0])]
        if away:
            lost[lease.name] = away
    return lost


def fail_or_restart(trial: Trial, run: RunState, first: RankLoss) -> None:
    if run.restarts < run.run_object.spec.runtime.max_restarts:
        trial.begin_action(
            "Restart",
            run,
            first.at,
            Cause(Reason.RESTARTED, failure_text(run, first)),
            counts_as_restart=True,
        )
        return
    trial.begin_action("Fail", run, first.at, Cause(Reason.RESTARTS_EXHAUSTED, failure_text(run, first)))
    for name in sorted(run.leases):
        trial.close(name, max(first.at, run.leases[name].start), "Failed")


def ranks_without_node(world: World, run: RunState) -> Losses:
    """Evicted pods that cannot start again where they were: their node takes no pods now."""
    lost: Losses = {}
    places = ranks_in_order(run)
    for seat in sorted({mishap.seat for mishap in run.rank_losses}):
        if seat in places:
            lease, pod = places[seat]
            if not node_takes_pods(world, pod[0]):
                lost.setdefault(lease, []).append(pod)
    return lost


def failure_text(run: RunState, mishap: RankLoss) -> str:
    """``3 (exit code 1)``: the rank that failed first, and how."""
    rank = str(rank_of(run, mishap.seat))
    return f"{rank} ({mishap.message})" if mishap.message else rank
