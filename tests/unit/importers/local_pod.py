"""Runs the container of a converted script as a local process, as one rank of a Run."""

import os
import re
import subprocess
from typing import Any

from jobtree.importers.slurm.script_importer import convert_slurm
from jobtree.importers.slurm.script_request import CallerOptions

LIMIT_SECONDS = 60
_BITE = re.compile(r"\$(\$|\(([^)]*)\))")


def kubelet(text: str, variables: dict[str, str]) -> str:
    """Expands an argument as the kubelet does: ``$$`` is ``$``, ``$(NAME)`` is a variable."""

    def bite(found: re.Match[str]) -> str:
        return "$" if found[1] == "$" else variables.get(found[2], found[0])

    return _BITE.sub(bite, text)


def rank_variables(rank: int, nodes: int, gpus: int) -> dict[str, str]:
    """Returns the variables that Jobtree sets in a rank."""
    return {
        "MASTER_ADDR": "train-0.train.lab.svc.cluster.local",
        "MASTER_PORT": "29500",
        "WORLD_SIZE": str(nodes * gpus),
        "NNODES": str(nodes),
        "NODE_RANK": str(rank),
        "NPROC_PER_NODE": str(gpus),
        "JOBTREE_RUN": "lab/train",
        "JOBTREE_ATTEMPT": "1",
    }


def container(script: str, options: CallerOptions | None = None) -> dict[str, Any]:
    """Returns the container of the Run that a batch script becomes."""
    options = options or CallerOptions(image="image", owner="org:lab", gpu_type="H100")
    (run,) = convert_slurm([("train.sh", script.encode())], options).documents
    (found,) = run["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def process(
    script: str, rank: int = 0, nodes: int = 1, gpus: int = 8, **more: str
) -> "subprocess.Popen[str]":
    """Starts the process of one pod."""
    made = container(script)
    own = {entry["name"]: entry["value"] for entry in made["env"]}
    variables = {**rank_variables(rank, nodes, gpus), **own, **more}
    words = [kubelet(word, variables) for word in (*made["command"], *made["args"])]
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **variables}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        words, env=environment, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True
    )


def pod(script: str, rank: int = 0, nodes: int = 1, gpus: int = 8, **more: str) -> tuple[int, list[str], str]:
    """Runs one pod; returns its exit code, the sorted lines of stdout, and stderr."""
    running = process(script, rank, nodes, gpus, **more)
    out, err = running.communicate(timeout=LIMIT_SECONDS)
    return running.returncode, sorted(out.splitlines()), err


def pods(script: str, nodes: int, gpus: int = 8) -> list[str]:
    """Runs all pods of a Run, which must succeed; returns the sorted lines that they print."""
    lines = []
    for rank in range(nodes):
        code, out, err = pod(script, rank, nodes, gpus)
        assert code == 0, err
        lines += out
    return sorted(lines)
