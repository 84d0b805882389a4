r"""Guides for live clusters: runs their ```shell-session blocks in order, on a cluster of their own.

- `kubectl …` and `kubectl runs …` are run; `> FILE` at the end writes their output to a file.
- Commands that only read are repeated for some time, until they print what the page shows.
- Commands in tables are run before the step `kubectl runs audit`, and must succeed.
- `helm …` is run with further values: the address of the API server, and the node that is real.

Times, ages and the width of columns are ignored. `--rewrite` writes the actual output into the page.
"""

import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.cluster.control_plane import ControlPlane
from tests.live.crds.samples import sample_namespaces
from tests.live.install.helm_chart import helm, manager_image, node_values
from tests.live.manager.installation import await_service_account
from tests.live.nodes.real_nodes import RealNodes
from tests.live.programs.build_recipes import CLUSTER_PROGRAMS, REAL_NODE_PROGRAMS
from tests.live.programs.debian_packages import why_no_real_nodes
from tests.live.programs.program_finder import find_programs
from tests.shown import (
    ANY_LINES,
    LIVE,
    LIVE_GUIDES,
    REPOSITORY,
    Manifest,
    Shown,
    agrees,
    complaint,
    rewritten,
    shown,
)

OUTPUT_SECONDS = 120
COMMAND_SECONDS = 180
EXAMPLES = {"RUN": "run-cofunded-128", "NODE": "gpu-a-01", "TIME": "2026-01-01"}
"""Placeholders in the tables of a guide, and objects of this cluster for them."""
STEP_AFTER_TABLES = "kubectl runs audit"
"""The step before which the commands in tables are run; by then all objects exist."""
TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z|\b\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}")
AGE = re.compile(r"(?<=\s)\(?(\d+[dhms])+\)?(?=\s|$)")


