"""``logs`` and ``pods`` on real nodes."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import jobtree
from tests.live.cli.kubectl_user import KubectlUser
from tests.live.cluster.rbac import bind_role
from tests.live.cluster.server_process import wait_until
from tests.live.crds.manifests import API_VERSION, FLAVOR
from tests.live.manager.installation import await_service_account, install
from tests.live.manager.manager_process import Manager
from tests.live.nodes.container_images import PYTHON_IMAGE
from tests.live.nodes.real_nodes import RealNodes

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
def researcher(real_nodes: RealNodes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubectlUser]:
    plane = real_nodes.plane
    kubeconfig = install(plane)
    plane.kubectl("create", "namespace", NAMESPACE)
    await_service_account(plane, NAMESPACE)
    bind_role(plane, "jobtree-researcher", "researcher", NAMESPACE)
    bind_role(plane, "jobtree-planner", "researcher")
    with Manager(plane, kubeconfig):
        user = KubectlUser(plane, "researcher", NAMESPACE, tmp_path_factory.mktemp("researcher"))
        for body in (budget(), run()):
            path = f"/apis/{API_VERSION}/" + (
                "budgets" if body["kind"] == "Budget" else f"namespaces/{NAMESPACE}/runs"
            )
            answer = plane.rest.post(path, body)
            assert answer.accepted, answer.message
        wait_until(lambda: user.kubectl_runs("pods", "talk").out.count("Running") == 2, "both ranks run")
        all_logs = ("logs", "talk", "--group", "0")
        wait_until(
            lambda: user.kubectl_runs(*all_logs).out.count("of 2") == 2, "both ranks have printed their line"
        )
        yield user
        plane.kubectl("delete", "run", "talk", "-n", NAMESPACE)
        pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
        wait_until(lambda: not plane.rest.get(pods).body["items"], "its pods are deleted")


def budget() -> dict[str, Any]:
    envelope = {"name": "main", "flavor": FLAVOR, "concurrency": 16}
    spec = {"owner": "print", "envelopes": [envelope]}
    return {"apiVersion": API_VERSION, "kind": "Budget", "metadata": {"name": "print"}, "spec": spec}


def run() -> dict[str, Any]:
    container = {"name": "main", "image": PYTHON_IMAGE, "command": ["python3", "-c", PROGRAM]}
    spec = {
        "owner": "print",
        "resources": {"gpuType": FLAVOR, "totalGPUs": 4, "gpusPerPod": 2},
        "template": {"spec": {"containers": [container]}},
    }
    metadata = {"name": "talk", "namespace": NAMESPACE}
    return {"apiVersion": API_VERSION, "kind": "Run", "metadata": metadata, "spec": spec}


def test_logs_prints_the_output_of_ranks(researcher: KubectlUser) -> None:
    assert researcher.kubectl_runs("logs", "talk").out == "rank 0 of 2\n"
    assert researcher.kubectl_runs("logs", "talk", "--rank", "1").out == "rank 1 of 2\n"
    assert researcher.kubectl_runs("logs", "talk", "--group", "0").out == "[0] rank 0 of 2\n[1] rank 1 of 2\n"
    result = researcher.kubectl_runs("logs", "talk", "-c", "nobody")
    assert (result.code, "nobody" in result.err) == (2, True), result.err


def test_logs_follows_the_output_of_a_rank(real_nodes: RealNodes, researcher: KubectlUser) -> None:
    with researcher.start_plugin("logs", "talk", "-f") as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "rank 0 of 2\n"
            assert process.poll() is None
            pod = researcher.kubectl_runs("pods", "talk", "-o", "name").out.split()[0]
            finish = ("python3", "-c", "open('/tmp/done', 'w')")
            real_nodes.plane.kubectl("exec", "-n", NAMESPACE, pod, "--", *finish)
            assert process.stdout.readline() == "done\n"
        finally:
            process.kill()


def test_library_follows_the_log_of_a_rank(researcher: KubectlUser) -> None:
    with jobtree.cluster(kubeconfig=str(researcher.kubeconfig)) as cluster:
        run = cluster.run("talk")
        assert next(run.logs()) == "rank 0 of 2"
        assert next(run.logs(1, follow=True)) == "rank 1 of 2"
        with pytest.raises(jobtree.NotFoundError, match="its ranks are 0 to 1"):
            next(run.logs(7))

        async def first_line() -> str:
            async for line in jobtree.aio.AsyncRun(run).logs(1, follow=True):
                return line
            return ""

        assert asyncio.run(first_line()) == "rank 1 of 2"
