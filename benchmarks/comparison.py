"""Writes docs/comparison/schedulers.md from the reports of replays: a table and a plot for every case."""

import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks.verdicts import CLAIMS, Found, Loss, bars, losses
from jobtree.simulation.reports.report import Report, Result
from jobtree.simulation.reports.svg_plots import Axis, PlotLine, picture

HEAD = """\
# Comparison

Jobtree next to the schedulers that people use today, on the same real jobs: Microsoft's Philly trace, four
virtual clusters as four teams on one fleet, and two clusters of its ITP trace.
[Simulate](../operator-guide/simulate.md) says what each figure means and how each scheduler works.

- Fleets are sized so that the work of the jobs is the stated share of what they could do while jobs arrive.
  They are empty at the start, and hold the largest gang at least, so that the load of cluster03, a small
  part of which is replayed, is lower. Budgets add up to the fleet, in proportion to what each team asks for.
- Philly: days 55 to 116, which published simulations use, too, every nth job, on a fleet that is
  smaller in proportion, so that the load and the weeks that jobs last stay as they are. ITP: the first jobs
  of each cluster.
- `maxDuration` is the true duration times an overestimate as people give it (seeded), or nobody declares
  one. Then backfill counts on the longest duration of the trace.
- Jobs save their state every 30 minutes, and when they are warned (`onNotice: Checkpoint`) but for one
  case. Outages of nodes are those of the `stepfun_faults2024` trace.
- `conservative` holds places for the first 30 in line. Holding 100 or 1,000 gave the same waits in the
  Philly cases, holding 10 longer ones at 110 % load.

`make replay` makes this page and its plots from the traces in `JOBTREE_TRACES`. It keeps every report in
`build/replay` and makes again only what has changed. `python -m benchmarks.replay --case philly-90 --jobs
0` replays all jobs of one case.
"""
ANSWERS = {True: "yes", False: "**no**", None: "-"}
LOSSES_HEAD = """\
Every figure below that another scheduler has better:

| case | figure | Jobtree | better |
|---|---|---|---|"""
COLUMNS = (
    "scheduler",
    "in use",
    "useful",
    "wait mean",
    "wait p90",
    "wait p99",
    "slowdown",
    "not running",
    "stops",
    "most stops",
    "work lost",
    "firm kept",
    "conditional kept",
    "fairness",
    "not finished",
)


def write_page(folder: Path, by_case: Found) -> None:
    folder.mkdir(exist_ok=True)
    parts = [HEAD, verdicts(by_case)]
    for title, reports in by_case.items():
        if reports:
            name = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
            (folder / f"{name}.svg").write_text(waits(title, reports), encoding="utf-8")
            parts += [f"## {title}\n", about(reports[0]), table(reports)]
            parts.append(f"![How long jobs waited]({name}.svg)\n")
    (folder / "schedulers.md").write_text("\n".join(parts), encoding="utf-8")


def verdicts(by_case: Found) -> str:
    """Returns the table of bars, then the claims about losses."""
    lines = ["## What was asked and what was measured\n", "| asked | measured | |", "|---|---|---|"]
    lines += [f"| {bar.asked} | {bar.measured} | {ANSWERS[bar.holds]} |" for bar in bars(by_case)]
    lines += ["\n## Where Jobtree loses, and why\n"]
    lines += [f"{claim.text}\n" for claim in CLAIMS if claim.holds(by_case)] or [
        "Nowhere in these replays.\n"
    ]
    lines += [LOSSES_HEAD, *(f"| {' | '.join(cells(loss))} |" for loss in losses(by_case)), ""]
    return "\n".join(lines)


def cells(loss: Loss) -> tuple[str, str, str, str]:
    better = ", ".join(f"{policy} {figure}" for policy, figure in loss.better)
    return loss.title, loss.figure, loss.have, better


def about(report: Report) -> str:
    spec = report.spec
    return (
        f"{spec.jobs:,} jobs, {spec.work_gpu_hours:,.0f} GPU-hours, "
        f"{spec.nodes:,} nodes with {spec.gpus:,} GPUs; domains: {spec.domains}; outages: {spec.outages}.\n"
    )


def table(reports: Sequence[Report]) -> str:
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    lines += [f"| {' | '.join(row(report))} |" for report in reports]
    return "\n".join(lines) + "\n"


def row(report: Report) -> list[str]:
    result = report.status
    wait = result.all_jobs.wait_seconds
    return [
        report.spec.policy,
        f"{100 * result.fleet.allocated:.1f} %",
        f"{100 * result.fleet.useful:.1f} %",
        *(f"{seconds / 3600:,.2f} h" for seconds in (wait.mean, wait.p90, wait.p99)),
        f"{result.all_jobs.slowdown.mean:,.1f}",
        f"{result.all_jobs.not_running_seconds.mean / 3600:,.2f} h",
        f"{sum(stop.count for stop in result.stops):,}",
        f"{result.stopped_jobs.most_stops:,}",
        f"{100 * result.lost_share:.2f} %",
        *kept_cells(result),
        f"{result.fairness:.3f}",
        f"{result.unfinished:,}",
    ]


def kept_cells(result: Result) -> tuple[str, str]:
    """The shares of firm and of conditional promises that were kept."""
    if result.promises is None:
        return "-", "-"
    firm, conditional = (
        f"{100 * counted.kept_share:.2f} % of {counted.dated:,}" if counted.dated else "-"
        for counted in (result.promises.firm, result.promises.conditional)
    )
    return firm, conditional


def waits(title: str, reports: Sequence[Report]) -> str:
    lines = [
        PlotLine(
            report.spec.policy,
            [
                (max(0.0, seconds), float(percent))
                for percent, seconds in enumerate(report.status.wait_quantiles)
            ],
        )
        for report in reports
    ]
    across = Axis("wait, logarithmic", logarithmic=True)
    return picture(f"{title}: how long jobs waited", across, Axis("% of jobs"), lines)
