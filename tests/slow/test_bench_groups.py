"""``make bench`` measures one group by itself, and lists replays in the same table."""

from pathlib import Path

import pytest

from benchmarks.__main__ import main


def test_bench_measures_one_group(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick", "--groups", "lottery", "--json", str(tmp_path / "bench.json")]) == 0
    printed = capsys.readouterr().out
    assert "resolution with 200 tickets" in printed
    assert "make bench-live (last on 20" in printed
    assert (tmp_path / "bench.json").exists()


def test_bench_lists_replays_in_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick", "--groups", "replay", "--json", str(tmp_path / "bench.json")]) == 0
    printed = capsys.readouterr().out
    assert "a replay of 300 jobs on 3,000 GPUs at 70 % load" in printed
    assert "a replay of 300 jobs on 3,000 GPUs at 110 % load" in printed
    assert "memory of Runs that wait in a replay" in printed
