"""The demo prints what its story says, and its suggestions work."""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest

from jobtree.cli import demo

INTERNS = "warning: spec.owner: org:ai:interns: has no Budget, so the Budget of org:ai pays\n"
ODDS = "odds of being stopped speech/asr-large 0.667 vision/clip-large 0.333"
SCENES = [
    # Four envelopes, and nothing used.
    ("budgets usage", ["ai/reserve 0 8", "speech/day 0 24 0 96", "vision/own 0 32"]),
    ("submit -f notebook.yaml", ["interns/notebook 8 GPUs nv-a paid by ai/reserve (Shared 8)"]),
    # Groups of one node each in both domains, each with one payer.
    ("submit -f asr-large.yaml", ["40 GPUs nv-a (a02-a04), nv-b (b01-b02)"]),
    ("leases asr-large", ["0 Owned 8 a02#0-7 speech/day Start", "4 Borrowed 8 b02#0-7 vision/own Start"]),
    # Recall and demotion.
    ("submit -f release-eval.yaml", ["ai/reserve (Owned 8)", "Demoted interns/notebook"]),
    ("leases notebook", ["a01#0-7 ai/reserve Start Recalled", "Opportunistic a01#0-7 ai/reserve Demote"]),
    ("state --all", ["interns/notebook Running 8/8 Opportunistic 8 Demoted"]),
    # Opportunistic work ends for funded work.
    ("submit -f clip.yaml", ["16 GPUs vision/own (Owned 16)", "Reclaimed interns/notebook"]),
    ("plan notebook", ["ConcurrencyExhausted (have 0, need 8)", "NoFreeSlots (have 0, need 8)"]),
    ("complete release-eval", ["Completed ai/release-eval", "Admitted interns/notebook 8 GPUs ai/reserve"]),
    ("state --all", ["interns/notebook Running 8/8 Shared 8"]),
    # 24 GPUs × 4 h = 96 GPU-hours, and no more.
    ("advance --to 2026-01-05T13:00:00Z", ["2026-01-05T13:00:00Z Demoted speech/asr-large"]),
    ("budgets usage --owner org:ai:speech", ["speech/day 0 0 96 0 GPU-hours used or committed"]),
    ("explain asr-large", ["2026-01-05T13:00:00Z BudgetExhausted -24", "Owned speech/day 96 GPU-hours"]),
    ("submit -f clip-large.yaml", ["vision/clip-large runs 16 GPUs vision/own (Owned 16)"]),
    # A payer has budget again.
    ("advance --to 2026-01-05T18:00:00Z", ["2026-01-05T18:00:00Z Repaid speech/asr-large speech/evening"]),
    ("state --all", ["speech/asr-large Running 40/40 Owned 24, Borrowed 16", "vision/clip Completed"]),
    ("budgets usage", ["ai/reserve 8 0 72", "speech/day 96 0", "speech/evening 24 0", "vision/own 32 224"]),
    # A promised start, with kill probabilities, and a draw that can be checked. The loser depends on the key.
    ("submit -f grasp.yaml", ["earliestStart 2026-01-05T19:30:00Z", "deficit 8 GPUs", ODDS]),
    ("explain clip-large", ["2026-01-05T19:30:00Z grasp-1 stopped with probability 0.333"]),
    ("timeline", ["speech/asr-large 16", "robots/grasp-1 16"]),
    (
        "advance --to 2026-01-05T19:30:00Z",
        ["RandomPreempt lottery of reservation grasp-1", "Admitted robots/grasp"],
    ),
    (
        "explain grasp --verify",
        ["tickets speech/asr-large 16 vision/clip-large 8 24", "accepted robots/grasp-1"],
    ),
    ("state", ["robots/grasp Running 16/16 Owned 16 nv-b"]),
    ("check", ["OK: all invariants hold"]),
]


class DemoOutput(NamedTuple):
    directory: Path
    text: str

    @property
    def outputs(self) -> list[tuple[str, list[str]]]:
        """Returns every command, and the lines that follow it."""
        _, *scenes = self.text.split(demo.PROMPT)
        return [(lines[0], lines[1:]) for lines in map(str.splitlines, scenes)]

    @property
    def suggestions(self) -> list[str]:
        """Returns the commands that the demo suggests at the end."""
        _, _, farewell = self.text.partition("Try next:")
        return [line.strip() for line in farewell.splitlines() if "kubectl-runs" in line]


@pytest.fixture(name="output", scope="module")
def _output(tmp_path_factory: pytest.TempPathFactory) -> DemoOutput:
    """The demo as ``make demo`` runs it, in an empty directory."""
    directory = tmp_path_factory.mktemp("demo")
    process = start([sys.executable, "-m", "jobtree.cli.demo"], directory)
    assert (process.returncode, process.stderr) == (0, INTERNS)
    return DemoOutput(directory, process.stdout)


def start(command: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "COLUMNS": "120",
        "NO_COLOR": "1",
        "PYTHONUTF8": "1",
        "HOME": str(directory),
    }
    for name in ("JOBTREE_STATE", "JOBTREE_LOTTERY_KEY", "XDG_CONFIG_HOME"):
        environment.pop(name, None)
    return subprocess.run(
        command,
        cwd=directory,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


def says(lines: list[str], claim: str) -> bool:
    """Whether a line has the words of the claim, in this order."""

    def in_order(line: str) -> bool:
        rest = iter(re.split(r"[\s,:]+", line))
        return all(word in rest for word in re.split(r"[\s,:]+", claim))

    return any(in_order(line) for line in lines)


def test_demo_prints_the_figures_of_its_story(output: DemoOutput) -> None:
    shown = [(command, lines) for command, lines in output.outputs if command in dict(SCENES)]
    assert [command for command, _ in shown] == [command for command, _ in SCENES]
    for (command, lines), (_, claims) in zip(shown, SCENES, strict=True):
        for claim in claims:
            assert says(lines, claim), f"{command} does not say: {claim}\n" + "\n".join(lines)


def test_commands_that_the_demo_suggests_work(output: DemoOutput) -> None:
    state, plan, advance = (start(shlex.split(line), output.directory) for line in output.suggestions)
    assert says(state.stdout.splitlines(), "robots/grasp Running 16/16"), state.stderr
    assert says(plan.stdout.splitlines(), "ConcurrencyExhausted (have 8, need 16)"), plan.stderr
    assert says(advance.stdout.splitlines(), "2026-01-05T21:30:00Z Completed robots/grasp"), advance.stderr


def test_demo_leaves_the_state_file_where_it_says(output: DemoOutput) -> None:
    assert f"{Path('build', 'demo')}/{demo.STATE}" in output.text
    assert (output.directory / "build" / "demo" / demo.STATE).is_file()


def test_demo_prints_the_same_again_and_restores_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))  # the lottery key is made there
    before = dict(os.environ)
    assert demo.main() == 0
    first = capsys.readouterr().out
    assert demo.main() == 0
    assert capsys.readouterr().out == first
    assert (Path.cwd(), dict(os.environ)) == (tmp_path, before)


def test_demo_uses_a_temporary_directory_when_it_cannot_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "build").write_text("a file, not a directory")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert demo.demo_directory().parent == tmp_path


def test_demo_ends_when_a_command_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "kubectl_runs", lambda _: 70)
    assert demo.main() == 70
    assert "Try next" not in capsys.readouterr().out