class LiveSession:
    """A cluster with nodes and without Jobtree, and a working directory."""

    def __init__(self, nodes: RealNodes, directory: Path) -> None:
        self.plane = nodes.plane
        self.directory = directory
        self._site = node_values(nodes)

    def run(self, command: str) -> list[str]:
        """Returns the output of a command, with a last line ``[exit N]`` if it fails."""
        words = shlex.split(command)
        assert words[0] in ("kubectl", "helm"), f"a live guide cannot run this: $ {command}"
        output_file = words.pop() if words[-2:-1] == [">"] else None
        if output_file:
            words.pop()
        result = self._call(words)
        if output_file:
            (self.directory / output_file).write_text(result.stdout)
        printed = ("" if output_file else result.stdout) + result.stderr
        failed = [f"[exit {result.returncode}]"] if result.returncode else []
        return [line.rstrip() for line in printed.rstrip().splitlines()] + failed

    def _call(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        if words[0] == "helm":
            site = self._site if words[1] in ("install", "upgrade") else []
            return helm(*words[1:], *site, plane=self.plane, directory=self.directory)
        program: list[str | Path] = [self.plane.kubectl_program, *words[1:]]
        if words[1] == "runs":
            program = [sys.executable, "-m", "jobtree.cli.main", *words[2:]]
        return subprocess.run(
            program,
            cwd=self.directory,
            env=self._environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_SECONDS,
        )

    def _environment(self) -> dict[str, str]:
        source = str(REPOSITORY / "src")
        return self.plane.environment() | {"PYTHONPATH": source, "COLUMNS": "110", "NO_COLOR": "1"}


@pytest.fixture
def session(tmp_path: Path) -> Iterator[LiveSession]:
    if why := why_no_real_nodes():
        pytest.skip(why)
    find_programs([*CLUSTER_PROGRAMS, *REAL_NODE_PROGRAMS, "helm"])
    image = manager_image()
    with ControlPlane() as plane:
        plane.start_controllers()
        plane.start_scheduler()
        fleet = plane.start_fake_fleet()
        fleet.add_nodes("us-west/gpu-a/nv-a", 16, prefix="gpu-a")
        fleet.add_nodes("us-west/gpu-a/nv-b", 16, prefix="gpu-a")
        plane.kubectl("label", "node", "gpu-a-07", "fabric.domain-")
        for namespace in sample_namespaces():
            plane.kubectl("create", "namespace", namespace)
            await_service_account(plane, namespace)
            add_claim(plane, namespace, "checkpoints")
        for folder in ("config", "deploy"):
            shutil.copytree(REPOSITORY / folder, tmp_path / folder)
        yield LiveSession(plane.start_real_nodes(1, gpus=0, images=[image]), tmp_path)


def add_claim(plane: ControlPlane, namespace: str, name: str) -> None:
    """Adds a volume and the claim for it that the Runs of the samples mount."""
    volume = f"{namespace}-{name}"
    shared = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    on_host = {"capacity": {"storage": "1Gi"}, "hostPath": {"path": "/var/lib/claims"}}
    claim = {"volumeName": volume, "resources": {"requests": {"storage": "1Gi"}}}
    for kind, metadata, spec in (
        ("PersistentVolume", {"name": volume}, {**shared, **on_host}),
        ("PersistentVolumeClaim", {"name": name, "namespace": namespace}, {**shared, **claim}),
    ):
        document = {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec}
        plane.kubectl("apply", "-f", "-", stdin=json.dumps(document))


def mask(line: str) -> str:
    return re.sub(r"\s+", " ", AGE.sub("<age>", TIME.sub("<time>", line))).strip()


def as_shown(step: Shown, printed: list[str]) -> bool:
    expected = tuple(line if line.strip() == ANY_LINES else mask(line) for line in step.printed)
    return agrees(expected, [mask(line) for line in printed])


def run_until_as_shown(session: LiveSession, step: Shown) -> list[str]:
    """Returns the output of a step. A command that only reads is repeated until the output is as shown."""
    printed = session.run(step.text)
    only_reads = re.match(
        r"kubectl (get|runs (state|leases|budgets|audit|topology|plan|reservations|explain)) ", step.text
    )
    deadline = time.monotonic() + OUTPUT_SECONDS
    while only_reads and not as_shown(step, printed) and time.monotonic() < deadline:
        printed = session.run(step.text)
    return printed


def failing_table_commands(session: LiveSession, text: str) -> list[tuple[str, list[str]]]:
    """Returns the commands in the tables of a page that fail, with their output."""
    commands = re.findall(r"\| `((?:kubectl|helm) [^`]*)` \|", text)
    without_filters = [
        command.partition(r" \|")[0] for command in commands
    ]  # the rest only filters the output
    concrete = [
        re.sub("|".join(EXAMPLES), lambda match: EXAMPLES[match[0]], command) for command in without_filters
    ]
    results = [(command, session.run(command)) for command in dict.fromkeys(concrete)]
    return [(command, printed) for command, printed in results if "[exit " in "".join(printed[-1:])]


@pytest.mark.parametrize("name", LIVE_GUIDES)
def test_live_guide_shows_the_real_output(
    name: str, session: LiveSession, request: pytest.FixtureRequest
) -> None:
    path = REPOSITORY / "docs" / name
    text = path.read_text(encoding="utf-8")
    wrong = []
    steps = list(shown(text, LIVE))
    step_after_tables = next(step for step in steps if step.text == STEP_AFTER_TABLES)
    for step in steps:
        if step is step_after_tables:
            assert failing_table_commands(session, text) == []
        if isinstance(step, Manifest):
            (session.directory / step.name).write_text(step.text, encoding="utf-8")
        elif not as_shown(step, printed := run_until_as_shown(session, step)):
            wrong.append((step, printed))
    if wrong and request.config.getoption("--rewrite"):
        path.write_text(rewritten(text, wrong), encoding="utf-8")
    elif wrong:
        pytest.fail("\n\n".join(complaint(path, *each) for each in wrong), pytrace=False)


@pytest.mark.parametrize(
    ("line", "same"),
    [
        ("runs since 2026-01-05T09:00:00Z (4m10s)", "runs since 2027-11-05T09:00:00.5Z (3s)"),
        ("NAME   AGE\n", "NAME AGE"),
        ("gpu-a-01   Ready   12s", "gpu-a-01 Ready 3m5s"),
    ],
)
def test_times_ages_and_spaces_are_mask(line: str, same: str) -> None:
    assert mask(line) == mask(same)
    assert mask(line) != mask(line.replace("gpu", "cpu").replace("NAME", "ROW").replace("runs", "ran"))
