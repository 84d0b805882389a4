"""``make cluster``."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.cluster.server_process import wait_until
from tests.live.programs.build_recipes import CLUSTER_PROGRAMS
from tests.shown import REPOSITORY


@pytest.fixture
def started_cluster(programs: dict[str, Path]) -> Iterator[subprocess.Popen[str]]:
    assert set(CLUSTER_PROGRAMS) <= set(programs)
    with subprocess.Popen(
        [sys.executable, "-m", "tests.live.cluster.make_cluster"],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.kill()


def test_make_cluster_starts_prints_instructions_and_leaves_nothing(
    started_cluster: subprocess.Popen[str], programs: dict[str, Path]
) -> None:
    kubeconfig = Path(find_in_output(started_cluster, r"export KUBECONFIG=(\S+)"))
    environment = os.environ | {"KUBECONFIG": str(kubeconfig), "KUBERC": "off"}

    def kubectl(*arguments: str) -> str:
        result = subprocess.run(
            [str(programs["kubectl"]), *arguments],
            cwd=REPOSITORY,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
        return result.stdout + result.stderr

    names = "jsonpath={.items[*].metadata.name}"
    nodes = kubectl("get", "nodes", "-l", "fabric.domain=nv-b", "-o", names).split()
    assert nodes == [f"gpu-a-{number}" for number in range(17, 33)]
    assert "condition met" in kubectl("wait", "--for=condition=Ready", "node/gpu-a-01", "--timeout=120s")
    assert "created" in kubectl("apply", "-f", "config/samples/budgets/")
    assert "created" in kubectl("apply", "-f", "config/samples/runs/resnet-small.yaml")
    started_cluster.send_signal(signal.SIGINT)
    assert started_cluster.wait(60) == 0
    wait_until(lambda: not kubeconfig.parent.exists(), "its files are removed")


def find_in_output(cluster: subprocess.Popen[str], pattern: str) -> str:
    """Returns the first group of the first output line that matches."""
    assert cluster.stdout is not None
    for line in cluster.stdout:
        if match := re.search(pattern, line):
            return match[1]
    raise AssertionError(f"the cluster ended with {cluster.wait()} and never printed {pattern}")
