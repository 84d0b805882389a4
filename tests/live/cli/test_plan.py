"""``plan`` on a live cluster and on a snapshot of it gives the same slots as the manager."""

from pathlib import Path
from typing import Any

import pytest

from tests.live.cli.kubectl_user import KubectlUser
from tests.live.cli.user_cluster import UserCluster
from tests.live.cluster.server_process import wait_until
from tests.live.crds.manifests import API_VERSION
from tests.live.manager.installation import set_policy
from tests.live.manager.tenant import Tenant

KINDS = "nodes,pods,budgets,runs,reservations,gpuleases"


@pytest.fixture
def tenant(user_cluster: UserCluster) -> Tenant:
    """Two domains with GPUs in use by a Run and by a foreign pod."""
    tenant = user_cluster.create_tenant()
    tenant.add_nodes("nv-a", 4)
    (first, *_) = tenant.add_nodes("nv-b", 4)
    tenant.create_budget("lab", 56)
    tenant.create_run("base", "lab", 8)
    tenant.await_running_pods("base", 1)
    limits = {"nvidia.com/gpu": "3"}
    container = {"name": "main", "image": "foreign", "resources": {"limits": limits, "requests": limits}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "foreign"},
        "spec": {"nodeName": first, "containers": [container]},
    }
    assert tenant.plane.rest.post(f"/api/v1/namespaces/{tenant.name}/pods", pod).accepted
    return tenant


@pytest.fixture
def planner(user_cluster: UserCluster, tenant: Tenant, tmp_path: Path) -> KubectlUser:
    """A user who may only read."""
    return user_cluster.planner(tenant, tmp_path)


def new_run(tenant: Tenant, gpus: int = 40) -> dict[str, Any]:
    spec = {
        "owner": tenant.owner("lab"),
        "resources": {"gpuType": tenant.flavor, "totalGPUs": gpus},
        "locality": {"groupGPUs": 8},
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "Run",
        "metadata": {"name": "new", "namespace": tenant.name},
        "spec": spec,
    }


def slots(items: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Returns what a plan decides for each lease: group, role, class, slots and payer."""
    specs = [item["spec"] for item in items if item["kind"] == "Lease"]
    return sorted(
        (
            spec.get("group", 0),
            spec["role"],
            spec["class"],
            tuple(spec["slots"]),
            tuple(sorted(spec["payer"].items())),
        )
        for spec in specs
    )


def test_plan_on_a_snapshot_equals_plan_on_the_live_cluster(
    user_cluster: UserCluster, tenant: Tenant, planner: KubectlUser
) -> None:
    """Scenario 14."""
    file = planner.write_manifest("new.yaml", new_run(tenant))
    for state, result in (
        ("snapshot.yaml", planner.kubectl_runs("snapshot")),
        ("got.yaml", planner.kubectl("get", KINDS, "-A", "-o", "yaml")),
    ):
        assert result.code == 0, result.err
        (planner.directory / state).write_text(result.out)
    answers = {
        "live": planner.kubectl_runs("plan", "-f", file, "-o", "json"),
        "snapshot": planner.kubectl_runs("--state", "snapshot.yaml", "plan", "-f", file, "-o", "json"),
        "kubectl get": planner.kubectl_runs("--state", "got.yaml", "plan", "-f", file, "-o", "json"),
    }
    planned = {}
    for name, result in answers.items():
        assert result.code == 0, (name, result)
        planned[name] = slots(result.json()["items"])
    assert not tenant.plane.rest.get(tenant.run_path("new")).accepted, "plan must not create the Run"
    researcher = user_cluster.researcher(tenant, planner.directory)
    assert researcher.kubectl_runs("submit", "-f", file).code == 0
    tenant.await_running_pods("new", 5)
    decided = slots(researcher.kubectl_runs("leases", "new", "-o", "json").json()["items"])
    assert len(decided) >= 5
    assert planned == dict.fromkeys(planned, decided)


def test_snapshot_contains_the_policy(user_cluster: UserCluster, planner: KubectlUser) -> None:
    """A user who may only read gets it too."""
    set_policy(user_cluster.plane, 'spareRate: "0.3"\n')
    try:
        result = planner.kubectl_runs("snapshot")
        assert 'spareRate: "0.3"' in result.out
    finally:
        set_policy(user_cluster.plane)


def test_plan_of_a_waiting_run_shows_the_decision_of_the_manager(
    tenant: Tenant, planner: KubectlUser
) -> None:
    tenant.create_run("late", "lab", 56)
    tenant.await_phase("Reserved", "late")
    wait_until(lambda: bool(tenant.reservations()), "there is a Reservation")
    (reservation_object,) = tenant.reservations()
    result = planner.kubectl_runs("plan", "late", "-o", "json")
    assert result.code == 1
    (run, reservation, answer) = result.json()["items"]
    assert answer["metadata"]["uid"] == run["metadata"]["uid"]
    assert answer["status"]["reservation"]["name"] == reservation["metadata"]["name"]
    assert reservation["metadata"]["uid"] == reservation_object["metadata"]["uid"]
    assert reservation["spec"] == reservation_object["spec"]
    assert run["status"]["reason"] == tenant.status("late")["reason"]
    text = planner.kubectl_runs("plan", "late").out
    assert f"Reservation {reservation_object['metadata']['name']}:" in text
    assert f"{tenant.name}/late cannot start now: 56 GPUs of {tenant.flavor}" in text
    assert "ConcurrencyExhausted (have 48, need 56)" in text
    assert "→ " in text
    listed = planner.kubectl_runs("reservations", "-n", tenant.name)
    assert f"{tenant.name}/{reservation_object['metadata']['name']}" in listed.out


def test_planner_cannot_submit_or_cancel(tenant: Tenant, planner: KubectlUser) -> None:
    for arguments in (
        ["submit", "-f", planner.write_manifest("new.yaml", new_run(tenant))],
        ["cancel", "base"],
    ):
        result = planner.kubectl_runs(*arguments)
        assert (result.code, "jobtree-researcher" in result.err) == (2, True), result
    assert tenant.phase("base") == "Running"
