"""The table of ``make bench``, and the file of its results."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.bars import Bar
from benchmarks.machine import machine
from benchmarks.report import Figure, Section, heading, missed, table
from benchmarks.results import KEPT, PATH, Results, bounds, load, save

WHY = "because it feels quick"


def section(value: float) -> Section:
    return Section("an arrival", (Figure("decide, p50", value, "ms", Bar(2.0, WHY)), Figure("count", 7, "")))


def test_table_shows_bound_margin_previous_figure_and_ratio() -> None:
    title, first, second = table(section(0.5), {"decide, p50": 0.25}).strip().splitlines()
    assert heading().split() == ["measured", "bound", "margin", "before", "now"]
    assert title == "an arrival"
    assert first.split() == ["decide,", "p50", "0.5", "ms", "≤", "2", "pass", "75", "%", "0.25", "2.00", "×"]
    assert second.split() == ["count", "7"]


def test_missed_bound_has_a_negative_margin() -> None:
    late = section(2.5)
    assert "MISS   -25 %" in table(late, {})
    assert missed([late]) == ["an arrival: decide, p50"]


def test_file_keeps_the_last_runs_and_the_margin_of_the_worst(tmp_path: Path) -> None:
    results = Results()
    day = datetime(2026, 11, 15, tzinfo=UTC)
    for value in (1.9, 0.1, 0.2, 0.3, 1.2345678, 0.5):
        results.add(section(value), 3, day)
    save(results, machine(), tmp_path / "results.json")
    loaded = load(tmp_path / "results.json")
    row = loaded.rows["an arrival"]
    assert [run.figures["decide, p50"] for run in row.runs] == [0.1, 0.2, 0.3, 1.235, 0.5]
    assert len(row.runs) == KEPT
    bound = row.bounds["decide, p50"]
    assert (bound.limit, bound.source, bound.worst, bound.margin_percent) == (2.0, WHY, 1.235, 38)
    assert loaded.before("an arrival") == {"decide, p50": 0.5, "count": 7}
    assert loaded.before("something new") == {}
    shown = list(bounds(loaded))
    assert shown[0].strip().startswith("an arrival (2026-11-15, ")
    assert "38 %  of 0.1, 0.2, 0.3, 1.24, 0.5" in shown[1]
    assert shown[2].strip() == WHY


def test_committed_file_can_be_loaded() -> None:
    results = load()
    assert PATH.exists()
    assert results.machine is not None
    for row in results.rows.values():
        assert row.runs
        for name, bound in row.bounds.items():
            assert bound.worst == max(run.figures.get(name, 0) for run in row.runs)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--quick", "--write"], "--write: figures are kept at full size only"),
        (
            ["--groups", "day,nigth"],
            "--groups: nigth: must be of full, lottery, use, failures, day, replay, promises",
        ),
    ],
)
def test_wrong_arguments_are_refused(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert says in capsys.readouterr().err


def test_bounds_are_printed_without_a_measurement(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--bounds"]) == 0
    assert "≤" in capsys.readouterr().out
