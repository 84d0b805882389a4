"""Writes a report as one HTML page without other files: tables, and plots as inline SVG."""

from collections.abc import Iterable, Sequence
from html import escape

from jobtree.simulation.reports.comparison import cells, rows as side_by_side
from jobtree.simulation.reports.report import Report, Result, Spread, Times
from jobtree.simulation.reports.svg_plots import Axis, PlotLine, chart, paint

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 960px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
p, figcaption { color: var(--soft); } figure { margin: 1.5rem 0; } figcaption { font-weight: 600; }
table { border-collapse: collapse; width: 100%; display: block; overflow-x: auto; white-space: nowrap; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid var(--grid); }
th:first-child, td:first-child { text-align: left; } th { color: var(--soft); font-weight: 600; }
svg { width: 100%; height: auto; }
figure ul { list-style: none; display: flex; flex-wrap: wrap; gap: 1rem; padding: 0; margin: .3rem 0; }
.swatch { display: inline-block; width: .8em; height: .8em; margin-right: .4em; }
"""


def page(report: Report, changed: Report | None = None) -> str:
    """Returns the page of a report; with a second report, both are shown side by side."""
    before, report = report, changed or report
    title = f"{report.spec.policy} on {report.spec.trace}"
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{paint()}{STYLE}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            f"<p>{escape(headline(report))}</p>",
            *([] if changed is None else ["<h2>What changes</h2>", change_table(before, changed)]),
            *plots(report),
            "<h2>Figures</h2>",
            table(("", ""), summary(report)),
            *(
                part
                for title, times in class_table(report)
                for part in (f"<h2>{title}</h2>", times_table(times))
            ),
            "<h2>Budgets while jobs arrive</h2>",
            budget_table(report),
            "</body></html>\n",
        ]
    )


def headline(report: Report) -> str:
    spec = report.spec
    changes = f"; what if: {', '.join(spec.what_if)}" if spec.what_if else ""
    return (
        f"{several(spec.jobs, 'job')}, {spec.work_gpu_hours:,.0f} GPU-hours, "
        f"on {several(spec.nodes, 'node')} with {several(spec.gpus, 'GPU')}; "
        f"maxDuration declared: {spec.declares}; {several(spec.outages, 'node outage')}; "
        f"seed {spec.seed}{changes}"
    )


def several(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def change_table(before: Report, changed: Report) -> str:
    return table(("", "as it is", "what if", "change"), map(cells, side_by_side(before, changed)))


def plots(report: Report) -> list[str]:
    return [occupancy(report), waits(report), errors(report), burn(report)]


def over_days(report: Report, values: Sequence[float]) -> list[tuple[float, float]]:
    step = report.status.series.step_seconds / 86_400
    return [(number * step, value) for number, value in enumerate(values)]


def occupancy(report: Report) -> str:
    series, last = report.status.series, report.status.fleet.hours / 24
    lines = [
        PlotLine("GPUs in use", over_days(report, series.allocated), filled=True),
        PlotLine("in service", over_days(report, series.capacity), dashed=True),
        PlotLine("waited for", over_days(report, series.waiting)),
        PlotLine("last submission", [(last, 0.0), (last, float(report.spec.gpus))], dashed=True),
    ]
    return chart("Occupancy over time", Axis("days"), Axis("GPUs"), lines)


def waits(report: Report) -> str:
    points = [(max(0.0, seconds), percent) for percent, seconds in enumerate(report.status.wait_quantiles)]
    line = PlotLine(
        "jobs that waited at most so long", [(seconds, float(percent)) for seconds, percent in points]
    )
    return chart(
        "How long jobs waited", Axis("wait, logarithmic", logarithmic=True), Axis("% of jobs"), [line]
    )


def errors(report: Report) -> str:
    points = [(seconds, float(percent)) for percent, seconds in enumerate(report.status.promise_errors)]
    across = Axis(
        "start minus promised start, logarithmic (negative: earlier than promised)", logarithmic=True
    )
    line = PlotLine("promises with at most this error", points)
    return chart("Error of promises", across, Axis("% of promises"), [line])


def burn(report: Report) -> str:
    title = "Budgets: GPU-hours granted and not used by the team"
    return chart(title, Axis("days"), Axis("GPU-hours left"), budget_lines(report))


def budget_lines(report: Report) -> list[PlotLine]:
    """Returns lines that fall from the whole grant to what is left when the last job arrives."""
    series, hours = report.status.series, report.status.fleet.hours
    step = series.step_seconds / 3600
    lines = []
    for budget in report.status.budgets:
        granted, points = budget.granted_gpu_hours, [(0.0, budget.granted_gpu_hours)]
        for number, used in enumerate(series.used_gpu_hours[budget.team], 1):
            if number * step < hours:
                points.append((number * step / 24, granted - used))
        points.append((hours / 24, granted - budget.used_gpu_hours))
        lines.append(PlotLine(budget.team, points))
    return lines


# Tables


def summary(report: Report) -> list[tuple[str, str]]:
    result = report.status
    fleet, jobs = result.fleet, result.all_jobs
    rows = [
        ("allocated", percent(fleet.allocated)),
        ("useful", percent(fleet.useful)),
        ("idle GPUs beside busy ones", percent(fleet.fragmentation)),
        ("wait: mean, p50, p90, p99", figures(jobs.wait_seconds, "s")),
        ("completion: mean, p50, p90, p99", figures(jobs.completion_seconds, "s")),
        ("slowdown: mean, p50, p90, p99", figures(jobs.slowdown)),
        ("not running: mean, p50, p90, p99", figures(jobs.not_running_seconds, "s")),
        ("work lost to stops and restarts", percent(result.lost_share)),
        ("stops per job", f"{result.stopped_jobs.stops_per_job:.3f}"),
        ("jobs stopped, most stops of one", stopped_jobs(result)),
        ("fairness (Jain)", f"{result.fairness:.3f}"),
        ("jobs not finished", f"{result.unfinished:,}"),
    ]
    if result.promises is not None:
        promises = result.promises
        rows.append(("promises made, with a date", f"{promises.made:,}, {promises.dated:,}"))
        rows += [
            (f"kept, of {promises.firm.dated:,} firm", percent(promises.firm.kept_share)),
            (
                f"kept, of {promises.conditional.dated:,} conditional",
                percent(promises.conditional.kept_share),
            ),
            ("slipped, withdrawn", f"{promises.slipped:,}, {promises.withdrawn:,}"),
        ]
        wait = promises.promised_wait_seconds
        rows.append(("promised wait: mean, p50, p90, p99", figures(wait, "s")))
        error = promises.error_seconds
        rows.append(("error of promises: mean, p50, p90, p99", figures(error, "s")))
        rows += [(f"slipped: {reason}", f"{count:,}") for reason, count in promises.slip_reasons.items()]
        rows += [(f"not kept: {reason}", f"{count:,}") for reason, count in promises.broken_reasons.items()]
    if result.expected is not None:
        parts = f"{percent(result.expected.by_p50)}, {percent(result.expected.by_p90)}"
        rows.append((f"started by expected p50, p90 (of {result.expected.told:,})", parts))
    rows += [
        (f"stopped: {stop.reason}", f"{stop.count:,}, {stop.lost_gpu_hours:,.0f} GPU-hours lost")
        for stop in result.stops
    ]
    return rows


def stopped_jobs(result: Result) -> str:
    return f"{result.stopped_jobs.jobs:,}, {result.stopped_jobs.most_stops:,}"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def figures(spread: Spread, unit: str = "") -> str:
    decimals = 0 if unit else 1
    values = (spread.mean, spread.p50, spread.p90, spread.p99)
    return f"{', '.join(f'{value:,.{decimals}f}' for value in values)} {unit}".rstrip()


def class_table(report: Report) -> list[tuple[str, tuple[Times, ...]]]:
    return [("By GPUs of the job", report.status.by_size), ("By team", report.status.by_team)]


def times_table(classes: Iterable[Times]) -> str:
    parts = ("p50", "p90", "p99")
    head = ("", "jobs", "wait mean, s", *parts, "completion mean, s", *parts, "slowdown mean")
    rows = [
        (
            times.name,
            f"{times.jobs:,}",
            *(f"{getattr(times.wait_seconds, part):,.0f}" for part in ("mean", *parts)),
            *(f"{getattr(times.completion_seconds, part):,.0f}" for part in ("mean", *parts)),
            f"{times.slowdown.mean:,.1f}",
        )
        for times in classes
    ]
    return table(head, rows)


def budget_table(report: Report) -> str:
    head = ("team", "GPUs", "granted GPU-hours", "used GPU-hours", "use")
    rows = [
        (
            budget.team,
            f"{budget.granted_gpus:,}",
            f"{budget.granted_gpu_hours:,.0f}",
            f"{budget.used_gpu_hours:,.0f}",
            percent(budget.use),
        )
        for budget in report.status.budgets
    ]
    return table(head, rows)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"
