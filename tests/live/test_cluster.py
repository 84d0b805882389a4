"""``make cluster``, as a person uses it."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.cluster import PROGRAMS
from tests.live.process import wait_until

ROOT = Path(__file__).parents[2]


@pytest.fixture
def made_cluster(programs: dict[str, Path]) -> Iterator[subprocess.Popen[str]]:
    assert set(PROGRAMS) <= set(programs)
    with subprocess.Popen(
        [sys.executable, "-m", "tests.live.cluster"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def test_it_comes_up_says_what_to_do_and_leaves_nothing(
    made_cluster: subprocess.Popen[str], programs: dict[str, Path]
) -> None:
    kubeconfig = Path(told(made_cluster, r"export KUBECONFIG=(\S+)"))
    environment = os.environ | {"KUBECONFIG": str(kubeconfig), "KUBERC": "off"}

    def kubectl(*arguments: str) -> str:
        done = subprocess.run(
            [str(programs["kubectl"]), *arguments],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
        return done.stdout + done.stderr

    names = "jsonpath={.items[*].metadata.name}"
    nodes = kubectl("get", "nodes", "-l", "fabric.domain=nv-b", "-o", names).split()
    assert nodes == [f"gpu-a-{number}" for number in range(17, 33)]
    assert "condition met" in kubectl("wait", "--for=condition=Ready", "node/gpu-a-01", "--timeout=120s")
    assert "created" in kubectl("apply", "-f", "config/samples/budgets/")
    assert "created" in kubectl("apply", "-f", "config/samples/runs/resnet-small.yaml")
    made_cluster.send_signal(signal.SIGINT)
    assert made_cluster.wait(60) == 0
    wait_until(lambda: not kubeconfig.parent.exists(), "its files are gone")


def told(cluster: subprocess.Popen[str], pattern: str) -> str:
    """What the cluster says in the first line that matches."""
    assert cluster.stdout is not None
    for line in cluster.stdout:
        if found := re.search(pattern, line):
            return found[1]
    raise AssertionError(f"the cluster ended with {cluster.wait()} and never said {pattern}")
