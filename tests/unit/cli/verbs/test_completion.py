"""Completion of verbs, options and names, for shells and for kubectl."""

import os
import shutil
import subprocess
from unittest.mock import patch

import pytest

from tests.unit.cli.cli_runner import CliRunner
from tests.unit.cli.manifests import budget, envelope, nodes, run


def candidates(cli: CliRunner, *words: str) -> list[str]:
    """Returns the completions that kubectl would get, without their descriptions."""
    *lines, directive = cli.without_state("__complete", *words).out.splitlines()
    assert directive in (":0", ":4")
    return [line.partition("\t")[0] for line in lines]


def test_verbs_are_completed_with_their_summaries(cli: CliRunner) -> None:
    assert candidates(cli, "co") == ["complete", "completion"]
    assert (
        cli.without_state("__complete", "wat").out
        == "watch\tFollow a Run: print a line for every change.\n:4\n"
    )
    assert candidates(cli, "budgets", "") == ["usage"]


def test_options_of_the_verb_and_common_options_are_completed(cli: CliRunner) -> None:
    assert candidates(cli, "advance", "--") == [
        "--to",
        "--faults",
        "--fault-rate",
        "--archive",
        "--state",
        "--context",
        "--kubeconfig",
        "--namespace",
        "--output",
        "--no-color",
        "--help",
    ]
    assert candidates(cli, "state", "-o", "j") == ["json"]


def test_names_are_completed_from_the_state_file(cli: CliRunner) -> None:
    cli.write_cluster(
        *nodes(3),
        budget("lab", envelope()),
        run("train"),
        run("tune", namespace="one"),
        run("eval", namespace="one"),
        run("eval", namespace="other"),
    )
    state = str(cli.state)
    assert candidates(cli, "--state", state, "plan", "t") == ["train", "tune"]
    assert candidates(cli, "--state", state, "cancel", "train", "e") == []
    assert candidates(cli, "--state", state, "explain", "") == ["train", "one/eval", "tune", "other/eval"]
    assert candidates(cli, "--state", state, "explain", "one/") == ["one/eval", "one/tune"]
    assert candidates(cli, "--state", state, "-n", "other", "watch", "") == ["eval"]
    assert candidates(cli, "--state", state, "fail", "a0") == ["a01", "a02", "a03"]


def test_no_names_are_completed_when_the_state_file_cannot_be_read(cli: CliRunner) -> None:
    cli.state.write_text("{")
    assert candidates(cli, "--state", str(cli.state), "plan", "") == []
    assert candidates(cli, "--state", "missing.yaml", "plan", "") == []
    assert candidates(cli, "plan", "") == []


def test_file_names_are_left_to_the_shell(cli: CliRunner) -> None:
    assert cli.without_state("__complete", "submit", "-f", "").out == ":0\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_each_shell(cli: CliRunner, shell: str) -> None:
    script = cli.without_state("completion", shell)
    assert script.code == 0
    assert "kubectl-runs" in script.out
    assert f"_KUBECTL_RUNS_COMPLETE={shell}_complete" in script.out


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
def test_bash_script_is_valid_and_calls_the_program(cli: CliRunner) -> None:
    cli.write_cluster(*nodes(1), budget("lab", envelope()), run("train"))
    script = cli.without_state("completion", "bash").out
    checked = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    variables = {"_KUBECTL_RUNS_COMPLETE": "bash_complete", "COMP_CWORD": "4"}
    variables["COMP_WORDS"] = f"kubectl-runs --state {cli.state} plan tr"
    with patch.dict(os.environ, variables):
        assert cli.without_state().out == "plain,train\n"
