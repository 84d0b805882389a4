"""Reports of replays that can be checked by hand, and their pages."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest

from benchmarks.comparison import write_page
from benchmarks.small_trace import PATH, text
from jobtree.simulation.inputs.user_behavior import UserBehavior
from jobtree.simulation.replay.meter import TimeWeightedValue
from jobtree.simulation.reports.comparison import cells, rows
from jobtree.simulation.reports.html_page import budget_lines, page
from jobtree.simulation.reports.report import Report, encode_report
from jobtree.simulation.reports.statistics import at_share, report_of
from jobtree.simulation.reports.svg_plots import (
    Axis,
    PlotLine,
    chart,
    picture,
    scale as scale_of,
    tick_label,
    ticks,
)
from tests.unit.simulation.small_replays import Job, replay, replay_setup

HOUR_S = 3_600


def reported(policy: str = "fifo") -> Report:
    """Returns the report of two jobs: one uses half of a node for two hours, one waits for all of it."""
    jobs = (Job(0, 2 * HOUR_S, 4, "a"), Job(HOUR_S, HOUR_S, 8, "b"), Job(4 * HOUR_S, HOUR_S, 1, "a"))
    return report_of(replay(policy, replay_setup(*jobs, budgets={"a": "8", "b": "8"})), policy, "hand-made")


def test_time_weighted_values_are_exact() -> None:
    level = TimeWeightedValue(100, 200, 50)
    for change, at in ((4, 100), (-4, 175), (2, 210), (-2, 260)):
        level.add(change, at)
    assert level.in_window == 4 * 75
    assert level.means(4) == [4.0, 2.0, 2 * 40 / 50, 2 * 10 / 50]
    assert level.means(5)[4] == 0


def test_report_of_a_small_case_has_the_expected_figures() -> None:
    result = reported().status
    assert result.finished == 3
    assert result.fleet.hours == 4
    assert result.fleet.allocated_gpu_hours == 4 * 2 + 8
    assert result.fleet.allocated == result.fleet.useful == 0.5
    assert result.fleet.fragmentation == pytest.approx(4 * 2 / 16)  # beside the first job, for two hours
    assert result.all_jobs.wait_seconds.mean == HOUR_S / 3
    assert result.all_jobs.wait_seconds.p50 == 0
    assert result.all_jobs.wait_seconds.p90 == HOUR_S
    assert result.all_jobs.slowdown.mean == pytest.approx((1 + 2 + 1) / 3)
    assert [(times.name, times.jobs) for times in result.by_size] == [("1", 1), ("2-4", 1), ("5-8", 1)]
    assert [times.name for times in result.by_team] == ["a", "b"]
    assert [(use.team, use.used_gpu_hours) for use in result.budgets] == [("a", 8), ("b", 8)]
    assert [use.use for use in result.budgets] == [0.25, 0.25]
    assert result.fairness == 1
    assert result.promises is None
    assert result.series.allocated[:3] == (4, 4, 8)
    assert result.series.used_gpu_hours["a"][:3] == (4, 8, 8)


def test_grant_is_limited_by_the_hours_of_the_budget() -> None:
    given = replay_setup(Job(0, 2 * HOUR_S, 4, "a"), Job(4 * HOUR_S, HOUR_S, 1, "a"), budgets={"a": "8"})
    (org, budget) = given.budgets
    (envelope,) = budget.spec.envelopes
    limited = msgspec.structs.replace(envelope, max_gpu_hours=16)
    spec = msgspec.structs.replace(budget.spec, envelopes=(limited,))
    budgets = (org, msgspec.structs.replace(budget, spec=spec))
    simulation = replay("fifo", msgspec.structs.replace(given, budgets=budgets))
    (use,) = report_of(simulation, "fifo", "x").status.budgets
    assert (use.granted_gpus, use.granted_gpu_hours, use.used_gpu_hours, use.use) == (8, 16, 8, 0.5)


def test_lost_work_is_not_useful() -> None:
    behavior = UserBehavior(declares="exact", checkpoint=None)
    jobs = (Job(0, 2 * HOUR_S, 8), Job(10 * HOUR_S, 60, 1))
    given = replay_setup(*jobs, behavior=behavior, outages=[(0, HOUR_S, 2 * HOUR_S)])
    result = report_of(replay("fifo", given), "fifo", "x").status
    assert result.fleet.allocated_gpu_hours - result.fleet.useful_gpu_hours == 8
    assert result.fleet.capacity_gpu_hours == 8 * 9
    assert result.lost_share == pytest.approx(8 / 24, abs=1e-3)
    assert [(stop.reason, stop.count, stop.lost_gpu_hours) for stop in result.stops] == [
        ("NodeFailure", 1, 8)
    ]


@pytest.mark.parametrize("policy", ["fifo", "jobtree"])
def test_a_restart_costs_time_and_gpu_hours(policy: str) -> None:
    """One node that fails at half time; the job has its checkpoint, and takes ten minutes to restart."""
    behavior = UserBehavior(declares="exact", checkpoint=1000 * HOUR_S, restart_cost=600_000)
    jobs = (Job(0, 2 * HOUR_S, 8), Job(10 * HOUR_S, 60, 1))
    given = replay_setup(*jobs, behavior=behavior, outages=[(0, HOUR_S, 2 * HOUR_S)])
    result = report_of(replay(policy, given), policy, "x").status
    assert result.restart_gpu_hours == pytest.approx(8 / 6, abs=1e-5)
    assert result.fleet.allocated_gpu_hours - result.fleet.useful_gpu_hours == pytest.approx(8 / 6, abs=1e-5)
    assert result.all_jobs.not_running_seconds.p99 == HOUR_S + 600
    stopped = result.stopped_jobs
    assert (stopped.jobs, stopped.stops_per_job, stopped.most_stops, stopped.most_stops_row) == (1, 0.5, 1, 2)
    assert (stopped.longest_not_running_seconds, stopped.longest_not_running_row) == (HOUR_S + 600, 2)


def test_gpus_that_no_pod_of_the_usual_size_can_use_are_told() -> None:
    """Most work is in pods of 8: of a budget of 13 GPUs, 5 can pay none."""
    jobs = (Job(0, 2 * HOUR_S, 16, "a"), Job(0, 60, 1, "b"))
    report = report_of(
        replay("fifo", replay_setup(*jobs, nodes=2, budgets={"a": "13", "b": "3"})), "fifo", "x"
    )
    assert report.spec.pod_gpus == 8
    assert [use.unusable_gpus for use in report.status.budgets] == [5, 3]


def test_fairness_falls_when_a_team_gets_less_than_its_grant() -> None:
    """Each team is granted half of the node; one fills it, the other waits."""
    jobs = (Job(0, 10 * HOUR_S, 8, "a"), Job(0, HOUR_S * 8, 4, "b"), Job(10 * HOUR_S - 1, 60, 1, "b"))
    result = report_of(replay("fifo", replay_setup(*jobs, budgets={"a": "4", "b": "4"})), "fifo", "x").status
    assert result.fairness == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(
    ("percent", "value"), [(0, 1), (10, 1), (11, 2), (50, 5), (90, 9), (99, 10), (100, 10)]
)
def test_percentile_of_a_list(percent: int, value: int) -> None:
    assert at_share(list(range(1, 11)), percent) == value


def test_written_report_is_read_back() -> None:
    report = reported("jobtree")
    assert msgspec.json.decode(encode_report(report), type=Report) == report
    assert report.status.promises is not None


def test_two_reports_are_compared_side_by_side() -> None:
    cells_by_row = {row.name: cells(row) for row in rows(reported(), reported("jobtree"))}
    assert cells_by_row["allocated"][1:3] == ("50.0 %", "50.0 %")
    assert cells_by_row["wait mean"][1] == "1,200 s"
    for confidence in ("firm promises kept", "conditional ones kept"):
        assert cells_by_row[confidence][1] == cells_by_row[confidence][3] == "-"
    assert cells_by_row["jobs"][1:] == ("3", "3", "+0")
    assert "wait mean, b" in cells_by_row
    assert cells_by_row["use of budget, b"][1] == "25.0 %"


def test_page_has_every_plot_and_loads_nothing() -> None:
    text = page(reported("jobtree"))
    assert not re.findall(r"(?:src|href)=|url\(|@import|<script", text)
    assert text.count("<figure>") == 4
    assert "prefers-color-scheme: dark" in text
    for part in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ET.fromstring(part)  # noqa: S314  it was made here
    assert "<script" not in page(msgspec.structs.replace(reported(), spec=hostile()))


def test_page_has_every_figure() -> None:
    report = reported("jobtree")
    text = page(report)
    for words in (
        "allocated",
        "useful",
        "idle GPUs beside busy ones",
        "wait: mean, p50, p90, p99",
        "completion: mean, p50, p90, p99",
        "slowdown: mean, p50, p90, p99",
        "kept, of 1 firm",
        "slipped, withdrawn",
        "promised wait: mean, p50, p90, p99",
        "not running: mean, p50, p90, p99",
        "stops per job",
        "error of promises: mean, p50, p90, p99",
        "work lost to stops and restarts",
        "fairness (Jain)",
        "granted GPU-hours",
    ):
        assert words in text
    head = "<th>wait mean, s</th><th>p50</th><th>p90</th><th>p99</th><th>completion mean, s</th><th>p50</th>"
    assert text.count(head) == 2  # by size, and by team


def test_budget_plot_falls_from_the_grant_to_the_rest_at_the_last_submission() -> None:
    report = reported()
    (team, _) = report.status.budgets
    (line, _) = budget_lines(report)
    assert line.points[0] == (0.0, team.granted_gpu_hours)
    assert line.points[1:3] == [(1 / 24, 32 - 4), (2 / 24, 32 - 8)]
    assert line.points[-1] == (4 / 24, team.granted_gpu_hours - team.used_gpu_hours)


def test_page_of_a_comparison_shows_the_changes() -> None:
    text = page(reported(), reported("sjf"))
    assert "<h1>sjf on hand-made</h1>" in text
    assert "<h2>What changes</h2>" in text
    assert "<th>as it is</th><th>what if</th><th>change</th>" in text
    assert "What changes" not in page(reported())


def hostile() -> object:
    return msgspec.structs.replace(reported().spec, trace="<script>alert(1)</script>")


def test_plot_without_points_is_a_sentence() -> None:
    assert "nothing to show" in chart("Empty", Axis("x"), Axis("y"), [PlotLine("none", [])])


def test_ticks_are_round_numbers() -> None:
    assert ticks(scale_of([0, 437], 0, 1, Axis("x"))) == [0, 100, 200, 300, 400, 500]
    scale = scale_of([-50, 5_000], 0, 1, Axis("x", logarithmic=True))
    labels = [tick_label(value, scale) for value in ticks(scale)]
    assert labels == ["-10s", "-1s", "0", "1s", "10s", "1m", "10m", "1h"]


def test_plot_file_has_its_own_style_and_legend() -> None:
    svg = picture("Waits", Axis("s"), Axis("%"), [PlotLine("a & b", [(0, 0), (1, 2)])])
    assert ET.fromstring(svg).tag.endswith("svg")  # noqa: S314  it was made here


def test_comparison_page_has_a_table_and_a_plot_for_each_case(tmp_path: Path) -> None:
    write_page(tmp_path, {"Case one": [reported(), reported("jobtree")], "None": []})
    written = (tmp_path / "schedulers.md").read_text()
    assert "| fifo | 50.0 % |" in written
    assert "| jobtree |" in written
    assert "## None" not in written
    (link,) = re.findall(r"\]\(([^)]*svg)\)", written)
    assert (tmp_path / link).exists()


def test_sample_trace_is_what_its_program_writes() -> None:
    assert (Path(__file__).parents[4] / PATH).read_text() == text()
