"""Compares two reports side by side: the main figures, and their differences."""

from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from jobtree.api.schema.problems import InputError
from jobtree.simulation.reports.report import Report, Result


class ComparisonRow(NamedTuple):
    name: str
    first: float | None
    second: float | None
    unit: str = ""
    decimals: int = 0


def read_report(path: str) -> Report:
    """Reads a report that ``simulate --json`` wrote. Raises InputError."""
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Report)
    except FileNotFoundError:
        raise InputError(path, ["there is no such file"]) from None
    except OSError as broken:
        raise InputError(path, [f"cannot be read: {broken.strerror}"]) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as broken:
        rule = f"is not a report: {broken}; 'kubectl runs simulate … --json FILE' writes one"
        raise InputError(path, [rule]) from None


def rows(first: Report, second: Report) -> list[ComparisonRow]:
    before, after = first.status, second.status
    figures = [
        ComparisonRow("allocated", 100 * before.fleet.allocated, 100 * after.fleet.allocated, "%", 1),
        ComparisonRow("useful", 100 * before.fleet.useful, 100 * after.fleet.useful, "%", 1),
        ComparisonRow(
            "idle beside busy", 100 * before.fleet.fragmentation, 100 * after.fleet.fragmentation, "%", 1
        ),
    ]
    for name in ("wait_seconds", "completion_seconds", "not_running_seconds", "slowdown"):
        spread, after_spread = getattr(before.all_jobs, name), getattr(after.all_jobs, name)
        word, decimals, unit = name.removesuffix("_seconds").replace("_", " "), 1, ""
        if name.endswith("_seconds"):
            decimals, unit = 0, "s"
        figures += [
            ComparisonRow(
                f"{word} {part}", getattr(spread, part), getattr(after_spread, part), unit, decimals
            )
            for part in ("mean", "p50", "p90", "p99")
        ]
    figures += [
        ComparisonRow("work lost to stops", 100 * before.lost_share, 100 * after.lost_share, "%", 2),
        ComparisonRow(
            "stops", sum(stop.count for stop in before.stops), sum(stop.count for stop in after.stops)
        ),
        ComparisonRow(
            "stops per job", before.stopped_jobs.stops_per_job, after.stopped_jobs.stops_per_job, "", 3
        ),
        ComparisonRow("jobs stopped", before.stopped_jobs.jobs, after.stopped_jobs.jobs),
        ComparisonRow("most stops of a job", before.stopped_jobs.most_stops, after.stopped_jobs.most_stops),
        ComparisonRow("firm promises kept", kept_share(before, "firm"), kept_share(after, "firm"), "%", 2),
        ComparisonRow(
            "conditional ones kept",
            kept_share(before, "conditional"),
            kept_share(after, "conditional"),
            "%",
            2,
        ),
        ComparisonRow("error of promises p99", last_error(before), last_error(after), "s"),
        *(
            ComparisonRow(
                f"started by {part}", expected_share(before, part), expected_share(after, part), "%", 1
            )
            for part in ("p50", "p90")
        ),
        ComparisonRow("fairness", before.fairness, after.fairness, "", 3),
        ComparisonRow("jobs", first.spec.jobs, second.spec.jobs),
        ComparisonRow("not finished", before.unfinished, after.unfinished),
    ]
    return figures + team_rows(first, second)


def kept_share(result: Result, confidence: Literal["firm", "conditional"]) -> float | None:
    if result.promises is None:
        return None
    promises = result.promises.firm if confidence == "firm" else result.promises.conditional
    return 100 * promises.kept_share


def last_error(result: Result) -> float | None:
    return None if result.promises is None else result.promises.error_seconds.p99


def expected_share(result: Result, part: str) -> float | None:
    """Returns the percentage of Runs with an expected start that started by p50 or p90."""
    return None if result.expected is None else 100 * float(getattr(result.expected, f"by_{part}"))


def team_rows(first: Report, second: Report) -> list[ComparisonRow]:
    """Returns rows with the wait and the used grant of each team that is in both reports."""
    after_times = {times.name: times for times in second.status.by_team}
    after_uses = {use.team: use for use in second.status.budgets}
    waits = [
        ComparisonRow(
            f"wait mean, {times.name}",
            times.wait_seconds.mean,
            after_times[times.name].wait_seconds.mean,
            "s",
        )
        for times in first.status.by_team
        if times.name in after_times
    ]
    return waits + [
        ComparisonRow(f"use of budget, {use.team}", 100 * use.use, 100 * after_uses[use.team].use, "%", 1)
        for use in first.status.budgets
        if use.team in after_uses
    ]


def cells(row: ComparisonRow) -> tuple[str, str, str, str]:
    """Returns the name, both figures, and their difference."""
    change = None if row.first is None or row.second is None else row.second - row.first
    return row.name, said(row.first, row), said(row.second, row), said(change, row, signed=True)


def said(value: float | None, row: ComparisonRow, *, signed: bool = False) -> str:
    if value is None:
        return "-"
    text = f"{value:+,.{row.decimals}f}" if signed else f"{value:,.{row.decimals}f}"
    return f"{text} {row.unit}".rstrip()
