"""Fake nodes and their pods: pods run, end and are deleted, and do not change when their node has failed."""

from collections.abc import Iterator

import pytest

from tests.live.cluster.control_plane import ControlPlane
from tests.live.cluster.server_process import wait_until
from tests.live.crds.manifests import Manifest
from tests.live.manager.installation import await_service_account
from tests.live.nodes.fake_fleet import FakeFleet
from tests.live.nodes.kwok_stages import FAILS_AFTER, RUNS_FOR

NAMESPACE = "fleet"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


@pytest.fixture(scope="module")
def nodes(control_plane: ControlPlane, fleet: FakeFleet) -> Iterator[list[str]]:
    control_plane.kubectl("create", "namespace", NAMESPACE)
    await_service_account(control_plane, NAMESPACE)
    names = fleet.add_nodes("us-west/gpu-f/nv-f", 3, gpus=4, flavor="L40S-48GB")
    yield names
    control_plane.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
    for name in names:
        fleet.remove_node(name)


def pod(name: str, node: str | None, *, gpus: int = 1, annotations: dict[str, str] | None = None) -> Manifest:
    limits = {"nvidia.com/gpu": str(gpus)}
    container = {"name": "main", "image": "nothing", "resources": {"limits": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {
            "nodeName": node,
            "nodeSelector": {"fabric.domain": "nv-f"},
            "restartPolicy": "Never",
            "initContainers": [{"name": "before", "image": "nothing"}],
            "containers": [container],
        },
    }


def create(plane: ControlPlane, manifest: Manifest) -> None:
    answer = plane.rest.post(PODS, manifest)
    assert answer.accepted, answer.message


def await_phase(plane: ControlPlane, name: str, phase: str) -> Manifest:
    def reached() -> bool:
        return status(plane, name).get("phase") == phase

    wait_until(reached, f"{name} is {phase}")
    return status(plane, name)


def status(plane: ControlPlane, name: str) -> Manifest:
    pod_status: Manifest = plane.rest.get(f"{PODS}/{name}").body.get("status", {})
    return pod_status


def is_gone(plane: ControlPlane, name: str) -> bool:
    return plane.rest.get(f"{PODS}/{name}").status == 404


def test_fake_nodes_have_labels_and_gpus(control_plane: ControlPlane, nodes: list[str]) -> None:
    assert nodes == ["nv-f-01", "nv-f-02", "nv-f-03"]
    node = control_plane.rest.get("/api/v1/nodes/nv-f-02").body
    labels = node["metadata"]["labels"]
    assert [labels[key] for key in ("region", "cluster", "fabric.domain", "gpu.flavor")] == [
        "us-west",
        "gpu-f",
        "nv-f",
        "L40S-48GB",
    ]
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "4"
    control_plane.kubectl("wait", "--for=condition=Ready", "--timeout=120s", "node", *nodes)


def test_bound_pod_runs_until_the_test_ends_it(
    control_plane: ControlPlane, fleet: FakeFleet, nodes: list[str]
) -> None:
    create(control_plane, pod("good", nodes[0]))
    create(control_plane, pod("bad", nodes[0]))
    running = await_phase(control_plane, "good", "Running")
    assert running["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    assert running["containerStatuses"][0]["ready"]
    assert running["podIP"]
    await_phase(control_plane, "bad", "Running")
    fleet.finish_pod(NAMESPACE, "good")
    fleet.crash_pod(NAMESPACE, "bad")
    ended = await_phase(control_plane, "good", "Succeeded")
    assert ended["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    failed = await_phase(control_plane, "bad", "Failed")
    assert failed["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 1


def test_pod_ends_after_the_time_in_its_annotation(control_plane: ControlPlane, nodes: list[str]) -> None:
    create(control_plane, pod("short", nodes[1], annotations={RUNS_FOR: "50ms"}))
    create(control_plane, pod("flawed", nodes[1], annotations={FAILS_AFTER: "50ms"}))
    await_phase(control_plane, "short", "Succeeded")
    await_phase(control_plane, "flawed", "Failed")


def test_scheduler_counts_gpus_of_fake_nodes(control_plane: ControlPlane, nodes: list[str]) -> None:
    for number in range(4):
        create(control_plane, pod(f"whole-{number}", None, gpus=4))

    def phases() -> list[str]:
        return sorted(status(control_plane, f"whole-{number}")["phase"] for number in range(4))

    wait_until(
        lambda: phases() == ["Pending", "Running", "Running", "Running"], "three of four pods have a node"
    )
    assert len(nodes) == 3


def test_deleted_pod_stays_when_its_node_has_failed(
    control_plane: ControlPlane, fleet: FakeFleet, nodes: list[str]
) -> None:
    create(control_plane, pod("goes", nodes[0], gpus=0))
    create(control_plane, pod("hangs", nodes[2], gpus=0))
    for name in ("goes", "hangs"):
        await_phase(control_plane, name, "Running")
    fleet.fail_node(nodes[2])
    control_plane.kubectl("wait", "--for=condition=Ready=False", "--timeout=120s", "node", nodes[2])
    create(control_plane, pod("late", nodes[2], gpus=0))
    for name in ("hangs", "goes"):
        control_plane.rest.delete(f"{PODS}/{name}")
    wait_until(lambda: is_gone(control_plane, "goes"), "the pod on the ready node is deleted")
    assert not is_gone(control_plane, "hangs")
    assert status(control_plane, "late")["phase"] == "Pending"
    fleet.restore_node(nodes[2])
    wait_until(lambda: is_gone(control_plane, "hangs"), "the pod is deleted when the node is ready again")
    await_phase(control_plane, "late", "Running")
