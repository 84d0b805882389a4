"""Two reports side by side: the figures that people ask for first, and what changed."""

from pathlib import Path
from typing import NamedTuple

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
    """A report as ``simulate --json`` wrote it. Raises InputError."""
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Report)
    except FileNotFoundError:
        raise InputError(path, ["there is no such file"]) from None
    except OSError as broken:
        raise InputError(path, [f"cannot be read: {broken.strerror}"]) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as broken:
        rule = f"is no report: {broken}; 'kubectl runs simulate … --json FILE' writes one"
        raise InputError(path, [rule]) from None


def rows(first: Report, second: Report) -> list[ComparisonRow]:
    one, two = first.status, second.status
    found = [
        ComparisonRow("allocated", 100 * one.fleet.allocated, 100 * two.fleet.allocated, "%", 1),
        ComparisonRow("useful", 100 * one.fleet.useful, 100 * two.fleet.useful, "%", 1),
        ComparisonRow(
            "idle beside busy", 100 * one.fleet.fragmentation, 100 * two.fleet.fragmentation, "%", 1
        ),
    ]
    for name in ("wait_seconds", "completion_seconds", "slowdown"):
        spread, other = getattr(one.all_jobs, name), getattr(two.all_jobs, name)
        word, _, unit = name.partition("_")
        decimals, unit = (0, "s") if unit else (1, "")
        found += [
            ComparisonRow(f"{word} {part}", getattr(spread, part), getattr(other, part), unit, decimals)
            for part in ("mean", "p50", "p90", "p99")
        ]
    found += [
        ComparisonRow("work lost to stops", 100 * one.lost_share, 100 * two.lost_share, "%", 2),
        ComparisonRow("stops", sum(stop.count for stop in one.stops), sum(stop.count for stop in two.stops)),
        ComparisonRow("promises kept", kept_share(one), kept_share(two), "%", 2),
        ComparisonRow("error of promises p99", last_error(one), last_error(two), "s"),
        *(
            ComparisonRow(f"started by {part}", expected_share(one, part), expected_share(two, part), "%", 1)
            for part in ("p50", "p90")
        ),
        ComparisonRow("fairness", one.fairness, two.fairness, "", 3),
        ComparisonRow("jobs", first.spec.jobs, second.spec.jobs),
        ComparisonRow("not finished", one.unfinished, two.unfinished),
    ]
    return found + team_rows(first, second)


def kept_share(result: Result) -> float | None:
    return None if result.promises is None else 100 * result.promises.kept_share


def last_error(result: Result) -> float | None:
    return None if result.promises is None else result.promises.error_seconds.p99


def expected_share(result: Result, part: str) -> float | None:
    """Per cent of those told an expected start who started by that part of it."""
    return None if result.expected is None else 100 * float(getattr(result.expected, f"by_{part}"))


def team_rows(first: Report, second: Report) -> list[ComparisonRow]:
    """What each team waits, and uses of its grant, where both reports have it."""
    others = {times.name: times for times in second.status.by_team}
    uses = {use.team: use for use in second.status.budgets}
    waits = [
        ComparisonRow(
            f"wait mean, {times.name}", times.wait_seconds.mean, others[times.name].wait_seconds.mean, "s"
        )
        for times in first.status.by_team
        if times.name in others
    ]
    return waits + [
        ComparisonRow(f"use of budget, {use.team}", 100 * use.use, 100 * uses[use.team].use, "%", 1)
        for use in first.status.budgets
        if use.team in uses
    ]


def cells(row: ComparisonRow) -> tuple[str, str, str, str]:
    """Name, both figures, and the second minus the first."""
    change = None if row.first is None or row.second is None else row.second - row.first
    return row.name, said(row.first, row), said(row.second, row), said(change, row, signed=True)


def said(value: float | None, row: ComparisonRow, *, signed: bool = False) -> str:
    if value is None:
        return "-"
    text = f"{value:+,.{row.decimals}f}" if signed else f"{value:,.{row.decimals}f}"
    return f"{text} {row.unit}".rstrip()
