"""``logs`` and ``pods`` on real nodes: what the ranks of a Run really print."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.live.images import PYTHON
from tests.live.managing import Manager, await_account, install
from tests.live.manifests import API_VERSION, FLAVOR
from tests.live.person import Person, bind
from tests.live.process import wait_until
from tests.live.real_nodes import RealNodes

NAMESPACE = "printing"
PROGRAM = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("rank", os.environ["NODE_RANK"], "of", os.environ["NNODES"], flush=True)
while not os.path.exists("/tmp/done"):
    time.sleep(0.1)
print("done", flush=True)
"""


@pytest.fixture(scope="module")
def ann(real_nodes: RealNodes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    plane = real_nodes.plane
    kubeconfig = install(plane)
    plane.kubectl("create", "namespace", NAMESPACE)
    await_account(plane, NAMESPACE)
    bind(plane, "jobtree-researcher", "ann", NAMESPACE)
    bind(plane, "jobtree-planner", "ann")
    with Manager(plane, kubeconfig):
        person = Person(plane, "ann", NAMESPACE, tmp_path_factory.mktemp("ann"))
        for body in (budget(), run()):
            path = f"/apis/{API_VERSION}/" + (
                "budgets" if body["kind"] == "Budget" else f"namespaces/{NAMESPACE}/runs"
            )
            answer = plane.rest.post(path, body)
            assert answer.accepted, answer.message
        wait_until(lambda: person.runs("pods", "talk").out.count("Running") == 2, "both ranks run")
        everything = ("logs", "talk", "--group", "0")
        wait_until(lambda: person.runs(*everything).out.count("of 2") == 2, "both have said so")
        yield person
        plane.kubectl("delete", "run", "talk", "-n", NAMESPACE)
        pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
        wait_until(lambda: not plane.rest.get(pods).body["items"], "its pods are gone")


def budget() -> dict[str, Any]:
    envelope = {"name": "main", "flavor": FLAVOR, "concurrency": 16}
    spec = {"owner": "print", "envelopes": [envelope]}
    return {"apiVersion": API_VERSION, "kind": "Budget", "metadata": {"name": "print"}, "spec": spec}


def run() -> dict[str, Any]:
    container = {"name": "main", "image": PYTHON, "command": ["python3", "-c", PROGRAM]}
    spec = {
        "owner": "print",
        "resources": {"gpuType": FLAVOR, "totalGPUs": 4, "gpusPerPod": 2},
        "template": {"spec": {"containers": [container]}},
    }
    metadata = {"name": "talk", "namespace": NAMESPACE}
    return {"apiVersion": API_VERSION, "kind": "Run", "metadata": metadata, "spec": spec}


def test_what_ranks_print(ann: Person) -> None:
    assert ann.runs("logs", "talk").out == "rank 0 of 2\n"
    assert ann.runs("logs", "talk", "--rank", "1").out == "rank 1 of 2\n"
    assert ann.runs("logs", "talk", "--group", "0").out == "[0] rank 0 of 2\n[1] rank 1 of 2\n"
    said = ann.runs("logs", "talk", "-c", "nobody")
    assert (said.code, "nobody" in said.err) == (2, True), said.err


def test_following(real_nodes: RealNodes, ann: Person) -> None:
    with ann.start("logs", "talk", "-f") as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "rank 0 of 2\n"
            assert process.poll() is None
            pod = ann.runs("pods", "talk", "-o", "name").out.split()[0]
            finish = ("python3", "-c", "open('/tmp/done', 'w')")
            real_nodes.plane.kubectl("exec", "-n", NAMESPACE, pod, "--", *finish)
            assert process.stdout.readline() == "done\n"
        finally:
            process.kill()
