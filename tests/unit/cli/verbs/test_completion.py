"""Completion of verbs, options and names, as the shells and kubectl itself ask for it."""

import os
import shutil
import subprocess
from unittest.mock import patch

import pytest

from tests.unit.cli.desk import Desk, budget, envelope, nodes, run


def candidates(desk: Desk, *words: str) -> list[str]:
    """What kubectl would be told, without the descriptions."""
    *lines, directive = desk.bare("__complete", *words).out.splitlines()
    assert directive in (":0", ":4")
    return [line.partition("\t")[0] for line in lines]


def test_verbs_and_what_they_do(desk: Desk) -> None:
    assert candidates(desk, "co") == ["complete", "completion"]
    assert desk.bare("__complete", "wat").out == "watch\tFollow a Run: print a line for every change.\n:4\n"
    assert candidates(desk, "budgets", "") == ["usage"]


def test_options_of_the_verb_and_of_all(desk: Desk) -> None:
    assert candidates(desk, "advance", "--") == [
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
    assert candidates(desk, "state", "-o", "j") == ["json"]


def test_names_come_from_the_state_file(desk: Desk) -> None:
    desk.cluster(
        *nodes(3),
        budget("lab", envelope()),
        run("train"),
        run("tune", namespace="one"),
        run("eval", namespace="one"),
        run("eval", namespace="other"),
    )
    state = str(desk.state)
    assert candidates(desk, "--state", state, "plan", "t") == ["train", "tune"]
    assert candidates(desk, "--state", state, "cancel", "train", "e") == []
    assert candidates(desk, "--state", state, "explain", "") == ["train", "one/eval", "tune", "other/eval"]
    assert candidates(desk, "--state", state, "explain", "one/") == ["one/eval", "one/tune"]
    assert candidates(desk, "--state", state, "-n", "other", "watch", "") == ["eval"]
    assert candidates(desk, "--state", state, "fail", "a0") == ["a01", "a02", "a03"]


def test_what_cannot_be_read_completes_nothing(desk: Desk) -> None:
    desk.state.write_text("{")
    assert candidates(desk, "--state", str(desk.state), "plan", "") == []
    assert candidates(desk, "--state", "missing.yaml", "plan", "") == []
    assert candidates(desk, "plan", "") == []


def test_files_are_left_to_the_shell(desk: Desk) -> None:
    assert desk.bare("__complete", "submit", "-f", "").out == ":0\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell(desk: Desk, shell: str) -> None:
    script = desk.bare("completion", shell)
    assert script.code == 0
    assert "kubectl-runs" in script.out
    assert f"_KUBECTL_RUNS_COMPLETE={shell}_complete" in script.out


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
def test_bash_accepts_its_script_and_asks_the_program(desk: Desk) -> None:
    desk.cluster(*nodes(1), budget("lab", envelope()), run("train"))
    script = desk.bare("completion", "bash").out
    checked = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    asked = {"_KUBECTL_RUNS_COMPLETE": "bash_complete", "COMP_CWORD": "4"}
    asked["COMP_WORDS"] = f"kubectl-runs --state {desk.state} plan tr"
    with patch.dict(os.environ, asked):
        assert desk.bare().out == "plain,train\n"
