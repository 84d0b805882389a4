"""Managers that are killed, paused and replaced."""

import os
import signal

from tests.live.cluster.server_process import wait_until
from tests.live.faults.disturbed_workloads import play_with_kill
from tests.live.faults.fault_cluster import AUDIT_OK, FaultCluster
from tests.live.faults.outcome import Outcome

WRITES_BETWEEN_KILLS = 29  # make soak-live kills after every write
LEAST_WRITES = 60  # of a workload


def test_outcome_is_the_same_when_the_manager_is_killed_after_a_write(
    fault_cluster: FaultCluster, expected_outcome: Outcome
) -> None:
    """Plays the workload several times, each time with a kill after another write."""
    write = 1
    while play_with_kill(fault_cluster, expected_outcome, write):
        write += WRITES_BETWEEN_KILLS
    assert write > LEAST_WRITES
    assert fault_cluster.audit() == AUDIT_OK


def test_standby_leads_when_the_leading_manager_is_killed(fault_cluster: FaultCluster) -> None:
    tenant = fault_cluster.create_tenant()
    tenant.add_nodes("nv-a", 1)
    tenant.create_budget("a", 8)
    fault_cluster.delete_election_lease()
    with fault_cluster.start_manager() as leader:
        wait_until(lambda: leader.has_logged("this process leads"), "the first manager leads")
        with fault_cluster.start_manager() as standby:
            tenant.create_run("before", "a", 8)
            tenant.await_running_pods("before", 1)
            assert not standby.has_logged("this process leads")
            leader.kill()
            tenant.finish("before")
            wait_until(lambda: standby.has_logged("this process leads"), "the standby leads")
            tenant.await_phase("Completed", "before")


def test_paused_manager_ends_without_a_write_when_it_resumes(fault_cluster: FaultCluster) -> None:
    tenant = fault_cluster.create_tenant()
    tenant.add_nodes("nv-a", 2)
    tenant.create_budget("a", 16)
    fault_cluster.delete_election_lease()
    with fault_cluster.start_manager() as paused:
        wait_until(lambda: paused.has_logged("the cluster is read"), "the first manager leads")
        with fault_cluster.start_manager() as standby:
            os.kill(paused.process.pid, signal.SIGSTOP)
            tenant.create_run("r", "a", 16)
            tenant.await_running_pods("r", 2)
            assert standby.has_logged("this process leads")
            tenant.create_run("waits", "a", 8)
            tenant.await_phase("Reserved", "waits")
            log_before = paused.log.read_text()
            os.kill(paused.process.pid, signal.SIGCONT)
            wait_until(lambda: paused.has_ended, "the old leader ends")
            assert paused.process.returncode == 1
            assert [line["message"] for line in paused.log_lines()[len(log_before.splitlines()) :]] == [
                "this process does not lead any more"
            ]
            tenant.finish("r")
            tenant.await_phase("Completed", "r")
