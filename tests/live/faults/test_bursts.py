"""Hundreds of new Runs in one namespace, and the first Run of another one (H4)."""

from tests.live.cluster.server_process import wait_until
from tests.live.crds.manifests import API_VERSION, Manifest
from tests.live.faults.fault_cluster import AUDIT_OK, FaultCluster
from tests.live.manager.tenant import Tenant

BURST = 300


def burst_of(tenant: Tenant) -> list[Manifest]:
    resources = {"gpuType": tenant.flavor, "totalGPUs": 8}
    return [
        {
            "apiVersion": API_VERSION,
            "kind": "Run",
            "metadata": {"name": f"burst-{number}", "namespace": tenant.name},
            "spec": {"owner": tenant.owner("a"), "resources": resources},
        }
        for number in range(BURST)
    ]


def started(tenant: Tenant) -> int:
    phases = [run.get("status", {}).get("phase") for run in tenant.items(tenant.runs_path)]
    return phases.count("Running")


def test_youngest_run_starts_before_hundreds_of_another_namespace(fault_cluster: FaultCluster) -> None:
    """All of them can start, and are there when the manager starts; in the end all run, each once."""
    crowd, canary = fault_cluster.create_tenant(), fault_cluster.create_tenant()
    canary.flavor = crowd.flavor
    crowd.add_nodes("nv", BURST + 1)
    crowd.create_budget("a", 8 * BURST)
    canary.create_budget("a", 8)
    answers = crowd.plane.rest.post_all(crowd.runs_path, burst_of(crowd))
    assert all(answer.accepted for answer in answers)
    canary.create_run("canary", "a", 8)
    fault_cluster.delete_election_lease()
    with fault_cluster.start_manager():
        wait_until(lambda: bool(canary.pods("canary")), "the canary has its pod")
        before = started(crowd)
        assert before < BURST / 2, "it waits for its share of the burst, not for all of it"
        wait_until(lambda: started(crowd) == BURST, "all others start", 120)
        canary.await_running_pods("canary", 1)
        wait_until(lambda: fault_cluster.audit() == AUDIT_OK, "all invariants hold", 120)
        for tenant in (canary, crowd):
            assert tenant.plane.rest.delete(tenant.runs_path).accepted
        wait_until(lambda: not crowd.items(crowd.runs_path), "all are deleted", 120)
