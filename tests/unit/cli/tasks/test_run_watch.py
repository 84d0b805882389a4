"""``watch`` prints a line for each change of a Run and ends when the Run ends."""

import time
from collections.abc import Callable

import pytest

from tests.unit.cli.cli_runner import CliRunner
from tests.unit.cli.manifests import lasting, run

Steps = list[Callable[[], object]]


@pytest.fixture(name="meanwhile")
def _meanwhile(monkeypatch: pytest.MonkeyPatch) -> Steps:
    """The steps that run while ``watch`` sleeps, one each time; after the last, the user interrupts it."""
    steps: Steps = []

    def sleep(_: float) -> None:
        if not steps:
            raise KeyboardInterrupt
        steps.pop(0)()

    monkeypatch.setattr(time, "sleep", sleep)
    return steps


def command(cli: CliRunner, *words: str) -> Callable[[], object]:
    """A step that runs another command on the same file, without clearing the captured output."""
    from jobtree.cli.main import main  # noqa: PLC0415  CliRunner would discard the output of watch

    def step() -> object:
        return main(["--state", str(cli.state), *words, "-o", "name"])

    return step


def lines(out: str) -> list[str]:
    return [line for line in out.splitlines() if line.startswith("2026-")]


def test_watch_once_prints_one_line(cli: CliRunner) -> None:
    cli.submit(run("train"))
    answer = cli.runs("watch", "train", "--once")
    assert answer.code == 0
    assert answer.out == "2026-01-05T09:00:00Z  default/train  Running  8/8 GPUs  Owned 8  nv-a\n"


def test_watch_prints_a_line_for_each_change_until_the_run_completes(
    cli: CliRunner, meanwhile: Steps
) -> None:
    cli.submit(run("first"))
    cli.submit(lasting(run("train"), "1h"))
    meanwhile += [
        lambda: None,
        command(cli, "advance", "10m"),
        command(cli, "complete", "first"),
        lambda: None,
        command(cli, "advance", "30m"),
        command(cli, "advance", "2h"),
    ]
    answer = cli.runs("watch", "train")
    undated = "reservation train-1 has no date"
    assert answer.code == 0
    assert lines(answer.out) == [
        f"2026-01-05T09:00:00Z  default/train  Reserved  0/8 GPUs  ConcurrencyExhausted  {undated}",
        "2026-01-05T09:10:00Z  default/train  Running  8/8 GPUs  Owned 8  nv-a",
        "2026-01-05T11:40:00Z  default/train  Completed  0/8 GPUs",
    ]


def test_watch_exits_1_when_the_run_fails(cli: CliRunner, meanwhile: Steps) -> None:
    cli.submit(run("train", runtime={"maxDuration": "1h"}))
    meanwhile.append(command(cli, "advance", "1h"))
    answer = cli.runs("watch", "train")
    assert answer.code == 1
    assert lines(answer.out)[-1].endswith("default/train  Failed  0/8 GPUs  DurationExceeded")


def test_watch_exits_1_when_the_run_is_cancelled(cli: CliRunner, meanwhile: Steps) -> None:
    cli.submit(run("train"))
    meanwhile.append(command(cli, "cancel", "train"))
    answer = cli.runs("watch", "train")
    assert answer.code == 1
    assert "default/train is gone: it was cancelled" in answer.out


def test_watch_ends_at_once_when_the_run_is_finished(cli: CliRunner, meanwhile: Steps) -> None:
    cli.submit(run("train"))
    cli.runs("complete", "train")
    assert cli.runs("watch", "train").code == 0
    assert not meanwhile


def test_watch_exits_130_when_it_is_interrupted(cli: CliRunner, meanwhile: Steps) -> None:
    cli.submit(run("train"))
    answer = cli.runs("watch", "train")
    assert (answer.code, answer.err) == (130, "")
    assert not meanwhile


def test_watch_exits_3_when_the_state_file_is_deleted(cli: CliRunner, meanwhile: Steps) -> None:
    cli.submit(run("train"))
    meanwhile.append(cli.state.unlink)
    answer = cli.runs("watch", "train")
    assert answer.code == 3
    assert "there is no state file" in answer.err
