"""Most nodes are lost together, a spare is used, a clock is corrected, on a cluster that nobody shares."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.cluster.control_plane import ControlPlane
from tests.live.cluster.server_process import wait_until
from tests.live.crds.manifests import Manifest
from tests.live.faults.fault_cluster import FaultCluster
from tests.live.manager import shifted_manager
from tests.live.manager.installation import SHORT_NOTICE_POLICY, set_policy
from tests.live.manager.manager_process import Manager
from tests.live.manager.tenant import Tenant

HOUR_SECONDS = 3600


@pytest.fixture(scope="module")
def lone_cluster(programs: dict[str, Path]) -> Iterator[FaultCluster]:
    assert "kwok" in programs
    with ControlPlane() as plane:
        cluster = FaultCluster(plane)
        set_policy(plane, SHORT_NOTICE_POLICY.replace("nodeGrace: 1s", "nodeGrace: 3s"))
        yield cluster


def test_nothing_moves_when_most_nodes_are_lost_together(lone_cluster: FaultCluster) -> None:
    """A manager that starts meanwhile knows it from the nodes (F2c). A node that is lost alone fails."""
    tenant = lone_cluster.create_tenant()
    nodes, others = tenant.add_nodes("nv-a", 4), tenant.add_nodes("nv-b", 5)
    tenant.create_budget("a", 72)
    for name, gpus in (("held", 32), ("moves", 8)):
        tenant.create_run(name, "a", gpus)
    with lone_cluster.start_manager():
        tenant.await_running_pods("held", 4)
        tenant.await_running_pods("moves", 1)
        pods = {pod["metadata"]["uid"] for pod in tenant.pods("held")}
        for node in nodes[:3]:
            tenant.fleet.fail_node(node)
        wait_until(lambda: "NodesHeld" in tenant.event_reasons("held"), "the Run has an Event")
    lone_cluster.delete_election_lease()
    with lone_cluster.start_manager() as manager:
        (pod,) = tenant.running_pods("moves")
        assert pod["spec"]["nodeName"] in others
        tenant.fleet.fail_node(pod["spec"]["nodeName"])
        wait_until(lambda: "NodeFailure" in tenant.closure_reasons("moves"), "the other Run moves")
        assert manager.has_logged("too many nodes were lost together")
        assert tenant.closure_reasons("held") == ["open"]
        assert {pod["metadata"]["uid"] for pod in tenant.pods("held")} == pods
        specs = [lone_cluster.plane.rest.get(f"/api/v1/nodes/{node}").body["spec"] for node in nodes]
        assert not any(spec.get("unschedulable") for spec in specs)
        for node in nodes[:3]:
            tenant.fleet.restore_node(node)
        tenant.finish("held")
        tenant.await_phase("Completed", "held")


def test_standby_has_no_gpu_until_its_rank_is_swapped_in(lone_cluster: FaultCluster) -> None:
    """A spare costs a quarter: nobody computes on it, with opportunistic work there or without (F1)."""
    tenant = lone_cluster.create_tenant()
    tenant.add_nodes("nv-a", 3)
    tenant.create_budget("a", 24)
    lone_cluster.delete_election_lease()
    with lone_cluster.start_manager():
        tenant.create_run("spared", "a", 16, spares=1)
        tenant.await_running_pods("spared", 3)
        gpus = {pod["metadata"]["name"]: gpus_of(pod) for pod in tenant.pods("spared")}
        (standby,) = [name for name in gpus if "-spare-" in name]
        assert sorted(gpus.values()) == [0, 8, 8]
        assert gpus[standby] == 0
        nodes = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in tenant.pods("spared")}
        spare_node = nodes.pop(standby)
        tenant.fleet.remove_node(min(nodes.values()))

        def swapped() -> bool:
            pods = [pod for pod in tenant.running_pods("spared") if pod["spec"]["nodeName"] == spare_node]
            return [gpus_of(pod) for pod in pods] == [8]

        wait_until(swapped, "the rank runs on the GPUs of the spare")
        tenant.cancel("spared")


def gpus_of(pod: Manifest) -> int:
    resources = pod["spec"]["containers"][0].get("resources", {})
    return int(resources.get("limits", {}).get("nvidia.com/gpu", 0))


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
