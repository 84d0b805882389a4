"""Long commands: what they say while they run, and when they fail."""

import re

import pytest

from tests.live import progress
from tests.live.progress import CommandFailedError, run


def test_a_command_tells_that_it_still_runs_and_gives_its_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "PROGRESS_SECONDS", 0.05)
    assert run(["sh", "-c", "sleep 0.3; echo result"], "counting", within_seconds=60) == "result\n"
    said = re.sub(r"\d+", "#", capsys.readouterr().err).splitlines()
    assert said[0] == "[control plane] counting …"
    assert set(said[1:-1]) == {"[control plane] counting … # s"}
    assert said[-1] == "[control plane] counting: done in # s"


def test_a_command_that_fails_shows_what_it_said_last() -> None:
    with pytest.raises(CommandFailedError, match=r"(?s)counting failed: `sh -c .*no more fingers"):
        run(["sh", "-c", "echo no more fingers >&2; exit 1"], "counting", within_seconds=60)


def test_a_command_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PROGRESS_SECONDS", 0.05)
    with pytest.raises(CommandFailedError, match=r"counting was given up after 0\.1 s"):
        run(["sleep", "600"], "counting", within_seconds=0.1)


def test_a_command_that_is_not_there_is_named() -> None:
    with pytest.raises(CommandFailedError, match="there is no `no-such-command` here"):
        run(["no-such-command"], "counting", within_seconds=60)
