"""Formats reports of replays as tables."""

from collections.abc import Iterable, Sequence

import click
import msgspec

from jobtree.cli.shell.object_output import print_objects
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.shell.table import Column, print_table
from jobtree.messages.wording import age, counted_noun
from jobtree.simulation.reports.comparison import cells, read_report, rows
from jobtree.simulation.reports.html_page import headline, percent
from jobtree.simulation.reports.report import KeptPromises, Report, Result, Spread, Times

TIMES = (
    Column("JOBS OF"),
    Column("JOBS", right=True),
    Column("WAIT MEAN", right=True),
    Column("P50", right=True),
    Column("P90", right=True),
    Column("P99", right=True),
    Column("DONE MEAN", rank=1, right=True),
    Column("P50", rank=3, right=True),
    Column("P90", rank=3, right=True),
    Column("P99", rank=3, right=True),
    Column("SLOWDOWN", rank=2, right=True),
)
BUDGETS = (
    Column("TEAM"),
    Column("GPUS", right=True),
    Column("UNUSABLE", rank=1, right=True),
    Column("GRANTED", right=True),
    Column("USED", right=True),
    Column("USE", right=True),
)


def print_reports(settings: CommandOptions, reports: Sequence[Report]) -> None:
    """Prints one report, or two side by side."""
    if not settings.human:
        print_objects(settings, [msgspec.to_builtins(report) for report in reports], many=len(reports) > 1)
    elif len(reports) > 1:
        click.echo(f"what if: {', '.join(reports[1].spec.what_if)}\n")
        print_side_by_side(settings, ("AS IT IS", "WHAT IF"), reports)
    else:
        print_report(settings, reports[0])


def print_comparison(settings: CommandOptions, first: str, second: str) -> None:
    reports = [read_report(first), read_report(second)]
    if not settings.human:
        print_objects(settings, [msgspec.to_builtins(report) for report in reports])
        return
    for name, report in zip((first, second), reports, strict=True):
        click.echo(f"{name}: {report.spec.policy}; {headline(report)}")
    click.echo()
    print_side_by_side(settings, (first, second), reports)


def print_side_by_side(settings: CommandOptions, titles: tuple[str, str], reports: Sequence[Report]) -> None:
    columns = [Column("FIGURE"), *(Column(title, right=True) for title in (*titles, "CHANGE"))]
    print_table(settings, columns, [cells(row) for row in rows(*reports)])


def print_report(settings: CommandOptions, report: Report) -> None:
    click.echo(f"{report.spec.policy} on {report.spec.trace}: {headline(report)}\n")
    for line in report_lines(report):
        click.echo(line)
    click.echo()
    print_table(settings, TIMES, [times_row(times) for times in all_times(report)])
    click.echo()
    print_table(settings, BUDGETS, list(budget_rows(report)))


def report_lines(report: Report) -> Iterable[str]:
    result, fleet = report.status, report.status.fleet
    yield (
        f"allocated {percent(fleet.allocated)}, useful {percent(fleet.useful)}, while jobs arrive "
        f"({fleet.hours:,.0f} h); {percent(fleet.fragmentation)} of idle GPUs are on partly used nodes"
    )
    promises = result.promises
    if promises is not None:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in promises.slip_reasons.items())
        yield (
            f"{promises.made:,} promises, {promises.dated:,} dates that have passed: "
            f"slipped {promises.slipped:,}{f' ({reasons})' if reasons else ''}"
        )
        yield f"kept {kept_text('firm', promises.firm)}, {kept_text('conditional', promises.conditional)}"
        if promises.broken:
            causes = ", ".join(f"{reason} {count:,}" for reason, count in promises.broken_reasons.items())
            yield f"not kept: {causes}"
        if promises.dated:
            mean, p50, p90, p99 = ages(promises.promised_wait_seconds)
            yield f"promised start minus submission: mean {mean}, p50 {p50}, p90 {p90}, p99 {p99}"
            mean, p50, p90, p99 = ages(promises.error_seconds)
            yield f"start minus promised start: mean {mean}, p50 {p50}, p90 {p90}, p99 {p99}"
    if result.expected is not None:
        yield (
            f"of {result.expected.told:,} Runs with an expected start, "
            f"{percent(result.expected.by_p50)} started by p50, {percent(result.expected.by_p90)} by p90"
        )
    stops = ", ".join(
        f"{stop.reason} {stop.count:,} ({stop.lost_gpu_hours:,.0f} GPU-hours)" for stop in result.stops
    )
    if report.spec.restart_cost_seconds:
        stops += f"{', ' if stops else ''}restarts ({result.restart_gpu_hours:,.0f} GPU-hours)"
    yield f"work lost to stops {percent(result.lost_share)}{f': {stops}' if stops else ''}"
    yield from stopped_lines(result)
    yield f"fairness {result.fairness:.3f} (Jain, over teams)"
    if unusable := sum(budget.unusable_gpus for budget in result.budgets):
        granted = sum(budget.granted_gpus for budget in result.budgets)
        yield (
            f"{unusable:,} of {granted:,} budgeted GPUs can pay no pod of {report.spec.pod_gpus}, "
            "the usual size: a pod has one payer"
        )
    if result.unfinished:
        yield f"{result.unfinished:,} jobs never finished"


def kept_text(confidence: str, promises: KeptPromises) -> str:
    """``99.9 % of 1,200 firm ones``."""
    return f"{100 * promises.kept_share:.2f} % of {promises.dated:,} {confidence}"


def stopped_lines(result: Result) -> Iterable[str]:
    idle, stopped = result.all_jobs.not_running_seconds, result.stopped_jobs
    mean, p50, p90, p99 = ages(idle)
    worst = ""
    if stopped.longest_not_running_row is not None:
        longest = age(round(1000 * stopped.longest_not_running_seconds))
        worst = f"; longest {longest} (line {stopped.longest_not_running_row})"
    yield f"not running: mean {mean}, p50 {p50}, p90 {p90}, p99 {p99}{worst}"
    if stopped.jobs:
        yield (
            f"stops per job {stopped.stops_per_job:.3f}; {counted_noun(stopped.jobs, 'job')} stopped; "
            f"most {stopped.most_stops:,} (line {stopped.most_stops_row})"
        )


def all_times(report: Report) -> list[Times]:
    result = report.status
    sizes = [msgspec.structs.replace(times, name=counted_noun(times.name, "GPU")) for times in result.by_size]
    return [result.all_jobs, *sizes, *(result.by_team if len(result.by_team) > 1 else ())]


def times_row(times: Times) -> list[str]:
    waits, done = ages(times.wait_seconds), ages(times.completion_seconds)
    return [times.name, f"{times.jobs:,}", *waits, *done, f"{times.slowdown.mean:,.1f}"]


def ages(spread: Spread) -> list[str]:
    """Returns mean, p50, p90 and p99 as durations; negative values were early."""
    values = (spread.mean, spread.p50, spread.p90, spread.p99)
    return [f"{'-' * (value < 0)}{age(round(1000 * abs(value)))}" for value in values]


def budget_rows(report: Report) -> Iterable[list[str]]:
    for use in report.status.budgets:
        granted, used = f"{use.granted_gpu_hours:,.0f} h", f"{use.used_gpu_hours:,.0f} h"
        yield [use.team, f"{use.granted_gpus:,}", f"{use.unusable_gpus:,}", granted, used, percent(use.use)]
