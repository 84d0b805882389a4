"""A manager whose clock is ahead and corrected, on a cluster of its own: its leases lie in the future."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.cluster.control_plane import ControlPlane
from tests.live.faults.fault_cluster import FaultCluster
from tests.live.manager import shifted_manager
from tests.live.manager.manager_process import Manager
from tests.live.manager.tenant import Tenant

HOUR_SECONDS = 3600


@pytest.fixture(scope="module")
def lone_cluster(programs: dict[str, Path]) -> Iterator[FaultCluster]:
    assert "kwok" in programs
    with ControlPlane() as plane:
        yield FaultCluster(plane)


def test_runs_start_and_leases_do_not_overlap_when_a_clock_that_was_ahead_is_corrected(
    lone_cluster: FaultCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shift = tmp_path / "shift"
    shift.write_text(str(HOUR_SECONDS))
    monkeypatch.setenv(shifted_manager.SHIFT_FILE, str(shift))
    tenant = lone_cluster.create_tenant()
    tenant.add_nodes("nv-a", 1)
    tenant.create_budget("a", 8)
    with Manager(lone_cluster.plane, lone_cluster.kubeconfig, module=shifted_manager.__name__) as manager:
        start_and_finish(tenant, "ahead")
        assert lone_cluster.audit().startswith("Clock: leases begin or end up to "), (
            "leases lie in the future"
        )
        shift.write_text("0")
        start_and_finish(tenant, "corrected")
        assert manager.has_logged("planning time runs at half speed")
    lone_cluster.delete_election_lease()
    with lone_cluster.start_manager() as successor:
        start_and_finish(tenant, "after-failover")
        assert not successor.has_ended
        assert successor.has_logged("planning time runs at half speed")
    findings = lone_cluster.audit().splitlines()
    assert [finding.partition(":")[0] for finding in findings] == ["Clock"], findings
    starts = [tenant.leases(run)[0]["spec"]["start"] for run in ("ahead", "corrected", "after-failover")]
    assert starts == sorted(starts)
    path = f"/apis/rq.davidlangworthy.io/v1/budgets/{tenant.name}-a"
    used = lone_cluster.plane.rest.get(path).body["status"]["envelopes"][0]["usedGPUHours"]
    assert 0 <= float(used) < 1


def start_and_finish(tenant: Tenant, run: str) -> None:
    tenant.create_run(run, "a", 8)
    tenant.await_running_pods(run, 1, within=30)
    tenant.finish(run)
    tenant.await_phase("Completed", run, within=30)
