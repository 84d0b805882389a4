"""``shrink`` and ``grow``: the width that a Run wants."""

import pytest

from tests.unit.cli.desk import Desk, run

ELASTIC = {"minTotalGPUs": 2, "maxTotalGPUs": 8, "stepGPUs": 2}


@pytest.fixture(autouse=True)
def _elastic(desk: Desk) -> None:
    body = run("train")
    body["spec"]["resources"]["totalGPUs"] = 4
    body["spec"]["malleable"] = dict(ELASTIC)
    body["spec"]["runtime"] = {"checkpoint": "10m"}
    desk.submit(body)
    fixed = run("fixed")
    fixed["spec"]["resources"]["totalGPUs"] = 2
    desk.submit(fixed)


def test_shrinking_happens_at_once_and_the_object_says_so(desk: Desk) -> None:
    body = desk.runs("shrink", "train", "--by", "2", "-o", "json").json()
    assert (body["kind"], body["status"]["width"]["allocated"]) == ("Run", 2)
    assert body["spec"]["malleable"]["desiredTotalGPUs"] == 2


def test_growing_waits_for_a_checkpoint_interval(desk: Desk) -> None:
    said = desk.runs("grow", "train", "--to", "6")
    assert (said.code, "wants 6 GPUs and has 4" in said.out) == (0, True)
    assert "Grown" not in desk.runs("advance", "9m").out
    assert "Grown" in desk.runs("advance", "1m").out
    assert "Grown" not in desk.runs("advance", "1h").out


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
def test_mistakes_are_told_with_the_rule(desk: Desk, words: list[str], code: int, message: str) -> None:
    before = desk.state.read_bytes()
    said = desk.runs(*words)
    assert (said.code, message in said.err) == (code, True), said.err
    assert desk.state.read_bytes() == before


def test_a_run_that_waits_or_is_finished_has_no_width_to_change(desk: Desk) -> None:
    desk.runs("complete", "train")
    said = desk.runs("grow", "train", "--by", "2")
    assert (said.code, "is Completed, not Running" in said.err) == (4, True)
