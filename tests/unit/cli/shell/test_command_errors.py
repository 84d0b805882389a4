"""The exit codes that --help lists, and error messages that say what to do."""

import errno
import os
import subprocess
import sys

import pytest

from jobtree.cli.shell import options
from jobtree.cli.shell.command_errors import MEANINGS
from tests.unit.cli.cli_runner import CliRunner
from tests.unit.cli.manifests import run


def test_help_lists_every_exit_code(cli: CliRunner) -> None:
    text = cli.without_state("--help").out
    for code, meaning in MEANINGS.items():
        assert str(int(code)) in text
        assert meaning.split()[0] in text


def test_plan_exits_1_when_a_run_would_wait(cli: CliRunner) -> None:
    assert cli.runs("plan", "-f", cli.write_file("one.yaml", run("small", 8))).code == 0
    assert cli.runs("plan", "-f", cli.write_file("two.yaml", run("large", 16))).code == 1
    assert cli.runs("plan", "-f", cli.write_file("both.yaml", run("small", 8), run("large", 16))).code == 1


def test_submit_exits_0_when_the_run_waits(cli: CliRunner) -> None:
    assert cli.submit(run("large", 16)).code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["state"], "--state FILE"),
        (["state"], "kubectl runs init"),
        (["no-such-verb"], "there is no verb no-such-verb"),
        (["stat"], "did you mean state?"),
        (["state", "--no-such-option"], "'kubectl runs state --help' shows how to use it"),
        (["--output", "xml", "state"], "xml"),
        (["plan"], "give either a Run or -f FILE"),
        (["plan", "train", "-f", "run.yaml"], "give either a Run or -f FILE"),
        (["leases"], "give either a Run or --owner OWNER"),
        (["advance"], "give either a duration such as 30m or --to TIME"),
        (["advance", "1h", "--to", "2026-01-05T09:00:00Z"], "give either a duration"),
        (["submit"], "-f"),
        (["cancel"], "RUN"),
        (["completion", "tcsh"], "tcsh"),
    ],
)
def test_command_exits_2_when_its_arguments_are_wrong(cli: CliRunner, words: list[str], message: str) -> None:
    answer = cli.without_state(*words)
    assert answer.code == 2
    assert message in answer.err + answer.out
    assert answer.err.startswith("error:") or "Usage:" in answer.out + answer.err


@pytest.mark.parametrize("duration", ["30", "1.5h", "", "h", "-5m", "tomorrow", "9999999d"])
def test_advance_exits_2_when_the_duration_is_invalid(cli: CliRunner, duration: str) -> None:
    answer = cli.runs("advance", "--", duration)
    assert (answer.code, answer.out) == (2, "")
    assert "is not a duration such as 30m" in answer.err


@pytest.mark.parametrize(
    ("time", "message"),
    [
        ("2026-01-05T08:59:59Z", "and cannot move back"),
        ("noon", "is not an RFC 3339 time"),
        ("2026-02-30T00:00:00Z", "is not an RFC 3339 time"),
    ],
)
def test_advance_exits_2_when_the_time_is_invalid(cli: CliRunner, time: str, message: str) -> None:
    answer = cli.runs("advance", "--to", time)
    assert answer.code == 2
    assert message in answer.err


