"""The verbs that read, on a live cluster and in every output format."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.live.admission.admission_cluster import BREAK_GLASS_GROUP
from tests.live.cli.kubectl_user import KubectlUser
from tests.live.cli.user_cluster import UserCluster
from tests.live.cluster.rbac import bind_role
from tests.live.cluster.server_process import wait_until
from tests.live.crds.manifests import API_VERSION, GROUP
from tests.live.manager.tenant import Tenant


@pytest.fixture(scope="module")
def tenant(user_cluster: UserCluster) -> Tenant:
    """A tenant with a running Run, a waiting Run and a job tree."""
    tenant = user_cluster.create_tenant()
    tenant.add_nodes("nv", 4)
    tenant.create_budget("lab", 24)
    tenant.create_run("train", "lab", 16)
    tenant.await_running_pods("train", 2)
    fit = {"gpuType": tenant.flavor, "totalGPUs": 8}
    stages = [
        {"name": "prep", "resources": {"totalGPUs": 0, "pods": 1}},
        {"name": "fit", "after": ["prep"], "resources": fit},
    ]
    tenant.create("Run", "flow", {"owner": tenant.owner("lab"), "stages": stages})
    tenant.create_run("late", "lab", 24)
    tenant.await_phase("Reserved", "late")
    wait_until(lambda: bool(tenant.reservations()), "there is a Reservation")
    return tenant


@pytest.fixture(scope="module")
def researcher(
    user_cluster: UserCluster, tenant: Tenant, tmp_path_factory: pytest.TempPathFactory
) -> KubectlUser:
    user = KubectlUser(user_cluster.plane, "researcher", tenant.name, tmp_path_factory.mktemp("researcher"))
    for role, namespace in (("jobtree-planner", ""), ("jobtree-researcher", tenant.name)):
        bind_role(user_cluster.plane, role, "researcher", namespace)
    return user


VERBS: dict[str, tuple[list[str], str, int]] = {
    # arguments, a text in the table, exit code
    "state": (["state"], "TENANT/train  ", 0),
    "state --owner": (["state", "--owner", "TENANT:lab"], "TENANT/late  ", 0),
    "plan": (["plan", "train"], "TENANT/train has run since ", 0),
    "tree": (["tree", "flow"], "TENANT/flow", 0),
    "leases": (["leases", "train"], "TENANT-lab/main", 0),
    "leases --owner": (["leases", "--owner", "TENANT:lab", "--open"], "TENANT/train", 0),
    "budgets usage": (["budgets", "usage", "--owner", "TENANT"], "TENANT-lab/main", 0),
    "reservations": (["reservations", "-n", "TENANT"], "TENANT/late-1", 0),
    "explain": (["explain", "train"], "paid by TENANT-lab/main: it started", 0),
    "timeline": (["timeline"], "TENANT/train ", 0),
    "watch": (["watch", "train", "--once"], "TENANT/train  Running  16/16 GPUs", 0),
    "pods": (["pods", "train"], "TENANT-nv-0", 0),
}


@pytest.mark.parametrize("verb", VERBS)
def test_verb_prints_every_output_format(tenant: Tenant, researcher: KubectlUser, verb: str) -> None:
    arguments, text, code = VERBS[verb]
    arguments = [word.replace("TENANT", tenant.name) for word in arguments]
    result = researcher.kubectl_runs(*arguments)
    assert (result.code, result.err) == (code, "")
    assert text.replace("TENANT", tenant.name) in result.out
    json_result = researcher.kubectl_runs(*arguments, "-o", "json")
    assert json_result.code == code, json_result.err
    document = json.loads(json_result.out)
    items: list[dict[str, Any]] = document["items"] if document["kind"] == "List" else [document]
    assert items
    as_yaml = yaml.safe_load(researcher.kubectl_runs(*arguments, "-o", "yaml").out)
    assert as_yaml["kind"] == document["kind"]
    names = researcher.kubectl_runs(*arguments, "-o", "name").out.splitlines()
    objects = [item for item in items if item["kind"] != "RunPlan"]  # an answer, which nobody can get by name
    assert [name.rpartition("/")[2] for name in names] == [item["metadata"]["name"] for item in objects]
    assert items[0]["metadata"]["uid"], "the objects have no UIDs of the API server"


def test_printed_names_are_accepted_by_kubectl(tenant: Tenant, researcher: KubectlUser) -> None:
    name = researcher.kubectl_runs("pods", "train", "-o", "name").out.split()[0]
    assert researcher.kubectl("get", name).code == 0
    assert researcher.kubectl_runs("plan", f"run.{GROUP}/train").code == 0
    assert researcher.kubectl_runs("plan", f"{tenant.name}/train", "-n", "default").code == 0


def test_namespace_of_the_context_limits_state_and_names(tenant: Tenant, researcher: KubectlUser) -> None:
    result = researcher.kubectl_runs("state", "-n", "default")
    assert result.out == "no Runs in namespace default: --all lists the Runs of all namespaces\n"
    assert f"{tenant.name}/train" in researcher.kubectl_runs("state", "--all", "-n", "default").out
    result = researcher.kubectl_runs("pods", "train", "-n", "default")
    assert (result.code, f"did you mean {tenant.name}/train?" in result.err) == (3, True), result.err
    result = researcher.kubectl_runs("explain", "trian")
    assert (result.code, "did you mean train?" in result.err) == (3, True), result.err


def test_pods_and_logs_explain_when_a_run_or_rank_has_none(researcher: KubectlUser) -> None:
    assert researcher.kubectl_runs("pods", "late").out == "no pods\n"
    result = researcher.kubectl_runs("logs", "late")
    assert (result.code, "it is Reserved and has no pods now" in result.err) == (3, True), result.err
    result = researcher.kubectl_runs("logs", "train", "--rank", "7")
    assert (result.code, "its ranks are 0 to 1" in result.err) == (3, True), result.err
    assert researcher.kubectl_runs("logs", "train", "--rank", "0", "--group", "0").code == 2
    result = researcher.kubectl_runs("logs", "train")
    assert (result.code, "the logs of train-" in result.err, "kubectl get node" in result.err) == (
        74,
        True,
        True,
    ), result


def test_topology_prints_the_commands_that_repair_labels(
    user_cluster: UserCluster, tenant: Tenant, researcher: KubectlUser
) -> None:
    other_tenant = user_cluster.create_tenant()
    names = other_tenant.add_nodes("nv", 5)
    for node, label in zip(names, ("region-", "cluster=elsewhere", "gpu.flavor-"), strict=False):
        user_cluster.plane.kubectl("label", "node", node, label, "--overwrite")
    result = researcher.kubectl_runs("topology")
    assert result.code == 1
    rows = [line.split() for line in result.out.splitlines()]
    assert [f"r/c/{tenant.name}-nv", tenant.flavor, "4", "4", "32", "16"] in rows
    lines = [line.strip().partition("  #")[0] for line in result.out.splitlines() if "kubectl label" in line]
    repair_commands = [line for line in lines if other_tenant.name in line]
    assert repair_commands == [
        f"kubectl label node {names[0]} region=r",
        f"kubectl label node {names[1]} cluster=c --overwrite",
        f"kubectl label node {names[2]} gpu.flavor={other_tenant.flavor}",
    ]
    for line in repair_commands:
        user_cluster.plane.kubectl(*line.split()[1:])
    result = researcher.kubectl_runs("topology")
    assert (
        result.code,
        [f"r/c/{other_tenant.name}-nv", other_tenant.flavor, "5", "5", "40", "40"]
        in map(str.split, result.out.splitlines()),
    ) == (0, True)
    assert len(researcher.kubectl_runs("topology", "-o", "json").json()["items"]) >= 9


def test_topology_names_nodes_that_report_no_gpus(user_cluster: UserCluster, researcher: KubectlUser) -> None:
    other_tenant = user_cluster.create_tenant()
    (name,) = other_tenant.add_nodes("nv", 1)
    for gpus, code in (("0", 1), ("8", 0)):
        reported = {"status": {"capacity": {"nvidia.com/gpu": gpus}, "allocatable": {"nvidia.com/gpu": gpus}}}
        assert user_cluster.plane.rest.merge(f"/api/v1/nodes/{name}/status", reported).accepted
        result = researcher.kubectl_runs("topology")
        assert (result.code, f"  kubectl describe node {name}\n" in result.out) == (code, code == 1), result


def test_audit_reports_pods_without_leases(
    user_cluster: UserCluster, tenant: Tenant, researcher: KubectlUser
) -> None:
    result = researcher.kubectl_runs("audit")
    assert (result.code, result.out) == (0, "OK: all invariants hold, and all pods match their leases\n"), (
        result
    )
    assert researcher.kubectl_runs("check").code == 0
    user_cluster.stop_manager()
    try:
        run = user_cluster.plane.rest.get(tenant.run_path("train")).body["metadata"]
        owner = {"apiVersion": API_VERSION, "kind": "Run", "name": "train", "uid": run["uid"]}
        limits = {"nvidia.com/gpu": "8"}
        container = {"name": "main", "image": "x", "resources": {"limits": limits, "requests": limits}}
        free = next(node for node in (f"{tenant.name}-nv-04", f"{tenant.name}-nv-03"))
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "intruder", "ownerReferences": [owner]},
            "spec": {"nodeName": free, "containers": [container]},
        }
        path = f"/api/v1/namespaces/{tenant.name}/pods"
        intruder = user_cluster.plane.rest_as("admin", "system:masters", BREAK_GLASS_GROUP)
        assert intruder.post(path, pod).accepted
        result = researcher.kubectl_runs("audit")
        wanted = f"Pods: pods of {tenant.name}/train request 8 GPUs on {free}, where its leases hold 0"
        assert (result.code, wanted in result.out) == (1, True), result
        status = researcher.kubectl_runs("audit", "-o", "json")
        assert (status.code, status.json()["status"]) == (1, "Failure")
        assert user_cluster.plane.rest.delete(f"{path}/intruder?gracePeriodSeconds=0").accepted
    finally:
        user_cluster.start_manager()


@pytest.mark.parametrize("arguments", ["advance 1h", "fail x", "heal x", "drain x", "complete train"])
def test_simulation_verb_is_refused_on_a_live_cluster(researcher: KubectlUser, arguments: str) -> None:
    result = researcher.kubectl_runs(*arguments.split())
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error: this verb works only on a simulated cluster: name a state file")


def test_run_names_are_completed(tenant: Tenant, researcher: KubectlUser) -> None:
    assert researcher.kubectl_runs("__complete", "plan", "tr").out == "train\n:4\n"
    assert f"{tenant.name}/late\n" in researcher.kubectl_runs("__complete", "plan", f"{tenant.name}/la").out
    assert researcher.kubectl_runs("__complete", "explain", "--context", "nowhere", "tr").out == ":4\n"


def test_connection_errors_say_what_to_do(researcher: KubectlUser, tmp_path: Path) -> None:
    config = yaml.safe_load(researcher.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    (tmp_path / "gone").write_text(yaml.safe_dump(config))
    result = researcher.kubectl_runs("state", "--kubeconfig", str(tmp_path / "gone"))
    assert (result.code, "the cluster does not answer: https://127.0.0.1:1: " in result.err) == (74, True), (
        result.err
    )
    assert "kubectl cluster-info" in result.err
    config = yaml.safe_load(researcher.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": "stale"}
    (tmp_path / "stale").write_text(yaml.safe_dump(config))
    result = researcher.kubectl_runs("state", "--kubeconfig", str(tmp_path / "stale"))
    assert (result.code, "may have expired" in result.err) == (2, True), result.err
    result = researcher.kubectl_runs("state", "--context", "nowhere")
    assert (result.code, "nowhere" in result.err) == (2, True), result.err
