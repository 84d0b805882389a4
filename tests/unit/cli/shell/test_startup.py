"""A kubectl plugin must answer at once: help and completion load nothing that they do not need."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobtree.cli.shell.root_command import SUMMARIES
from tests.unit.cli.desk import nodes, run
from tests.unit.cli.fakecluster import cluster, served

SLOW = {"rich", "yaml", "cryptography", "msgspec", "jobtree.core", "jobtree.snapshot", "asyncio", "http"}
PROBE = """
import sys
from jobtree.cli.main import main
code = main(sys.argv[1:])
print("loaded:", *sys.modules, file=sys.stderr)
sys.exit(code)
"""


def loaded_by(*words: str, check: bool = True, **environment: str) -> set[str]:
    """The modules that a fresh process has loaded when the command is done."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("JOBTREE")}
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *words],
        capture_output=True,
        text=True,
        check=check,
        env={**kept, **environment},
    )
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("loaded:"))
    return set(line.split())


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["plan", "--help"],
        ["budgets", "usage", "--help"],
        ["completion", "bash"],
        ["version"],
        ["__complete", ""],
        ["__complete", "plan", "--"],
    ],
)
def test_what_needs_no_cluster_loads_none(words: list[str]) -> None:
    assert loaded_by(*words) & SLOW == set()


def test_help_loads_no_verb() -> None:
    verbs = {f"jobtree.cli.{name}" for name in SUMMARIES}
    assert loaded_by("--help") & verbs == set()
    assert loaded_by("__complete", "pl") & verbs <= {"jobtree.cli.verbs.completion"}


def test_names_are_completed_without_the_core(tmp_path: Path) -> None:
    state = tmp_path / "cluster.yaml"
    state.write_text('{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a01"}}')
    assert loaded_by("__complete", "fail", "", JOBTREE_STATE=str(state)) & SLOW == set()


def test_tables_are_drawn_without_rich(tmp_path: Path) -> None:
    state = tmp_path / "cluster.yaml"
    assert "rich" not in loaded_by("init", str(state))
    assert "rich" not in loaded_by("--state", str(state), "state")


@pytest.mark.parametrize(
    "words",
    [
        ["state"],
        ["plan", "train"],
        ["topology"],
        ["snapshot"],
        ["pods", "train"],
        ["watch", "train", "--once"],
    ],
)
def test_a_live_cluster_is_asked_without_what_only_the_manager_needs(
    words: list[str], tmp_path: Path
) -> None:
    bodies = [served(body) for body in (*nodes(1), run("train"))]
    bodies[-1]["status"] = {"phase": "Running"}
    with cluster(tmp_path, *bodies):
        found = loaded_by(*words, "--kubeconfig", str(tmp_path / "config"), check=False)
    assert (
        found & {"aiohttp", "asyncio", "prometheus_client", "cryptography", "rich", "jobtree.manager"}
        == set()
    )


def test_live_names_are_completed_without_the_core(tmp_path: Path) -> None:
    with cluster(tmp_path, served(run("train"))):
        found = loaded_by("__complete", "plan", "--kubeconfig", str(tmp_path / "config"), "tr")
    assert found & {"aiohttp", "asyncio", "jobtree.core", "jobtree.snapshot", "rich"} == set()


@pytest.mark.parametrize("verb", SUMMARIES)
def test_every_verb_has_help_with_examples(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    from jobtree.cli.main import main  # noqa: PLC0415  what is tested here is how it is loaded

    assert main([verb, "--help"]) == 0
    text = capsys.readouterr().out
    assert "Examples:" in text
    assert any(f"kubectl runs {state}{verb}" in text for state in ("", "--state cluster.yaml "))
    assert "Options of every verb:" in text
