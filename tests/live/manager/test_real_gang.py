"""Real gangs on real kubelets: nodes and the API server refuse their pods, and nodes fail under them."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.live.cluster.control_plane import ControlPlane
from tests.live.cluster.server_process import wait_until
from tests.live.manager.installation import install, set_policy
from tests.live.manager.manager_process import Manager
from tests.live.manager.tenant import Tenant
from tests.live.nodes.container_images import PYTHON_IMAGE
from tests.live.nodes.real_nodes import RealNodes
from tests.live.programs.build_recipes import CLUSTER_PROGRAMS, REAL_NODE_PROGRAMS
from tests.live.programs.debian_packages import why_no_real_nodes
from tests.live.programs.program_finder import find_programs

PROGRAM = Path(__file__).with_name("allreduce_program.py")
STEPS = 60
LABELS = {"region": "r", "cluster": "c", "fabric.domain": "nv-real", "gpu.flavor": "GPU-gang"}


@pytest.fixture(scope="module")
def nodes() -> Iterator[RealNodes]:
    if why := why_no_real_nodes():
        pytest.skip(why)
    find_programs([*CLUSTER_PROGRAMS, *REAL_NODE_PROGRAMS])
    with ExitStack() as stack:
        plane = stack.enter_context(ControlPlane())
        kubeconfig = install(plane)
        set_policy(plane, "nodeGrace: 1s\nplacementGrace: 10s\nbinding: Auto\n")
        plane.start_controllers(controllers="*", node_monitor_period="1s", node_monitor_grace_period="12s")
        plane.start_scheduler()
        real = plane.start_real_nodes(3, labels=LABELS)
        stack.enter_context(Manager(plane, kubeconfig))
        yield real


def template(directory: Path) -> dict[str, Any]:
    """Returns the template of the Run, with a volume for checkpoints and a grace period."""
    environment = {"CHECKPOINT": "/checkpoints/gang.json", "STEPS": str(STEPS)}
    return {
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "volumes": [{"name": "checkpoints", "hostPath": {"path": str(directory)}}],
            "containers": [
                {
                    "name": "main",
                    "image": PYTHON_IMAGE,
                    "command": ["python3", "-u", "-c", PROGRAM.read_text()],
                    "env": [{"name": name, "value": value} for name, value in environment.items()],
                    "volumeMounts": [{"name": "checkpoints", "mountPath": "/checkpoints"}],
                }
            ],
        }
    }


def sleeping(**spec: object) -> dict[str, Any]:
    """Returns a template whose pods run until they are told to end."""
    program = "import signal, sys; signal.signal(15, lambda *_: sys.exit(3)); signal.pause()"
    container = {"name": "main", "image": PYTHON_IMAGE, "command": ["python3", "-c", program]}
    return {"spec": {"terminationGracePeriodSeconds": 1, "containers": [container], **spec}}


def begin(nodes: RealNodes, name: str) -> Tenant:
    tenant = Tenant(nodes.plane, None, name)
    tenant.flavor = LABELS["gpu.flavor"]
    tenant.create_budget("lab", 32)
    return tenant


def end(tenant: Tenant, run: str) -> None:
    tenant.cancel(run)
    wait_until(lambda: not tenant.plane.rest.get(tenant.run_path(run)).accepted, "the Run is deleted")
    wait_until(lambda: tenant.pods(run) == [], "its pods are gone")


def nodes_of(tenant: Tenant, run: str) -> set[str]:
    return {pod["spec"]["nodeName"] for pod in tenant.running_pods(run)}


def test_gang_leaves_a_node_that_cannot_pull_its_image(nodes: RealNodes) -> None:
    """N3: the others hold the words of the kubelet, and the refused rank goes to another node."""
    tenant, broken = begin(nodes, "pull"), nodes.nodes[0]
    broken.remove_image(PYTHON_IMAGE)
    tenant.create_run("train", "lab", 16, runtime={"maxRestarts": 0}, template=sleeping())
    wait_until(lambda: tenant.status("train").get("reason") == "Refused", "the Run says that it is refused")
    assert broken.name in tenant.status("train")["message"]
    assert PYTHON_IMAGE in tenant.status("train")["message"]
    healthy = {node.name for node in nodes.nodes[1:]}
    wait_until(lambda: nodes_of(tenant, "train") == healthy, "the gang runs on the other nodes", 60)
    wait_until(lambda: tenant.status("train").get("reason") == "Admitted", "the Run says that it runs")
    status = tenant.status("train")
    assert (status["phase"], status.get("restarts", 0)) == ("Running", 0)
    assert [refusal["node"] for refusal in status["refusals"]] == [broken.name]
    end(tenant, "train")
    broken.kill()
    broken.start()  # it imports its images again
    broken.await_ready()
    nodes.plane.kubectl("uncordon", broken.name)


def test_taint_that_evicts_pods_moves_the_run(nodes: RealNodes) -> None:
    tenant = begin(nodes, "taint")
    tenant.create_run("train", "lab", 8, runtime={"maxRestarts": 0}, template=sleeping())
    tenant.await_running_pods("train", 1)
    (tainted,) = nodes_of(tenant, "train")
    nodes.plane.kubectl("taint", "node", tainted, "maintenance=yes:NoExecute")
    wait_until(lambda: nodes_of(tenant, "train") - {tainted} != set(), "it runs on another node", 60)
    status = tenant.status("train")
    assert (status["phase"], status.get("restarts", 0)) == ("Running", 0)
    nodes.plane.kubectl("taint", "node", tainted, "maintenance-")
    end(tenant, "train")


def test_quota_that_refuses_some_ranks_frees_all_gpus_until_it_is_raised(nodes: RealNodes) -> None:
    """H5: the Run waits with the words of the API server and is tried again."""
    tenant = begin(nodes, "quota")
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"}}
    path = f"/api/v1/namespaces/{tenant.name}/resourcequotas"
    assert nodes.plane.rest.post(path, {**quota, "spec": {"hard": {"pods": "1"}}}).accepted
    wait_until(lambda: "used" in tenant.items(path)[0].get("status", {}), "the quota counts pods")
    tenant.create_run("train", "lab", 16, runtime={"maxRestarts": 0}, template=sleeping())
    tenant.await_running_pods("train", 1)
    wait_until(lambda: "exceeded quota" in tenant.status("train").get("message", ""), "the Run says why")
    wait_until(lambda: tenant.status("train").get("reason") == "Unplaceable", "the Run waits", 40)
    wait_until(lambda: tenant.pods("train") == [], "its pods are gone")
    assert tenant.phase("train") == "Pending"
    assert set(tenant.closure_reasons("train")) == {"CapacityLost"}
    nodes.plane.kubectl(
        "patch", "resourcequota", "small", "-n", tenant.name, "--patch", '{"spec": {"hard": {"pods": "9"}}}'
    )
    tenant.await_running_pods("train", 2, within=60)
    assert tenant.status("train").get("restarts", 0) == 0
    end(tenant, "train")


def test_run_with_an_image_that_does_not_exist_waits_and_holds_nothing(nodes: RealNodes) -> None:
    tenant = begin(nodes, "typo")
    missing = {"spec": {"containers": [{"name": "main", "image": "images.jobtree.test/missing:1"}]}}
    tenant.create_run("typo", "lab", 24, template=missing)
    wait_until(lambda: "PodStuck" in tenant.event_reasons("typo"), "the Run has an Event for its pod")
    events = tenant.items(f"/api/v1/namespaces/{tenant.name}/events")
    (stuck,) = [event["message"] for event in events if event["reason"] == "PodStuck"][:1]
    assert "images.jobtree.test/missing:1" in stuck
    assert "cancel the Run and submit it with another template" in stuck
    wait_until(lambda: tenant.status("typo").get("reason") == "Unplaceable", "the Run waits", 40)
    assert "images.jobtree.test/missing:1" in tenant.status("typo")["message"]
    assert set(tenant.closure_reasons("typo")) == {"CapacityLost"}
    end(tenant, "typo")


def test_scheduler_binds_a_gang_to_nodes_with_its_adapters(nodes: RealNodes) -> None:
    """N1, N2: one node has none, and Jobtree chooses the others."""
    tenant = begin(nodes, "adapters")
    for node in nodes.nodes[1:]:
        capacity = [{"op": "add", "path": "/status/capacity/example.com~1hca", "value": "1"}]
        patch = ["--subresource=status", "--type=json", "--patch", json.dumps(capacity)]
        nodes.plane.kubectl("patch", "node", node.name, *patch)
    template = sleeping()
    template["spec"]["containers"][0]["resources"] = {"limits": {"example.com/hca": "1"}}
    tenant.create_run("train", "lab", 16, runtime={"maxRestarts": 0}, template=template)
    with_adapters = {node.name for node in nodes.nodes[1:]}
    wait_until(lambda: nodes_of(tenant, "train") == with_adapters, "the gang has its adapters", 60)
    assert tenant.status("train").get("restarts", 0) == 0
    bound_by = {pod["spec"]["schedulerName"]: pod["spec"].get("affinity") for pod in tenant.pods("train")}
    assert "matchFields" in json.dumps(bound_by["default-scheduler"])
    end(tenant, "train")


def test_volume_that_waits_for_its_consumer_is_bound_on_the_node_of_its_run(
    nodes: RealNodes, tmp_path: Path
) -> None:
    """N1: the provisioner of the tests are local volumes that exist, one on each node."""
    tenant = begin(nodes, "volume")
    tmp_path.chmod(0o777)
    storage_class = {
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    create(tenant, "storage.k8s.io/v1", "StorageClass", "local", **storage_class)
    for node in nodes.nodes:
        rule = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node.name]}
        volume = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "local": {"path": str(tmp_path)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}},
        }
        create(tenant, "v1", "PersistentVolume", f"on-{node.name}", spec=volume)
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "local",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    create(tenant, "v1", "PersistentVolumeClaim", "data", namespace=tenant.name, spec=claim)
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    tenant.create_run("train", "lab", 8, template=sleeping(volumes=volumes))
    tenant.await_running_pods("train", 1)
    (on,) = nodes_of(tenant, "train")
    (bound,) = tenant.items(f"/api/v1/namespaces/{tenant.name}/persistentvolumeclaims")
    assert bound["spec"]["volumeName"] == f"on-{on}"
    end(tenant, "train")


def create(
    tenant: Tenant, version: str, kind: str, name: str, *, namespace: str = "", **fields: object
) -> None:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    document = {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}
    tenant.plane.kubectl("apply", "-f", "-", stdin=json.dumps(document))


def test_spare_starts_under_pod_security_restricted(nodes: RealNodes) -> None:
    """N1: the standby pod keeps the security context without which the API server refuses it."""
    tenant = begin(nodes, "restricted")
    nodes.plane.kubectl("label", "namespace", tenant.name, "pod-security.kubernetes.io/enforce=restricted")
    template = sleeping(securityContext={"runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}})
    template["spec"]["containers"][0]["securityContext"] = {
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    tenant.create_run("train", "lab", 8, spares=1, template=template)
    tenant.await_running_pods("train", 2)
    end(tenant, "train")


def test_gang_continues_from_its_checkpoint_on_the_spare_when_a_node_fails(
    nodes: RealNodes, tmp_path: Path
) -> None:
    plane = nodes.plane
    tenant = Tenant(plane, None, "gang")
    tenant.create_budget("a", 32)
    checkpoint = tmp_path / "gang.json"
    tmp_path.chmod(0o777)
    tenant.create_run("train", "a", 16, spares=1, runtime={"checkpoint": "1s"}, template=template(tmp_path))
    tenant.await_running_pods("train", 3)

    def read_checkpoint() -> dict[str, Any]:
        content: dict[str, Any] = json.loads(checkpoint.read_text()) if checkpoint.exists() else {"step": 0}
        return content

    wait_until(lambda: read_checkpoint()["step"] >= 5, "the gang has done 5 steps")
    lost_rank = next(pod for pod in tenant.pods("train") if pod["spec"].get("hostname") == "train-0-1")
    spare = next(pod for pod in tenant.pods("train") if "-spare-" in pod["metadata"]["name"])
    next(node for node in nodes.nodes if node.name == lost_rank["spec"]["nodeName"]).kill()
    tenant.await_phase("Completed", "train", within=180)
    last = read_checkpoint()
    assert (last["step"], last["sum"]) == (STEPS, 3 * STEPS)
    (resumed,) = last["resumed"]
    assert (resumed[0], 5 <= resumed[1] < STEPS) == ("2", True)
    ranks = {
        pod["spec"].get("hostname"): pod
        for pod in tenant.pods("train")
        if pod["status"]["phase"] == "Succeeded"
    }
    assert ranks["train-0-1"]["spec"]["nodeName"] == spare["spec"]["nodeName"]
    assert tenant.status("train").get("restarts", 0) == 0
    closure_reasons = ["Completed", "Completed", "NodeFailure", "Swap"]
    wait_until(
        lambda: sorted(tenant.closure_reasons("train")) == closure_reasons,
        "its leases have their closure reasons",
    )
