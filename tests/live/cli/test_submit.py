"""``submit``, ``shrink``, ``grow`` and ``cancel`` on a live cluster, by users with their own rights."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.cli.kubectl_user import KubectlUser
from tests.live.cli.user_cluster import UserCluster
from tests.live.cluster.control_plane import ControlPlane
from tests.live.cluster.rbac import bind_role
from tests.live.cluster.server_process import wait_until
from tests.live.crds.manifests import API_VERSION
from tests.live.manager.tenant import Tenant


@pytest.fixture
def tenant(user_cluster: UserCluster) -> Iterator[Tenant]:
    tenant = user_cluster.create_tenant()
    tenant.add_nodes("nv", 4)
    tenant.create_budget("lab", 24)
    yield tenant
    assert not user_cluster.manager.has_logged("Traceback"), user_cluster.manager.log.read_text()


@pytest.fixture
def researcher(user_cluster: UserCluster, tenant: Tenant, tmp_path: Path) -> KubectlUser:
    return user_cluster.researcher(tenant, tmp_path)


def run(tenant: Tenant, name: str, gpus: int = 8, **fields: object) -> dict[str, Any]:
    """Returns a Run without a namespace, which goes to the namespace of the user's context."""
    resources = {"gpuType": tenant.flavor, "totalGPUs": gpus}
    spec = {"owner": tenant.owner("lab"), "resources": resources, **fields}
    return {"apiVersion": API_VERSION, "kind": "Run", "metadata": {"name": name}, "spec": spec}


def test_submit_prints_the_decision_of_the_manager(tenant: Tenant, researcher: KubectlUser) -> None:
    result = researcher.kubectl_runs(
        "submit", "-f", researcher.write_manifest("run.yaml", run(tenant, "train", 16))
    )
    assert (result.code, result.err) == (0, "")
    assert (
        result.out == f"{tenant.name}/train is Running: Admitted: 16 GPUs, paid by {tenant.name}-lab/main\n"
    )
    tenant.await_running_pods("train", 2)
    result = researcher.kubectl_runs(
        "submit", "-f", researcher.write_manifest("late.yaml", run(tenant, "late", 16))
    )
    assert result.out.startswith(f"{tenant.name}/late is Reserved: ConcurrencyExhausted: ")
    assert researcher.kubectl_runs(
        "submit", "-f", researcher.write_manifest("j.yaml", run(tenant, "j")), "-o", "json"
    ).json()["status"]["phase"]


def test_dry_run_saves_nothing_and_needs_the_same_rights(tenant: Tenant, researcher: KubectlUser) -> None:
    file = researcher.write_manifest("run.yaml", run(tenant, "train", 16))
    result = researcher.kubectl_runs("submit", "-f", file, "--dry-run")
    assert result.code == 0, result.err
    assert f"{tenant.name}/train runs: 16 GPUs in " in result.out
    assert result.out.endswith("dry run: nothing was saved\n")
    assert not tenant.plane.rest.get(tenant.run_path("train")).accepted
    result = researcher.kubectl_runs("submit", "-f", file, "--dry-run", "-n", "default")
    assert (result.code, "cannot create resource" in result.err) == (2, True), result.err


def test_submit_replaces_an_existing_run_only_with_replace(tenant: Tenant, researcher: KubectlUser) -> None:
    file = researcher.write_manifest("run.yaml", run(tenant, "train", 32))
    assert researcher.kubectl_runs("submit", "-f", file).code == 0
    result = researcher.kubectl_runs("submit", "-f", file)
    assert (result.code, "add --replace" in result.err) == (4, True), result.err
    researcher.write_manifest("run.yaml", run(tenant, "train", 24))
    result = researcher.kubectl_runs("submit", "-f", file, "--replace")
    assert result.out.startswith(f"{tenant.name}/train is Running: Admitted: 24 GPUs"), result
    result = researcher.kubectl_runs("submit", "-f", file, "--replace")
    assert result.out.startswith(f"{tenant.name}/train is Running"), "an unchanged Run must not be waited for"


def test_submit_creates_no_run_when_one_exists(tenant: Tenant, researcher: KubectlUser) -> None:
    assert (
        researcher.kubectl_runs(
            "submit", "-f", researcher.write_manifest("one.yaml", run(tenant, "taken"))
        ).code
        == 0
    )
    result = researcher.kubectl_runs(
        "submit", "-f", researcher.write_manifest("both.yaml", run(tenant, "fresh"), run(tenant, "taken"))
    )
    assert result.code == 4
    assert not tenant.plane.rest.get(tenant.run_path("fresh")).accepted


