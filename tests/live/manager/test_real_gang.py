"""A real gang: Python processes in containers work together, lose a node, and continue on a spare."""

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
        set_policy(plane, "nodeGrace: 1s\n")
        plane.start_controllers(controllers="*", node_monitor_period="1s", node_monitor_grace_period="12s")
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


def test_run_reports_an_image_that_does_not_exist(nodes: RealNodes) -> None:
    """The Run keeps its GPUs until a user cancels it, and an Event says why its pod does not start."""
    tenant = Tenant(nodes.plane, None, "typo")
    tenant.flavor = LABELS["gpu.flavor"]
    tenant.create_budget("lab", 1)
    missing = {"spec": {"containers": [{"name": "main", "image": "images.jobtree.test/missing:1"}]}}
    tenant.create_run("typo", "lab", 1, template=missing)
    wait_until(lambda: "PodStuck" in tenant.event_reasons("typo"), "the Run has an Event for its pod")
    events = tenant.items(f"/api/v1/namespaces/{tenant.name}/events")
    (stuck,) = [event["message"] for event in events if event["reason"] == "PodStuck"][:1]
    assert "images.jobtree.test/missing:1" in stuck
    assert "cancel the Run and submit it with another template" in stuck
    tenant.cancel("typo")
    wait_until(lambda: not tenant.plane.rest.get(tenant.run_path("typo")).accepted, "the Run is deleted")
    assert tenant.closure_reasons("typo") == ["Cancelled"]
