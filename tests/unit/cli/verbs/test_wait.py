"""``wait`` ends when a Run has reached a phase, with an exit code for scripts."""

import pytest

from tests.unit.cli.cli_runner import CliRunner
from tests.unit.cli.manifests import lasting, run


@pytest.fixture(autouse=True)
def _two_runs(cli: CliRunner) -> None:
    cli.submit(lasting(run("train"), "1h"))
    cli.submit(lasting(run("late"), "2h"))


def test_wait_ends_when_the_run_runs_or_is_completed(cli: CliRunner) -> None:
    assert cli.runs("wait", "train") == (0, "default/train is Running\n", "")
    assert cli.runs("wait", "late") == (0, "default/late is Running\n", "")
    assert (
        cli.runs("wait", "late", "--for", "Completed", "-o", "json").json()["status"]["phase"] == "Completed"
    )
    assert cli.runs("wait", "late", "--for=Finished").out == "default/late is Completed\n"


def test_wait_exits_1_when_the_time_is_over(cli: CliRunner) -> None:
    result = cli.runs("wait", "late", "--timeout", "30m")
    assert (result.code, result.out) == (1, "")
    assert result.err == "error: default/late is Reserved and not Running after 30m\n"
    assert cli.runs("wait", "late", "--timeout", "soon").code == 2


def test_wait_exits_1_when_the_run_fails(cli: CliRunner) -> None:
    cli.submit(lasting(run("short", owner="org:lab", runtime={"maxDuration": "10m", "maxRestarts": 0}), "1h"))
    result = cli.runs("wait", "short", "--for", "Completed")
    assert (result.code, "default/short is Failed: " in result.err) == (1, True), result
    assert cli.runs("wait", "short", "--for", "Finished").out == "default/short is Failed\n"


def test_wait_exits_3_for_an_unknown_run(cli: CliRunner) -> None:
    result = cli.runs("wait", "trian")
    assert (result.code, "did you mean train?" in result.err) == (3, True)
