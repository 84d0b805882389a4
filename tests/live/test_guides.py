r"""Guides for live clusters: their ```shell-session blocks, in order, on a cluster of their own.

- `kubectl …` and `kubectl runs …` are run; `> FILE` at the end keeps what they print.
- `kubectl runs …` waits, within limits, until it prints what the page shows: a live cluster takes its time.
- Commands in tables are run, and must succeed, when all is in full swing.
- `helm …` is run, and is told besides where this cluster's API server is and which of its nodes is real.

Times and ages are masked, and so is the width of columns. `--rewrite` writes what was printed into the page.
"""

import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.binaries import find_all
from tests.live.cluster import PROGRAMS, REAL_PROGRAMS
from tests.live.control_plane import ControlPlane
from tests.live.helm import helm, manager_image, site_values
from tests.live.managing import await_account
from tests.live.packages import why_no_real_nodes
from tests.live.real_nodes import RealNodes
from tests.live.samples import sample_namespaces
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

PATIENCE_SECONDS = 120
COMMAND_SECONDS = 180
EXAMPLES = {"RUN": "run-cofunded-128", "NODE": "gpu-a-01", "TIME": "2026-01-01"}
"""What stands in the guide's tables for something of the reader's own."""
IN_FULL_SWING = "kubectl runs audit"
"""The step before which the commands in tables are run: by then, all that they ask about is there."""
TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z|\b\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}")
AGE = re.compile(r"(?<=\s)\(?(\d+[dhms])+\)?(?=\s|$)")


class LiveSession:
    """A cluster whose nodes are there and on which nothing of Jobtree is, and a directory to work in."""

    def __init__(self, nodes: RealNodes, directory: Path) -> None:
        self.plane = nodes.plane
        self.directory = directory
        self._site = site_values(nodes)

    def run(self, command: str) -> list[str]:
        """What the command prints, with a last line ``[exit N]`` where it does not succeed."""
        words = shlex.split(command)
        assert words[0] in ("kubectl", "helm"), f"a live guide cannot say this: $ {command}"
        kept = words.pop() if words[-2:-1] == [">"] else None
        if kept:
            words.pop()
        done = self._call(words)
        if kept:
            (self.directory / kept).write_text(done.stdout)
        printed = ("" if kept else done.stdout) + done.stderr
        failed = [f"[exit {done.returncode}]"] if done.returncode else []
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
    find_all([*PROGRAMS, *REAL_PROGRAMS, "helm"])
    image = manager_image()
    with ControlPlane() as plane:
        plane.start_controllers()
        plane.start_scheduler()
        fleet = plane.kwok()
        fleet.add_nodes("us-west/gpu-a/nv-a", 16, prefix="gpu-a")
        fleet.add_nodes("us-west/gpu-a/nv-b", 16, prefix="gpu-a")
        plane.kubectl("label", "node", "gpu-a-07", "fabric.domain-")
        for namespace in sample_namespaces():
            plane.kubectl("create", "namespace", namespace)
            await_account(plane, namespace)
        for folder in ("config", "deploy"):
            shutil.copytree(REPOSITORY / folder, tmp_path / folder)
        yield LiveSession(plane.real_nodes(1, gpus=0, images=[image]), tmp_path)


def masked(line: str) -> str:
    return re.sub(r"\s+", " ", AGE.sub("<age>", TIME.sub("<time>", line))).strip()


def as_shown(step: Shown, printed: list[str]) -> bool:
    expected = tuple(line if line.strip() == ANY_LINES else masked(line) for line in step.printed)
    return agrees(expected, [masked(line) for line in printed])


def patiently(session: LiveSession, step: Shown) -> list[str]:
    """What a command prints, asked again while that is not yet what is shown and asking changes nothing."""
    printed = session.run(step.text)
    asks = re.match(
        r"kubectl (get|runs (state|leases|budgets|audit|topology|plan|reservations|explain)) ", step.text
    )
    until = time.monotonic() + PATIENCE_SECONDS
    while asks and not as_shown(step, printed) and time.monotonic() < until:
        printed = session.run(step.text)
    return printed


def failing_in_tables(session: LiveSession, text: str) -> list[tuple[str, list[str]]]:
    """The commands in the tables of a page that fail, for a Run and a node that are there."""
    commands = re.findall(r"\| `((?:kubectl|helm) [^`]*)` \|", text)
    alone = [command.partition(r" \|")[0] for command in commands]  # what follows only sifts the output
    given = [re.sub("|".join(EXAMPLES), lambda found: EXAMPLES[found[0]], one) for one in alone]
    done = [(command, session.run(command)) for command in dict.fromkeys(given)]
    return [(command, printed) for command, printed in done if "[exit " in "".join(printed[-1:])]


@pytest.mark.parametrize("name", LIVE_GUIDES)
def test_a_live_guide_shows_what_happens(
    name: str, session: LiveSession, request: pytest.FixtureRequest
) -> None:
    path = REPOSITORY / "docs" / name
    text = path.read_text(encoding="utf-8")
    wrong = []
    steps = list(shown(text, LIVE))
    in_full_swing = next(step for step in steps if step.text == IN_FULL_SWING)
    for step in steps:
        if step is in_full_swing:
            assert failing_in_tables(session, text) == []
        if isinstance(step, Manifest):
            (session.directory / step.name).write_text(step.text, encoding="utf-8")
        elif not as_shown(step, printed := patiently(session, step)):
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
def test_what_is_masked(line: str, same: str) -> None:
    assert masked(line) == masked(same)
    assert masked(line) != masked(line.replace("gpu", "cpu").replace("NAME", "ROW").replace("runs", "ran"))
