"""Commands load only the modules that they need, so that a kubectl plugin starts without delay."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from jobtree.cli.shell.root_command import SUMMARIES
from tests.unit.cli.fake_cluster import as_served, fake_cluster
from tests.unit.cli.manifests import nodes, run

SLOW_MODULES = {
    "rich",
    "yaml",
    "cryptography",
    "msgspec",
    "jobtree.core",
    "jobtree.snapshot",
    "asyncio",
    "http",
}
PROBE = """
import shlex, sys
from jobtree.cli.main import main
code = 0
for command in sys.argv[1:]:
    code |= main(shlex.split(command))
    print("loaded:", *sys.modules, file=sys.stderr)
sys.exit(code)
"""


def loaded_by(*words: str, **environment: str) -> set[str]:
    """Returns the modules that a new process has loaded when the command is done."""
    process, (modules,) = loaded_after_each([shlex.join(words)], **environment)
    process.check_returncode()
    return modules


def loaded_after_each(
    commands: list[str], **environment: str
) -> tuple[subprocess.CompletedProcess[str], list[set[str]]]:
    """Runs the commands in one new process; returns it, and the modules loaded after each command."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("JOBTREE")}
    process = subprocess.run(
        [sys.executable, "-c", PROBE, *commands],
        capture_output=True,
        text=True,
        check=False,
        env={**inherited, **environment},
    )
    lines = [line for line in process.stderr.splitlines() if line.startswith("loaded:")]
    return process, [set(line.split()) for line in lines]


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
    assert loaded_by(*words) & SLOW_MODULES == set()


def test_help_loads_no_verb_module() -> None:
    verbs = {f"jobtree.cli.{name}" for name in SUMMARIES}
    assert loaded_by("--help") & verbs == set()
    assert loaded_by("__complete", "pl") & verbs <= {"jobtree.cli.verbs.completion"}


def test_completion_of_names_loads_no_slow_module(tmp_path: Path) -> None:
    state = tmp_path / "cluster.yaml"
    state.write_text('{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a01"}}')
    assert loaded_by("__complete", "fail", "", JOBTREE_STATE=str(state)) & SLOW_MODULES == set()


def test_tables_are_printed_without_rich(tmp_path: Path) -> None:
    state = tmp_path / "cluster.yaml"
    assert "rich" not in loaded_by("init", str(state))
    assert "rich" not in loaded_by("--state", str(state), "state")


def test_verbs_on_a_live_cluster_load_no_module_of_the_manager(tmp_path: Path) -> None:
    bodies = [as_served(body) for body in (*nodes(1), run("train"))]
    bodies[-1]["status"] = {"phase": "Running"}
    kubeconfig = shlex.quote(str(tmp_path / "config"))
    commands = ["state", "plan train", "topology", "snapshot", "pods train", "watch train --once"]
    with fake_cluster(tmp_path, *bodies):
        _, loaded = loaded_after_each([f"{command} --kubeconfig {kubeconfig}" for command in commands])
    unwanted = {"aiohttp", "asyncio", "prometheus_client", "cryptography", "rich", "jobtree.manager"}
    assert [modules & unwanted for modules in loaded] == [set()] * len(commands)


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
