"""``shrink`` and ``grow`` change the desired width of a Run."""

import pytest

from tests.unit.cli.cli_runner import CliRunner
from tests.unit.cli.manifests import run

ELASTIC = {"minTotalGPUs": 2, "maxTotalGPUs": 8, "stepGPUs": 2}


@pytest.fixture(autouse=True)
def _elastic(cli: CliRunner) -> None:
    body = run("train")
    body["spec"]["resources"]["totalGPUs"] = 4
    body["spec"]["malleable"] = dict(ELASTIC)
    body["spec"]["runtime"] = {"checkpoint": "10m"}
    cli.submit(body)
    fixed = run("fixed")
    fixed["spec"]["resources"]["totalGPUs"] = 2
    cli.submit(fixed)


def test_shrink_takes_effect_at_once(cli: CliRunner) -> None:
    body = cli.runs("shrink", "train", "--by", "2", "-o", "json").json()
    assert (body["kind"], body["status"]["width"]["allocated"]) == ("Run", 2)
    assert body["spec"]["malleable"]["desiredTotalGPUs"] == 2


def test_grow_takes_effect_after_a_checkpoint_interval(cli: CliRunner) -> None:
    answer = cli.runs("grow", "train", "--to", "6")
    assert (answer.code, "wants 6 GPUs and has 4" in answer.out) == (0, True)
    assert "Grown" not in cli.runs("advance", "9m").out
    assert "Grown" in cli.runs("advance", "1m").out
    assert "Grown" not in cli.runs("advance", "1h").out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["shrink", "train"], 2, "either --by N or --to N"),
        (["shrink", "train", "--by", "2", "--to", "2"], 2, "either --by N or --to N"),
        (
            ["shrink", "train", "--by", "4"],
            2,
            "cannot be 0 GPUs wide: its widths are 2 to 8 GPUs in steps of 2",
        ),
        (["grow", "train", "--by", "1"], 2, "cannot be 5 GPUs wide"),
        (["grow", "train", "--to", "2"], 2, "use 'shrink'"),
        (["shrink", "train", "--to", "8"], 2, "use 'grow'"),
        (["grow", "fixed", "--by", "2"], 4, "is a fixed gang"),
        (["grow", "nobody", "--by", "2"], 3, "there is no Run nobody"),
    ],
)
def test_width_change_is_refused_with_its_rule(
    cli: CliRunner, words: list[str], code: int, message: str
) -> None:
    before = cli.state.read_bytes()
    answer = cli.runs(*words)
    assert (answer.code, message in answer.err) == (code, True), answer.err
    assert cli.state.read_bytes() == before


def test_width_change_is_refused_when_the_run_is_completed(cli: CliRunner) -> None:
    cli.runs("complete", "train")
    answer = cli.runs("grow", "train", "--by", "2")
    assert (answer.code, "is Completed, not Running" in answer.err) == (4, True)