def test_clock_stops_before_times_that_the_state_file_cannot_hold(cli: CliRunner) -> None:
    assert cli.runs("advance", "--to", "2999-12-30T00:00:00Z").code == 0
    assert "the clock cannot move past" in cli.runs("advance", "99999d").err
    assert cli.runs("state").code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["plan", "trian"], "there is no Run trian: did you mean train?"),
        (["explain", "elsewhere/train"], "there is no Run elsewhere/train: did you mean default/train?"),
        (["-n", "elsewhere", "cancel", "train"], "there is no Run train"),
        (["watch", "nothing-like-it"], "'kubectl runs state --all' lists all Runs"),
        (["fail", "a1"], "there is no node a1: did you mean a01?"),
        (["heal", "zzz"], "the cluster has a01 and a02"),
        (["submit", "-f", "missing.yaml"], "there is no file missing.yaml"),
        (["--state", "missing.yaml", "state"], "'kubectl runs init missing.yaml' writes one"),
        (["--state", "missing.yaml", "advance", "1h"], "'kubectl runs init missing.yaml' writes one"),
    ],
)
def test_command_exits_3_when_an_object_or_file_does_not_exist(
    cli: CliRunner, words: list[str], message: str
) -> None:
    cli.submit(run("train"))
    answer = cli.runs(*words)
    assert (answer.code, answer.out) == (3, "")
    assert answer.err.startswith("error: ")
    assert message in answer.err


def test_advance_creates_no_file_when_the_state_file_is_missing(cli: CliRunner) -> None:
    cli.without_state("--state", "missing.yaml", "advance", "1h")
    assert not list(cli.directory.glob("missing*"))


def test_command_exits_4_when_objects_exist_or_the_phase_is_wrong(cli: CliRunner) -> None:
    assert cli.submit(run("train")).code == 0
    again = cli.submit(run("train"))
    assert (again.code, again.out) == (4, "")
    assert again.err == "error: Run default/train already exists: choose another name, or add --replace\n"
    assert cli.runs("init", str(cli.state)).code == 4
    waiting = cli.submit(run("next"))
    assert "waits" in waiting.out
    assert cli.runs("complete", "next").code == 4
    assert cli.runs("complete", "train").code == 0
    assert "it is finished" in cli.runs("complete", "train").err


def test_state_exits_70_when_an_invariant_is_broken(cli: CliRunner) -> None:
    cli.submit(run("train"))
    cli.duplicate_lease("train")
    answer = cli.runs("state")
    assert (answer.code, answer.out) == (70, "")
    assert "please report it" in answer.err
    assert str(cli.state) in answer.err
    assert "I1" in answer.err
    checked = cli.runs("check")
    assert checked.code == 1
    assert "I1: slot a01#0 is under another-1 and" in checked.out


def test_bug_exits_70_and_prints_the_traceback(cli: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options.CommandOptions, "state_path", property(lambda _: 1 / 0))
    answer = cli.runs("state")
    assert answer.code == 70
    assert "ZeroDivisionError" in answer.err
    assert "this is a bug in Jobtree" in answer.err


def test_submit_exits_74_and_keeps_the_file_when_the_disk_is_full(
    cli: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = cli.state.read_bytes()
    monkeypatch.setattr(os, "fsync", no_space)
    answer = cli.submit(run("train"))
    assert (answer.code, answer.out) == (74, "")
    assert "No space left on device" in answer.err
    assert "stays as it was" in answer.err
    assert cli.state.read_bytes() == before
    assert sorted(path.name for path in cli.directory.iterdir()) == [
        "cluster.yaml",
        "cluster.yaml.lock",
        "submitted.yaml",
    ]


def test_state_exits_74_when_the_state_file_is_a_directory(cli: CliRunner) -> None:
    assert cli.without_state("--state", str(cli.directory), "state").code == 74


def test_plan_exits_2_when_a_name_is_ambiguous(cli: CliRunner) -> None:
    cli.submit(run("train", namespace="one"), run("train", namespace="two"))
    answer = cli.runs("plan", "train")
    assert answer.code == 2
    assert "choose one of one/train and two/train" in answer.err
    assert cli.runs("plan", "one/train").code == 0
    assert cli.runs("-n", "one", "plan", "train").code == 0
    assert cli.runs("plan", "run.rq.davidlangworthy.io/one/train").code == 0


def test_help_exits_0_when_the_pipe_is_closed_early() -> None:
    command = f"set -o pipefail; {sys.executable} -m jobtree.cli.main --help | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
