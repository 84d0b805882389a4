"""The figures of ``make bench-live``, and their table."""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from benchmarks.live.__main__ import main
from benchmarks.live.client import Document
from benchmarks.live.gangs import GangFigures, joined
from benchmarks.live.raw import Limit, bare
from benchmarks.live.results import Bar, Figure, Results, load, merge, missed, save, table
from benchmarks.live.rows import Effort, Limits, per_second, percentile, shares, times_native
from benchmarks.live.usage import of_jobtree
from benchmarks.machine import machine


def test_share_is_relative_to_the_limit_of_the_same_run() -> None:
    jobtree = GangFigures(gangs=10, pods=160, seconds=2.0, writes={})
    (share,) = shares(128, jobtree, Limits(100.0, 0.0))
    assert (share.value, share.verdict) == (80.0, "pass")
    (slow,) = shares(128, jobtree, Limits(161.0, 0.0))
    assert (round(slow.value), slow.verdict) == (50, "MISS")


def test_rounds_are_weighted_by_their_duration() -> None:
    rounds = [
        GangFigures(2, 32, 1.0, {"POST pods": 32}, 0.5, 2.0),
        GangFigures(2, 32, 3.0, {"POST pods": 33}, 0.7, 3.0),
    ]
    assert joined(rounds) == GangFigures(4, 64, 4.0, {"POST pods": 65}, 1.2, 5.0)
    assert per_second([Limit(100, 1.0), Limit(100, 3.0)]) == 50.0


def test_ratio_to_kube_scheduler_has_the_largest_possible_ratio() -> None:
    jobtree, native = GangFigures(gangs=30, pods=480, seconds=2.0, writes={}), GangFigures(10, 160, 2.0, {})
    times = times_native("times kube-scheduler", jobtree, native, 20.0, Bar(5))
    assert (times.value, times.raw, times.verdict) == (3.0, 4.0, "MISS"), "the bar does not change"


def test_small_gangs_are_compared_by_their_writes() -> None:
    jobtree = GangFigures(gangs=100, pods=100, seconds=2.0, writes={"POST pods": 100, "POST runs": 400})
    figures = {figure.name: figure for figure in shares(8, jobtree, Limits(200.0, 400.0))}
    assert jobtree.writes_per_gang == 5
    assert figures["needed writes per second"].value == 250
    assert figures["share of raw writes"].value == 62.5
    assert figures["share of raw writes"].verdict == "MISS"
    assert figures["share of raw pods"].verdict == ""


def test_only_writes_of_jobtree_count() -> None:
    counted = Counter({"POST pods": 3, "PATCH pods/status": 9, "PUT leases": 4, "POST gpuleases": 2})
    assert of_jobtree(counted) == {"POST pods": 3, "POST gpuleases": 2}


def test_raw_objects_have_no_fields_of_the_server() -> None:
    stored: Document = {
        "metadata": {"name": "a", "uid": "u", "resourceVersion": "7", "labels": {}},
        "spec": {"x": 1},
    }
    assert bare(stored) == {"metadata": {"name": "a", "labels": {}}, "spec": {"x": 1}}
    assert stored["metadata"]["uid"] == "u"


def test_table_shows_bar_raw_limit_and_previous_figure() -> None:
    figures = [
        Figure("share", 40.0, "%", Bar(70), raw=100),
        Figure("resident", 512.0, "MiB", Bar(1024, at_most=True)),
    ]
    lines = table("gangs", figures, {"share": 65.0}).splitlines()
    assert lines[1].split() == ["gangs", "measured", "asked", "raw", "limit", "before"]
    assert lines[2].split() == ["share", "40", "%", "≥", "70", "MISS", "100", "65"]
    assert lines[3].split() == ["resident", "512", "MiB", "≤", "1,024", "pass"]
    assert missed("gangs", figures) == ["gangs: share"]


def test_results_are_saved_by_row(tmp_path: Path) -> None:
    path, day = tmp_path / "results.json", datetime(2026, 11, 15, tzinfo=UTC)
    results = Results(rows={"other": {"x": 1.0}}, measured={"other": "2026-01-01"})
    merge(results, "gangs", [Figure("share", 41.23456, "%")], day)
    save(results, machine(), path)
    loaded = load(path)
    assert loaded.rows == {"other": {"x": 1.0}, "gangs": {"share": 41.23}}
    assert loaded.measured == {"other": "2026-01-01", "gangs": "2026-11-15"}


def test_saved_results_can_be_loaded() -> None:
    assert all(load().rows.values())


def test_percentile_is_the_nearest_rank() -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0], 50) == 3.0
    assert percentile([1.0], 99) == 1.0


def test_results_of_a_smaller_effort_are_not_saved(capsys: pytest.CaptureFixture[str]) -> None:
    assert Effort().is_full
    assert Effort(share=0.1).of(400) == 40
    with pytest.raises(SystemExit):
        main(["--share", "0.1", "--write"])
    assert "full size only" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--rows", "speed"])
    assert "--rows: speed: must be of gangs" in capsys.readouterr().err