def test_submit_names_mistakes_in_files_rights_and_namespaces(
    user_cluster: UserCluster, tenant: Tenant, researcher: KubectlUser, tmp_path: Path
) -> None:
    result = researcher.kubectl_runs(
        "submit", "-f", researcher.write_manifest("run.yaml", run(tenant, "train", colour="blue"))
    )
    assert (result.code, result.out) == (2, "")
    assert "spec.colour" in result.err
    result = researcher.kubectl_runs(
        "submit", "-f", researcher.write_manifest("run.yaml", run(tenant, "train")), "-n", "default"
    )
    assert (result.code, "jobtree-researcher" in result.err) == (2, True), result.err
    result = researcher.kubectl_runs(
        "submit", "-f", researcher.write_manifest("pod.yaml", {"apiVersion": "v1", "kind": "Service"})
    )
    assert (result.code, "Traceback" in result.err) == (2, False), result.err
    stranger = user_cluster.stranger(tenant, tmp_path)
    result = stranger.kubectl_runs("state")
    assert (result.code, "jobtree-planner" in result.err) == (2, True), result.err
    bind_role(user_cluster.plane, "cluster-admin", researcher.name)
    result = researcher.kubectl_runs("submit", "-f", "run.yaml", "-n", "no-such-place")
    assert (result.code, "kubectl get namespaces" in result.err) == (3, True), result.err


def test_shrink_grow_and_cancel_change_a_running_run(tenant: Tenant, researcher: KubectlUser) -> None:
    malleable = {"minTotalGPUs": 8, "maxTotalGPUs": 24, "stepGPUs": 8}
    body = run(tenant, "train", 24, malleable=malleable, runtime={"checkpoint": "1s"})
    researcher.kubectl_runs("submit", "-f", researcher.write_manifest("run.yaml", body))
    tenant.await_running_pods("train", 3)
    result = researcher.kubectl_runs("shrink", "train", "--by", "8")
    assert result.out.startswith(f"{tenant.name}/train wants 16 GPUs and has 24"), result
    tenant.await_running_pods("train", 2)
    wait_until(lambda: tenant.status("train")["width"]["allocated"] == 16, "the Run has shrunk")
    assert researcher.kubectl_runs("shrink", "train", "--to", "7").code == 2
    result = researcher.kubectl_runs("grow", "train", "--to", "24", "-o", "json")
    assert result.json()["spec"]["malleable"]["desiredTotalGPUs"] == 24
    wait_until(lambda: tenant.status("train")["width"]["allocated"] == 24, "the Run has grown")
    assert researcher.kubectl_runs("shrink", "nobody", "--by", "8").code == 3
    result = researcher.kubectl_runs("cancel", "train", "-n", "default")
    assert (result.code, "did you mean team" in result.err) == (3, True), result.err
    assert (
        researcher.kubectl_runs("cancel", "train", "train", "-o", "name").out
        == f"run.{API_VERSION.partition('/')[0]}/train\n"
    )
    wait_until(lambda: not tenant.plane.rest.get(tenant.run_path("train")).accepted, "the Run is deleted")
    assert "Cancelled" in tenant.closure_reasons("train")
    assert "open" not in tenant.closure_reasons("train")


def test_submit_and_plan_report_a_missing_answer_when_no_manager_runs(
    user_cluster: UserCluster, tenant: Tenant, researcher: KubectlUser
) -> None:
    user_cluster.stop_manager()
    try:
        result = researcher.kubectl_runs(
            "submit", "-f", researcher.write_manifest("run.yaml", run(tenant, "train"))
        )
        assert (result.code, "the manager has not answered yet" in result.out) == (0, True), result
        assert "kubectl -n jobtree-system get deploy,pods" in result.out
        result = researcher.kubectl_runs("plan", "train")
        assert (result.code, "the manager has not" in result.out) == (1, True), result
    finally:
        user_cluster.start_manager()
    tenant.await_phase("Running", "train")


@pytest.mark.parametrize(("role", "may_create"), [("edit", True), ("view", False)])
def test_kubernetes_roles_include_rights_on_runs(
    user_cluster: UserCluster, tenant: Tenant, tmp_path: Path, role: str, may_create: bool
) -> None:
    """The role edit includes writing Runs, and the role view reading them."""
    user = user_cluster.stranger(tenant, tmp_path, f"{role}or")
    bind_role(user_cluster.plane, role, user.name, tenant.name)
    wait_until(lambda: user.kubectl("get", "runs").code == 0, f"{user.name} may list Runs")
    assert (user.kubectl("auth", "can-i", "create", "runs").code == 0) is may_create


def test_verbs_report_a_cluster_without_jobtree(tmp_path: Path) -> None:
    with ControlPlane() as plane:
        admin = KubectlUser(plane, "admin", "default", tmp_path)
        bind_role(plane, "cluster-admin", "admin")
        for arguments in (
            ["state"],
            ["submit", "-f", "run.yaml"],
            ["pods", "train"],
            ["plan", "-f", "run.yaml"],
        ):
            body = {"apiVersion": API_VERSION, "kind": "Run", "metadata": {"name": "train"}}
            spec = {"owner": "a", "resources": {"gpuType": "x", "totalGPUs": 8}}
            admin.write_manifest("run.yaml", {**body, "spec": spec})
            result = admin.kubectl_runs(*arguments)
            assert (result.code, "Jobtree is not installed" in result.err) == (3, True), (arguments, result)
