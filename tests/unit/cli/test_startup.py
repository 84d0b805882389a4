"""Commands load only the modules that they need, so that a kubectl plugin starts without delay."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobtree.cli.shell.root_command import SUMMARIES
from tests.unit.cli.fake_cluster import as_served, fake_cluster
from tests.unit.cli.manifests import nodes, run

SLOW = {"rich", "yaml", "cryptography", "msgspec", "jobtree.core", "jobtree.snapshot", "asyncio", "http"}
PROBE = """
import sys
from jobtree.cli.main import main
code = main(sys.argv[1:])
print("loaded:", *sys.modules, file=sys.stderr)
sys.exit(code)
"""


def loaded_by(*words: str, check: bool = True, **environment: str) -> set[str]:
    """Returns the modules that a new process has loaded when the command is done."""
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
def test_help_completion_and_version_load_no_slow_module(words: list[str]) -> None:
    assert loaded_by(*words) & SLOW == set()


def test_help_loads_no_verb_module() -> None:
    verbs = {f"jobtree.cli.{name}" for name in SUMMARIES}
    assert loaded_by("--help") & verbs == set()
    assert loaded_by("__complete", "pl") & verbs <= {"jobtree.cli.verbs.completion"}


def test_completion_of_names_loads_no_slow_module(tmp_path: Path) -> None:
    state = tmp_path / "cluster.yaml"
    state.write_text('{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a01"}}')
    assert loaded_by("__complete", "fail", "", JOBTREE_STATE=str(state)) & SLOW == set()


def test_tables_are_printed_without_rich(tmp_path: Path) -> None:
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
def test_verbs_on_a_live_cluster_load_no_module_of_the_manager(words: list[str], tmp_path: Path) -> None:
    bodies = [as_served(body) for body in (*nodes(1), run("train"))]
    bodies[-1]["status"] = {"phase": "Running"}
    with fake_cluster(tmp_path, *bodies):
        loaded = loaded_by(*words, "--kubeconfig", str(tmp_path / "config"), check=False)
    assert (
        loaded & {"aiohttp", "asyncio", "prometheus_client", "cryptography", "rich", "jobtree.manager"}
        == set()
    )


def test_completion_of_live_names_loads_no_core(tmp_path: Path) -> None:
    with fake_cluster(tmp_path, as_served(run("train"))):
        loaded = loaded_by("__complete", "plan", "--kubeconfig", str(tmp_path / "config"), "tr")
    assert loaded & {"aiohttp", "asyncio", "jobtree.core", "jobtree.snapshot", "rich"} == set()


@pytest.mark.parametrize("verb", SUMMARIES)
def test_every_verb_has_help_with_examples(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    from jobtree.cli.main import main  # noqa: PLC0415  other tests of this module check what an import loads

    assert main([verb, "--help"]) == 0
    text = capsys.readouterr().out
    assert "Examples:" in text
    assert any(f"kubectl runs {state}{verb}" in text for state in ("", "--state cluster.yaml "))
    assert "Options of every verb:" in text
