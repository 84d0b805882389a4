"""A real gang: Python processes in containers meet, lose a node, go on at the spare, and complete."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.live.binaries import find_all
from tests.live.cluster import PROGRAMS, REAL_PROGRAMS
from tests.live.control_plane import ControlPlane
from tests.live.images import PYTHON
from tests.live.managing import Manager, Scene, install, set_policy
from tests.live.packages import why_no_real_nodes
from tests.live.process import wait_until
from tests.live.real_nodes import RealNodes

PROGRAM = Path(__file__).with_name("allreduce.py")
STEPS = 60
LABELS = {"region": "r", "cluster": "c", "fabric.domain": "nv-real", "gpu.flavor": "GPU-gang"}


@pytest.fixture(scope="module")
def nodes() -> Iterator[RealNodes]:
    if why := why_no_real_nodes():
        pytest.skip(why)
    find_all([*PROGRAMS, *REAL_PROGRAMS])
    with ExitStack() as stack:
        plane = stack.enter_context(ControlPlane())
        kubeconfig = install(plane)
        set_policy(plane, "nodeGrace: 1s\n")
        plane.start_controllers(controllers="*", node_monitor_period="1s", node_monitor_grace_period="12s")
        real = plane.real_nodes(3, labels=LABELS)
        stack.enter_context(Manager(plane, kubeconfig))
        yield real


def template(directory: Path) -> dict[str, Any]:
    """As a researcher writes it, with a volume and a grace period of its own."""
    environment = {"CHECKPOINT": "/checkpoints/gang.json", "STEPS": str(STEPS)}
    return {
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "volumes": [{"name": "checkpoints", "hostPath": {"path": str(directory)}}],
            "containers": [
                {
                    "name": "main",
                    "image": PYTHON,
                    "command": ["python3", "-u", "-c", PROGRAM.read_text()],
                    "env": [{"name": name, "value": value} for name, value in environment.items()],
                    "volumeMounts": [{"name": "checkpoints", "mountPath": "/checkpoints"}],
                }
            ],
        }
    }


def test_a_gang_loses_a_node_and_goes_on_from_its_checkpoint_at_the_spare(
    nodes: RealNodes, tmp_path: Path
) -> None:
    plane = nodes.plane
    scene = Scene(plane, None, "gang")
    scene.budget("a", 32)
    checkpoint = tmp_path / "gang.json"
    tmp_path.chmod(0o777)
    scene.run("train", "a", 16, spares=1, runtime={"checkpoint": "1s"}, template=template(tmp_path))
    scene.await_running("train", 3)

    def saved() -> dict[str, Any]:
        read: dict[str, Any] = json.loads(checkpoint.read_text()) if checkpoint.exists() else {"step": 0}
        return read

    wait_until(lambda: saved()["step"] >= 5, "the gang works")
    victim = next(pod for pod in scene.pods("train") if pod["spec"].get("hostname") == "train-0-1")
    spare = next(pod for pod in scene.pods("train") if "-spare-" in pod["metadata"]["name"])
    next(node for node in nodes.nodes if node.name == victim["spec"]["nodeName"]).kill()
    scene.await_phase("Completed", "train", within=180)
    done = saved()
    assert (done["step"], done["sum"]) == (STEPS, 3 * STEPS)
    (resumed,) = done["resumed"]
    assert (resumed[0], 5 <= resumed[1] < STEPS) == ("2", True)
    ranks = {
        pod["spec"].get("hostname"): pod
        for pod in scene.pods("train")
        if pod["status"]["phase"] == "Succeeded"
    }
    assert ranks["train-0-1"]["spec"]["nodeName"] == spare["spec"]["nodeName"]
    assert scene.status("train").get("restarts", 0) == 0
    ends = ["Completed", "Completed", "NodeFailure", "Swap"]
    wait_until(lambda: sorted(scene.endings("train")) == ends, "its leases say how they ended")


def test_an_image_that_does_not_exist_is_told(nodes: RealNodes) -> None:
    """Its Run holds its GPUs until somebody mends or cancels it, and says why it does nothing."""
    scene = Scene(nodes.plane, None, "typo")
    scene.flavor = LABELS["gpu.flavor"]
    scene.budget("lab", 1)
    missing = {"spec": {"containers": [{"name": "main", "image": "images.jobtree.test/missing:1"}]}}
    scene.run("typo", "lab", 1, template=missing)
    wait_until(lambda: "PodStuck" in scene.events("typo"), "the Run says that its pod does not start")
    events = scene.items(f"/api/v1/namespaces/{scene.name}/events")
    (stuck,) = [event["message"] for event in events if event["reason"] == "PodStuck"][:1]
    assert "images.jobtree.test/missing:1" in stuck
    assert "cancel the Run and submit it with another template" in stuck
    scene.cancel("typo")
    wait_until(lambda: not scene.plane.rest.get(scene.path("typo")).accepted, "it can be cancelled")
    assert scene.endings("typo") == ["Cancelled"]
