"""Restarts: a pod failed, or somebody evicted or deleted it (F5). So may standby pods be."""

from jobtree.core.model.gpu_lease import number_of, pods_of
from jobtree.core.model.reasons import Reason, Why
from jobtree.core.operations.trial import Trial
from jobtree.core.planning.recovery import Losses, recover, takes_pods
from jobtree.core.runs.rank_assignment import rank_of, seated
from jobtree.core.runs.run_state import Mishap, RunState
from jobtree.core.world.world import World


def restart(trial: Trial, state: RunState) -> None:
    """Begin the next attempt: a failure counts, an eviction does not. Too many failures end the Run."""
    first = min(state.mishaps, key=lambda mishap: (not mishap.failed, mishap))
    if first.failed:
        fail_or_restart(trial, state, first)
        return
    homeless = without_home(trial.world, state) | standby_lost(trial.world, state)
    cause = Why(Reason.EVICTED, said(state, first))
    if homeless:
        recover(trial, state, homeless, cause, "CapacityLost")
    else:
        trial.act("Restart", state, trial.world.now, cause)


def part_with_evicted(trial: Trial, state: RunState) -> None:
    """Spares whose pods were evicted and cannot come back are given up; others are looked for."""
    lost = standby_lost(trial.world, state)
    if lost:
        nodes = ", ".join(sorted({node for pods in lost.values() for node, _ in pods}))
        recover(trial, state, lost, Why(Reason.SPARE_EVICTED, nodes), "CapacityLost")


def standby_lost(world: World, state: RunState) -> Losses:
    """Standby pods that were evicted from nodes that take no pods now."""
    lost: Losses = {}
    for lease in sorted(state.leases.values(), key=number_of):
        pods = [pod for pod in pods_of(lease.slots, state.pod_size) if pod[0] in state.evicted]
        away = [pod for pod in pods if lease.role == "Spare" and not takes_pods(world, pod[0])]
        if away:
            lost[lease.name] = away
    return lost


def fail_or_restart(trial: Trial, state: RunState, first: Mishap) -> None:
    if state.restarts < state.run.spec.runtime.max_restarts:
        trial.act("Restart", state, first.at, Why(Reason.RESTARTED, said(state, first)), counts=True)
        return
    trial.act("Fail", state, first.at, Why(Reason.RESTARTS_EXHAUSTED, said(state, first)))
    for name in sorted(state.leases):
        trial.close(name, max(first.at, state.leases[name].start), "Failed")


def without_home(world: World, state: RunState) -> Losses:
    """Evicted pods that cannot start again where they were: their node takes no pods now."""
    lost: Losses = {}
    places = seated(state)
    for seat in sorted({mishap.seat for mishap in state.mishaps}):
        if seat in places:
            lease, pod = places[seat]
            if not takes_pods(world, pod[0]):
                lost.setdefault(lease, []).append(pod)
    return lost


def said(state: RunState, mishap: Mishap) -> str:
    """``3 (exit code 1)``: the rank that failed first, and how."""
    rank = str(rank_of(state, mishap.seat))
    return f"{rank} ({mishap.message})" if mishap.message else rank
