"""Plays the workload with a manager that is killed after a given write, or whose requests fail.

The outcome must be the same as without a disturbance.
"""

from pathlib import Path

import yaml

from tests.live.faults.fault_cluster import AUDIT_OK, FaultCluster
from tests.live.faults.fault_proxy import WATCH_FAULTS, WRITE_FAULTS, FaultProxy
from tests.live.faults.outcome import Outcome
from tests.live.faults.workload import Workload
from tests.live.manager.manager_process import Manager

SHORT_TIMEOUTS = ("--request-seconds=3", "--silence-seconds=6")


def undisturbed_outcome(cluster: FaultCluster) -> Outcome:
    """Plays the workload without a disturbance; returns its outcome."""
    workload = Workload(cluster)
    cluster.delete_election_lease()
    with cluster.start_manager() as manager:
        workload.play([manager])
        outcome = workload.await_settled()
        workload.await_outcome(outcome, [manager])
        assert cluster.audit() == AUDIT_OK
        workload.clear()
    return outcome


def play_with_kill(cluster: FaultCluster, expected: Outcome, write: int) -> bool:
    """Plays the workload with a manager that is killed after its n-th write, and then replaced.

    Returns whether there was such a write.
    """
    managers: list[Manager] = []

    def start() -> Manager:
        flags = () if managers else (f"--stop-after-writes={write}",)
        managers.append(cluster.start_manager(*flags))
        return managers[-1]

    Workload(cluster).play_to_outcome(start, expected)
    return len(managers) > 1


def play_with_faults(cluster: FaultCluster, expected: Outcome, seed: int) -> None:
    """Plays the workload behind a proxy with faults; every kind of fault must occur."""
    workload = Workload(cluster)
    with FaultProxy(cluster.plane, seed) as proxy:
        kubeconfig = proxy_kubeconfig(cluster, proxy)
        workload.play_to_outcome(
            lambda: cluster.start_manager(*SHORT_TIMEOUTS, kubeconfig=kubeconfig), expected
        )
        assert proxy.fault_counts.keys() == {*WRITE_FAULTS, *WATCH_FAULTS}, proxy.fault_counts


def proxy_kubeconfig(cluster: FaultCluster, proxy: FaultProxy) -> Path:
    """Writes the manager's kubeconfig with the address of the proxy."""
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = proxy.url
    path = cluster.plane.directory / "faulty.kubeconfig"
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config))
    return path
