"""Reports of long commands while they run, and errors when they fail."""

import re

import pytest

from tests.live.programs import long_command
from tests.live.programs.long_command import CommandFailedError, run_command


def test_command_reports_that_it_runs_and_returns_its_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(long_command, "PROGRESS_SECONDS", 0.05)
    assert run_command(["sh", "-c", "sleep 0.3; echo result"], "counting", within_seconds=60) == "result\n"
    reports = re.sub(r"\d+", "#", capsys.readouterr().err).splitlines()
    assert reports[0] == "[control plane] counting …"
    assert set(reports[1:-1]) == {"[control plane] counting … # s"}
    assert reports[-1] == "[control plane] counting: done in # s"


def test_failed_command_raises_with_its_last_output() -> None:
    with pytest.raises(CommandFailedError, match=r"(?s)counting failed: `sh -c .*no more numbers"):
        run_command(["sh", "-c", "echo no more numbers >&2; exit 1"], "counting", within_seconds=60)


def test_command_is_stopped_when_it_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_command, "PROGRESS_SECONDS", 0.05)
    with pytest.raises(CommandFailedError, match=r"counting was stopped after 0\.1 s"):
        run_command(["sleep", "600"], "counting", within_seconds=0.1)


def test_missing_command_is_named() -> None:
    with pytest.raises(CommandFailedError, match="there is no `no-such-command` here"):
        run_command(["no-such-command"], "counting", within_seconds=60)
