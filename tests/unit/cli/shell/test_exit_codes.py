"""Every exit code that --help lists, and errors that say what to do next."""

import errno
import os
import subprocess
import sys

import pytest

from jobtree.cli.shell import options
from jobtree.cli.shell.command_errors import MEANINGS
from tests.unit.cli.desk import Desk, run


def test_help_lists_every_exit_code(desk: Desk) -> None:
    text = desk.bare("--help").out
    for code, meaning in MEANINGS.items():
        assert str(int(code)) in text
        assert meaning.split()[0] in text


def test_a_plan_that_starts_is_0_and_one_that_waits_is_1(desk: Desk) -> None:
    assert desk.runs("plan", "-f", desk.file("one.yaml", run("small", 8))).code == 0
    assert desk.runs("plan", "-f", desk.file("two.yaml", run("large", 16))).code == 1
    assert desk.runs("plan", "-f", desk.file("both.yaml", run("small", 8), run("large", 16))).code == 1


def test_a_submitted_run_that_waits_is_no_error(desk: Desk) -> None:
    assert desk.submit(run("large", 16)).code == 0


@pytest.mark.parametrize(
    ("words", "said"),
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
def test_a_mistake_in_the_command_is_2(desk: Desk, words: list[str], said: str) -> None:
    answer = desk.bare(*words)
    assert answer.code == 2
    assert said in answer.err + answer.out
    assert answer.err.startswith("error:") or "Usage:" in answer.out + answer.err


@pytest.mark.parametrize("duration", ["30", "1.5h", "", "h", "-5m", "tomorrow", "9999999d"])
def test_a_bad_duration_is_2(desk: Desk, duration: str) -> None:
    answer = desk.runs("advance", "--", duration)
    assert (answer.code, answer.out) == (2, "")
    assert "is not a duration such as 30m" in answer.err


@pytest.mark.parametrize(
    ("time", "said"),
    [
        ("2026-01-05T08:59:59Z", "and cannot move back"),
        ("noon", "is not an RFC 3339 time"),
        ("2026-02-30T00:00:00Z", "is not an RFC 3339 time"),
    ],
)
def test_a_bad_instant_is_2(desk: Desk, time: str, said: str) -> None:
    answer = desk.runs("advance", "--to", time)
    assert answer.code == 2
    assert said in answer.err


def test_the_clock_has_an_end_that_every_file_can_hold(desk: Desk) -> None:
    assert desk.runs("advance", "--to", "2999-12-30T00:00:00Z").code == 0
    assert "the clock cannot move past" in desk.runs("advance", "99999d").err
    assert desk.runs("state").code == 0


@pytest.mark.parametrize(
    ("words", "said"),
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
def test_what_is_not_there_is_3(desk: Desk, words: list[str], said: str) -> None:
    desk.submit(run("train"))
    answer = desk.runs(*words)
    assert (answer.code, answer.out) == (3, "")
    assert answer.err.startswith("error: ")
    assert said in answer.err


def test_a_missing_state_file_leaves_nothing_behind(desk: Desk) -> None:
    desk.bare("--state", "missing.yaml", "advance", "1h")
    assert not list(desk.directory.glob("missing*"))


def test_conflicts_are_4(desk: Desk) -> None:
    assert desk.submit(run("train")).code == 0
    again = desk.submit(run("train"))
    assert (again.code, again.out) == (4, "")
    assert again.err == "error: Run default/train already exists: choose another name, or add --replace\n"
    assert desk.runs("init", str(desk.state)).code == 4
    waiting = desk.submit(run("next"))
    assert "waits" in waiting.out
    assert desk.runs("complete", "next").code == 4
    assert desk.runs("complete", "train").code == 0
    assert "it is finished" in desk.runs("complete", "train").err


def test_a_broken_invariant_is_70_and_asks_for_a_report(desk: Desk) -> None:
    desk.submit(run("train"))
    desk.double_lease("train")
    answer = desk.runs("state")
    assert (answer.code, answer.out) == (70, "")
    assert "please report it" in answer.err
    assert str(desk.state) in answer.err
    assert "I1" in answer.err
    checked = desk.runs("check")
    assert checked.code == 1
    assert "I1: slot a01#0 is under another-1 and" in checked.out


def test_a_bug_is_70_with_the_traceback(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options.CommandOptions, "state_path", property(lambda _: 1 / 0))
    answer = desk.runs("state")
    assert answer.code == 70
    assert "ZeroDivisionError" in answer.err
    assert "this is a bug in Jobtree" in answer.err


def test_a_full_disk_is_74_and_the_file_stays(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = desk.state.read_bytes()
    monkeypatch.setattr(os, "fsync", no_space)
    answer = desk.submit(run("train"))
    assert (answer.code, answer.out) == (74, "")
    assert "No space left on device" in answer.err
    assert "stays as it was" in answer.err
    assert desk.state.read_bytes() == before
    assert sorted(path.name for path in desk.directory.iterdir()) == [
        "cluster.yaml",
        "cluster.yaml.lock",
        "submitted.yaml",
    ]


def test_a_directory_is_no_state_file(desk: Desk) -> None:
    assert desk.bare("--state", str(desk.directory), "state").code == 74


def test_several_runs_of_one_name_must_be_told_apart(desk: Desk) -> None:
    desk.submit(run("train", namespace="one"), run("train", namespace="two"))
    answer = desk.runs("plan", "train")
    assert answer.code == 2
    assert "choose one of one/train and two/train" in answer.err
    assert desk.runs("plan", "one/train").code == 0
    assert desk.runs("-n", "one", "plan", "train").code == 0
    assert desk.runs("plan", "run.rq.davidlangworthy.io/one/train").code == 0


def test_a_reader_that_leaves_early_is_no_error() -> None:
    command = f"set -o pipefail; {sys.executable} -m jobtree.cli.main --help | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
