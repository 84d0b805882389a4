"""Real nodes: containers, GPU accounting, names across nodes, logs, signals, and a loss of power."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.live.cluster.server_process import wait_until
from tests.live.crds.manifests import Manifest
from tests.live.manager.installation import await_service_account
from tests.live.nodes.container_images import PYTHON_IMAGE
from tests.live.nodes.real_nodes import RealNodes
from tests.shown import REPOSITORY

NAMESPACE = "real"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
POD_SECONDS = 120
NUMBERS = count(1)

Run = Callable[..., str]


@pytest.fixture(scope="module")
def cluster(real_nodes: RealNodes) -> RealNodes:
    plane = real_nodes.plane
    plane.kubectl("create", "namespace", NAMESPACE)
    await_service_account(plane, NAMESPACE)
    return real_nodes


@pytest.fixture
def run(cluster: RealNodes) -> Iterator[Run]:
    """A function that starts a pod with a Python program on a node; the pods are deleted after the test."""
    names: list[str] = []

    def start(program: str, node: int = 0, gpus: int = 0, **spec: object) -> str:
        name = f"pod-{next(NUMBERS)}"
        names.append(name)
        manifest = pod(name, program, cluster.nodes[node].name, gpus, spec)
        answer = cluster.plane.rest.post(PODS, manifest)
        assert answer.accepted, answer.message
        return name

    yield start
    for name in names:
        cluster.plane.rest.delete(f"{PODS}/{name}?gracePeriodSeconds=0")


def pod(name: str, program: str, node: str, gpus: int, spec: dict[str, object]) -> Manifest:
    container = {
        "name": "main",
        "image": PYTHON_IMAGE,
        "command": ["python3", "-u", "-c", program],
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "gang"}},
        "spec": {"nodeName": node, "restartPolicy": "Never", "containers": [container], **spec},
    }


def status(cluster: RealNodes, name: str) -> dict[str, Any]:
    answer = cluster.plane.rest.get(f"{PODS}/{name}")
    return answer.body["status"] if answer.accepted else {"phase": "Deleted"}


def await_phase(cluster: RealNodes, name: str, *phases: str) -> dict[str, Any]:
    def reached() -> bool:
        return status(cluster, name).get("phase") in phases

    try:
        wait_until(reached, f"{name} is {' or '.join(phases)}", POD_SECONDS)
    except TimeoutError as late:
        described = cluster.plane.kubectl("describe", "pod", "-n", NAMESPACE, name, check=False).stdout
        raise TimeoutError(f"{late}\n{described}{logs(cluster, name)}") from None
    return status(cluster, name)


def logs(cluster: RealNodes, name: str) -> str:
    return cluster.plane.kubectl("logs", "-n", NAMESPACE, name, check=False).stdout


def node_is_ready(cluster: RealNodes, node: int) -> bool:
    answer = cluster.plane.rest.get(f"/api/v1/nodes/{cluster.nodes[node].name}")
    conditions = {condition["type"]: condition["status"] for condition in answer.body["status"]["conditions"]}
    return bool(conditions["Ready"] == "True")


PRINT_HOST_AND_GPUS = """
import json, os, socket
print(json.dumps([socket.gethostname(), sorted(os.environ["NVIDIA_VISIBLE_DEVICES"].split(","))]))
"""


@pytest.mark.parametrize("node", [0, 1])
def test_pod_gets_its_gpus_and_its_log_can_be_read(cluster: RealNodes, run: Run, node: int) -> None:
    name = run(PRINT_HOST_AND_GPUS, node, gpus=8, hostname=f"rank-{node}")
    await_phase(cluster, name, "Succeeded", "Failed")
    assert json.loads(logs(cluster, name)) == [f"rank-{node}", [str(gpu) for gpu in range(8)]]


WAIT = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
print("waiting")
signal.sigwait({signal.SIGTERM})
print("told to end")
"""


def test_gpus_in_use_are_not_given_to_another_pod(cluster: RealNodes, run: Run) -> None:
    first = run(WAIT, gpus=6)
    await_phase(cluster, first, "Running")
    too_many = await_phase(cluster, run(WAIT, gpus=3), "Failed")
    assert "Requested: 3, Available: 2" in too_many["message"]
    await_phase(cluster, run(WAIT, gpus=2), "Running")


SERVE = """
import socket
with socket.create_server(("", 29500)) as server:
    while True:
        connection, (peer, _) = server.accept()
        connection.sendall(f"{socket.gethostname()} answers {peer}".encode())
        connection.close()
"""
ASK = """
import socket, time
deadline = time.monotonic() + 50
while True:
    try:
        with socket.create_connection(("rank-0.gang.real.svc.cluster.local", 29500), 5) as server:
            print(server.recv(100).decode())
            break
    except OSError:
        if time.monotonic() > deadline:
            raise
        time.sleep(0.2)
"""


