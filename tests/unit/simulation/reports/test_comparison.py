"""``make replay`` on a small trace: it writes the page, uses existing reports, and its claims hold."""

import gzip
from pathlib import Path

import msgspec
import pytest

from benchmarks import replay
from benchmarks.comparison import verdicts
from benchmarks.verdicts import CLAIMS, bars, losses
from jobtree.simulation.inputs.job_trace import read_trace
from tests.unit.simulation.reports.test_report import reported

REPOSITORY = Path(__file__).parents[4]
DAY_S = 86_400
POLICIES = ("jobtree", "fifo", "conservative")
WORDS = ["--case", "philly-90", "--case", "philly-110", *(f"--policy={name}" for name in POLICIES)]


@pytest.fixture
def traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Twenty jobs of two teams that use two nodes most of the time; some need a whole node."""
    rows = "".join(
        f"j{n},{'ab'[n % 2]},{55 * DAY_S + 600 * n},{3_000 + 500 * (n % 7)},{(1, 8, 2, 4, 16)[n % 5]},,\n"
        for n in range(20)
    )
    head = "job_id,user_or_team,submit_s,duration_s,gpus,gpu_type,status\n"
    (tmp_path / "philly_vc4").mkdir()
    (tmp_path / "philly_vc4" / "jobs.csv.gz").write_bytes(gzip.compress((head + rows).encode()))
    (tmp_path / "docs").mkdir()
    monkeypatch.setattr(replay, "TRACES", tmp_path)
    monkeypatch.setattr(replay, "SOURCES", REPOSITORY / "src/jobtree")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_page_is_written_and_reports_are_kept(traces: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay.main([*WORDS, "--write"]) == 0
    page = (traces / "docs" / "comparison" / "schedulers.md").read_text()
    for title in ("## Philly, four teams, 90 % load", "## Philly, four teams, 110 % load"):
        assert title in page
    assert page.count("| jobtree |") == page.count("| conservative |") == 2
    assert "20 jobs" in page
    assert len(list((traces / "docs" / "comparison").glob("*.svg"))) == 2
    assert "jobtree" in capsys.readouterr().out
    assert replay.main([*WORDS, "--write"]) == 0
    assert capsys.readouterr().out == ""
    assert (traces / "docs" / "comparison" / "schedulers.md").read_text() == page


def test_missing_traces_are_reported_with_advice(traces: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replay.TRACES = traces / "nowhere"
    assert replay.main(WORDS) == 2
    assert "JOBTREE_TRACES must name the folder of traces" in capsys.readouterr().err


def test_part_of_a_trace_is_the_first_or_every_nth_job(traces: Path) -> None:
    whole = read_trace(str(traces / "philly_vc4" / "jobs.csv.gz"))
    assert list(replay.part_of(whole, 5, thinned=True).submit) == list(whole.submit)[::4]
    assert list(replay.part_of(whole, 5, thinned=False).submit) == list(whole.submit)[:5]
    assert replay.part_of(whole, 0, thinned=True) is whole


def test_every_figure_in_which_another_scheduler_is_better_is_listed() -> None:
    mine, theirs = (reported(policy) for policy in ("jobtree", "quota"))
    assert losses({"Case": [mine, theirs]}) == []
    waits = msgspec.structs.replace(theirs.status.all_jobs.wait_seconds, mean=0.0, p90=60.0)
    jobs = msgspec.structs.replace(theirs.status.all_jobs, wait_seconds=waits)
    better = msgspec.structs.replace(theirs, status=msgspec.structs.replace(theirs.status, all_jobs=jobs))
    by_case = {"Case": [mine, theirs, better]}
    assert [(loss.figure, loss.have, loss.better) for loss in losses(by_case)] == [
        ("wait mean", "0.33 h", (("quota", "0.00 h"),)),
        ("wait p90", "1.00 h", (("quota", "0.02 h"),)),
    ]
    assert "| Case | wait p90 | 1.00 h | quota 0.02 h |" in verdicts(by_case)
    assert "**The quota schedulers" in verdicts(by_case)
    assert "**`sjf` lets people wait less.**" not in verdicts(by_case)


def test_jobs_that_ignore_warnings_are_reported_separately() -> None:
    mine = reported("jobtree")
    assert mine.spec.on_notice == "Ignore"
    (separate,) = (bar for bar in bars({"Case": [mine, reported()]}) if "preemption" in bar.asked)
    assert separate.holds is None
    assert "reported apart | 0.00 % | - |" in verdicts({"Case": [mine, reported()]})
    assert [case.name for case in replay.cases() if not case.notice] == ["philly-90-oversubscribed-unsaved"]


def test_claims_of_the_committed_page_agree_with_its_table() -> None:
    """A claim is on the page exactly if the bar that it explains is missed."""
    page = (REPOSITORY / "docs" / "comparison" / "schedulers.md").read_text(encoding="utf-8")
    missed = [line for line in page.splitlines() if line.endswith("| **no** |")]
    about = {"p90 wait": 0, "firm promises kept": 1, "expected starts": 2, "in use": 3, "work lost": 4}
    for words, number in about.items():
        assert (CLAIMS[number].text in page) == any(words in line for line in missed), words
    assert bars({}) == []
