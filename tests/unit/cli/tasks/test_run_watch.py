"""watch prints a line per change and ends with its Run."""

import time
from collections.abc import Callable

import pytest

from tests.unit.cli.desk import Desk, lasting, run

Steps = list[Callable[[], object]]


@pytest.fixture(name="meanwhile")
def _meanwhile(monkeypatch: pytest.MonkeyPatch) -> Steps:
    """What happens while watch sleeps, one step each time; then the user has seen enough."""
    steps: Steps = []

    def sleep(_: float) -> None:
        if not steps:
            raise KeyboardInterrupt
        steps.pop(0)()

    monkeypatch.setattr(time, "sleep", sleep)
    return steps


def quietly(desk: Desk, *words: str) -> Callable[[], object]:
    """Another command on the same file, whose own output is not looked at."""
    from jobtree.cli.main import main  # noqa: PLC0415  so that what watch printed so far is not swallowed

    def step() -> object:
        return main(["--state", str(desk.state), *words, "-o", "name"])

    return step


def lines(out: str) -> list[str]:
    return [line for line in out.splitlines() if line.startswith("2026-")]


def test_once_is_one_line(desk: Desk) -> None:
    desk.submit(run("train"))
    answer = desk.runs("watch", "train", "--once")
    assert answer.code == 0
    assert answer.out == "2026-01-05T09:00:00Z  default/train  Running  8/8 GPUs  Owned 8  nv-a\n"


def test_a_line_per_change_until_the_run_is_completed(desk: Desk, meanwhile: Steps) -> None:
    desk.submit(run("first"))
    desk.submit(lasting(run("train"), "1h"))
    meanwhile += [
        lambda: None,
        quietly(desk, "advance", "10m"),
        quietly(desk, "complete", "first"),
        lambda: None,
        quietly(desk, "advance", "30m"),
        quietly(desk, "advance", "2h"),
    ]
    answer = desk.runs("watch", "train")
    undated = "reservation train-1 has no date"
    assert answer.code == 0
    assert lines(answer.out) == [
        f"2026-01-05T09:00:00Z  default/train  Reserved  0/8 GPUs  ConcurrencyExhausted  {undated}",
        "2026-01-05T09:10:00Z  default/train  Running  8/8 GPUs  Owned 8  nv-a",
        "2026-01-05T11:40:00Z  default/train  Completed  0/8 GPUs",
    ]


def test_a_run_that_fails_is_1(desk: Desk, meanwhile: Steps) -> None:
    desk.submit(run("train", runtime={"maxDuration": "1h"}))
    meanwhile.append(quietly(desk, "advance", "1h"))
    answer = desk.runs("watch", "train")
    assert answer.code == 1
    assert lines(answer.out)[-1].endswith("default/train  Failed  0/8 GPUs  DurationExceeded")


def test_a_run_that_is_cancelled_is_1(desk: Desk, meanwhile: Steps) -> None:
    desk.submit(run("train"))
    meanwhile.append(quietly(desk, "cancel", "train"))
    answer = desk.runs("watch", "train")
    assert answer.code == 1
    assert "default/train is gone: it was cancelled" in answer.out


def test_a_finished_run_ends_at_once(desk: Desk, meanwhile: Steps) -> None:
    desk.submit(run("train"))
    desk.runs("complete", "train")
    assert desk.runs("watch", "train").code == 0
    assert not meanwhile


def test_the_user_may_stop_it(desk: Desk, meanwhile: Steps) -> None:
    desk.submit(run("train"))
    answer = desk.runs("watch", "train")
    assert (answer.code, answer.err) == (130, "")
    assert not meanwhile


def test_the_file_goes_away(desk: Desk, meanwhile: Steps) -> None:
    desk.submit(run("train"))
    meanwhile.append(desk.state.unlink)
    answer = desk.runs("watch", "train")
    assert answer.code == 3
    assert "there is no state file" in answer.err