def test_pods_on_two_nodes_reach_each_other_by_name(cluster: RealNodes, run: Run) -> None:
    service = {
        "metadata": {"name": "gang"},
        "spec": {"clusterIP": "None", "selector": {"app": "gang"}, "ports": [{"port": 29500}]},
    }
    cluster.plane.rest.post(f"/api/v1/namespaces/{NAMESPACE}/services", service)
    run(SERVE, 0, hostname="rank-0", subdomain="gang")
    asking = run(ASK, 1, hostname="rank-1", subdomain="gang")
    ended = await_phase(cluster, asking, "Succeeded", "Failed")
    assert logs(cluster, asking) == f"rank-0 answers {ended['podIP']}\n"


def test_deleted_pod_gets_sigterm_and_can_still_print(cluster: RealNodes, run: Run) -> None:
    name = run(WAIT)
    wait_until(lambda: logs(cluster, name) == "waiting\n", "the program waits", POD_SECONDS)
    follow = [str(cluster.plane.kubectl_program), "logs", "-f", "-n", NAMESPACE, name]
    with subprocess.Popen(
        follow, env=cluster.plane.environment(), stdout=subprocess.PIPE, text=True
    ) as following:
        assert following.stdout is not None
        assert following.stdout.readline() == "waiting\n"
        cluster.plane.rest.delete(f"{PODS}/{name}")
        output, _ = following.communicate(timeout=POD_SECONDS)
    assert output == "told to end\n"
    wait_until(lambda: status(cluster, name)["phase"] == "Deleted", "the pod is deleted", POD_SECONDS)


IGNORE_SIGTERM = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ignoring")
while True:
    time.sleep(1)
"""


def test_pod_that_ignores_sigterm_is_killed_after_its_grace_period(cluster: RealNodes, run: Run) -> None:
    name = run(IGNORE_SIGTERM, terminationGracePeriodSeconds=3)
    wait_until(lambda: logs(cluster, name) == "ignoring\n", "the program ignores SIGTERM", POD_SECONDS)
    deleted = time.monotonic()
    cluster.plane.rest.delete(f"{PODS}/{name}")
    wait_until(lambda: status(cluster, name)["phase"] == "Deleted", "the pod is killed", POD_SECONDS)
    assert time.monotonic() - deleted >= 3


def test_node_without_power_is_noticed_and_becomes_ready_again(cluster: RealNodes, run: Run) -> None:
    marker = f"jobtree-marker-{time.monotonic_ns()}"
    lost = run(f"{WAIT}# {marker}", 1, gpus=8)
    container = await_phase(cluster, lost, "Running")["containerStatuses"][0]["containerID"]
    assert processes_with(marker)
    assert cgroups_of(container)
    cluster.nodes[1].kill()
    assert not processes_with(marker)
    assert not cgroups_of(container)
    wait_until(lambda: not node_is_ready(cluster, 1), "the node is not ready", POD_SECONDS)
    assert node_is_ready(cluster, 0)
    cluster.nodes[1].start()
    wait_until(lambda: node_is_ready(cluster, 1), "the node is ready again", POD_SECONDS)
    await_phase(cluster, lost, "Failed")
    cluster.nodes[1].await_ready()
    await_phase(cluster, run(PRINT_HOST_AND_GPUS, 1, gpus=8), "Succeeded")


def processes_with(marker: str) -> list[str]:
    """Returns the processes of this machine and its containers whose command line contains ``marker``."""
    processes = []
    for command_line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if marker in command_line.read_text(errors="replace"):
                processes.append(command_line.parent.name)
        except OSError:  # the process has just ended
            continue
    return processes


def cgroups_of(container: str) -> list[Path]:
    name = container.removeprefix("containerd://")
    return [path for depth in ("*", "*/*") for path in Path("/sys/fs/cgroup").glob(f"{depth}/{name}")]


START_A_NODE = """
import sys
from tests.live.cluster.control_plane import ControlPlane
with ControlPlane() as plane:
    plane.start_controllers()
    nodes = plane.start_real_nodes(1)
    print(plane.directory, nodes.bridge, flush=True)
    sys.stdin.read()
"""


def test_nothing_remains_when_the_tests_are_killed(real_nodes: RealNodes) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", START_A_NODE],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as tests:
        assert tests.stdout is not None
        directory, bridge = tests.stdout.readline().split()
        assert bridge != real_nodes.bridge
        assert processes_with(directory)
        assert Path(f"/sys/class/net/{bridge}").exists()
        tests.kill()
    wait_until(lambda: not processes_with(directory), "all processes have ended", POD_SECONDS)
    wait_until(lambda: not Path(directory).exists(), "the files are removed", POD_SECONDS)
    wait_until(lambda: not Path(f"/sys/class/net/{bridge}").exists(), "the bridge is removed", POD_SECONDS)
