"""Real nodes are real: containers, GPUs that are counted, names across nodes, logs, signals, a power cut."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.live.images import PYTHON
from tests.live.manifests import Manifest
from tests.live.process import wait_until
from tests.live.real_nodes import RealNodes

NAMESPACE = "real"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
POD_SECONDS = 120
NUMBERS = count(1)

Run = Callable[..., str]


@pytest.fixture(scope="module")
def cluster(real_nodes: RealNodes) -> RealNodes:
    plane = real_nodes.plane
    plane.kubectl("create", "namespace", NAMESPACE)
    account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
    wait_until(lambda: plane.rest.get(account).accepted, f"{NAMESPACE} has its service account")
    return real_nodes


@pytest.fixture
def run(cluster: RealNodes) -> Iterator[Run]:
    """Starts a pod that runs a Python program on a node; the pods are removed in the end."""
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
        "image": PYTHON,
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
    return answer.body["status"] if answer.accepted else {"phase": "Gone"}


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
    conditions = {one["type"]: one["status"] for one in answer.body["status"]["conditions"]}
    return bool(conditions["Ready"] == "True")


GREET = """
import json, os, socket
print(json.dumps([socket.gethostname(), sorted(os.environ["NVIDIA_VISIBLE_DEVICES"].split(","))]))
"""


@pytest.mark.parametrize("node", [0, 1])
def test_a_pod_runs_a_program_with_its_gpus_and_its_log_can_be_read(
    cluster: RealNodes, run: Run, node: int
) -> None:
    name = run(GREET, node, gpus=8, hostname=f"rank-{node}")
    await_phase(cluster, name, "Succeeded", "Failed")
    assert json.loads(logs(cluster, name)) == [f"rank-{node}", [str(gpu) for gpu in range(8)]]


WAIT = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
print("waiting")
signal.sigwait({signal.SIGTERM})
print("told to end")
"""


def test_gpus_that_are_taken_are_not_given_twice(cluster: RealNodes, run: Run) -> None:
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
        connection.sendall(f"{socket.gethostname()} greets {peer}".encode())
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


def test_pods_of_two_nodes_reach_each_other_by_name(cluster: RealNodes, run: Run) -> None:
    service = {
        "metadata": {"name": "gang"},
        "spec": {"clusterIP": "None", "selector": {"app": "gang"}, "ports": [{"port": 29500}]},
    }
    cluster.plane.rest.post(f"/api/v1/namespaces/{NAMESPACE}/services", service)
    run(SERVE, 0, hostname="rank-0", subdomain="gang")
    asking = run(ASK, 1, hostname="rank-1", subdomain="gang")
    ended = await_phase(cluster, asking, "Succeeded", "Failed")
    assert logs(cluster, asking) == f"rank-0 greets {ended['podIP']}\n"


def test_a_deleted_pod_is_told_to_end_and_may_say_goodbye(cluster: RealNodes, run: Run) -> None:
    name = run(WAIT)
    wait_until(lambda: logs(cluster, name) == "waiting\n", "the program waits", POD_SECONDS)
    follow = [str(cluster.plane.kubectl_program), "logs", "-f", "-n", NAMESPACE, name]
    with subprocess.Popen(
        follow, env=cluster.plane.environment(), stdout=subprocess.PIPE, text=True
    ) as following:
        assert following.stdout is not None
        assert following.stdout.readline() == "waiting\n"
        cluster.plane.rest.delete(f"{PODS}/{name}")
        said, _ = following.communicate(timeout=POD_SECONDS)
    assert said == "told to end\n"
    wait_until(lambda: status(cluster, name)["phase"] == "Gone", "the pod is gone", POD_SECONDS)


STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf")
while True:
    time.sleep(1)
"""


def test_a_pod_that_will_not_end_is_given_its_grace_period(cluster: RealNodes, run: Run) -> None:
    name = run(STUBBORN, terminationGracePeriodSeconds=3)
    wait_until(lambda: logs(cluster, name) == "deaf\n", "the program is deaf", POD_SECONDS)
    told = time.monotonic()
    cluster.plane.rest.delete(f"{PODS}/{name}")
    wait_until(lambda: status(cluster, name)["phase"] == "Gone", "the pod is killed", POD_SECONDS)
    assert time.monotonic() - told >= 3


def test_a_node_that_loses_power_is_noticed_and_comes_back(cluster: RealNodes, run: Run) -> None:
    marker = f"jobtree-marker-{time.monotonic_ns()}"
    lost = run(f"{WAIT}# {marker}", 1, gpus=8)
    container = await_phase(cluster, lost, "Running")["containerStatuses"][0]["containerID"]
    assert processes_with(marker)
    assert cgroups_of(container)
    cluster.nodes[1].kill()
    assert not processes_with(marker)
    assert not cgroups_of(container)
    wait_until(lambda: not node_is_ready(cluster, 1), "the loss is noticed", POD_SECONDS)
    assert node_is_ready(cluster, 0)
    cluster.nodes[1].start()
    wait_until(lambda: node_is_ready(cluster, 1), "the node is back", POD_SECONDS)
    await_phase(cluster, lost, "Failed")
    cluster.nodes[1].await_ready()
    await_phase(cluster, run(GREET, 1, gpus=8), "Succeeded")


def processes_with(marker: str) -> list[str]:
    """Processes of this machine, in whatever container, whose command line holds ``marker``."""
    found = []
    for command_line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if marker in command_line.read_text(errors="replace"):
                found.append(command_line.parent.name)
        except OSError:  # it has just ended
            continue
    return found


def cgroups_of(container: str) -> list[Path]:
    name = container.removeprefix("containerd://")
    return [path for depth in ("*", "*/*") for path in Path("/sys/fs/cgroup").glob(f"{depth}/{name}")]


START_A_NODE = """
import sys
from tests.live.control_plane import ControlPlane
with ControlPlane() as plane:
    plane.start_controllers()
    nodes = plane.real_nodes(1)
    print(plane.directory, nodes.bridge, flush=True)
    sys.stdin.read()
"""


def test_nothing_is_left_of_tests_that_were_killed(real_nodes: RealNodes) -> None:
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", START_A_NODE],
        cwd=root,
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
    wait_until(lambda: not Path(directory).exists(), "the files are gone", POD_SECONDS)
    wait_until(lambda: not Path(f"/sys/class/net/{bridge}").exists(), "the bridge is gone", POD_SECONDS)
