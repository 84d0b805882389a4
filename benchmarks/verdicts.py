"""The results of the comparison: each bar with its measurement, and claims about where Jobtree loses.

Claims are written by people. Each has a condition on the figures, and is left out of the page if the
condition does not hold.
"""

from collections.abc import Callable, Container, Mapping, Sequence

import msgspec

from jobtree.simulation.reports.report import Report

Found = Mapping[str, Sequence[Report]]  # by title of the case
COUNT_ON = "conservative"


class Bar(msgspec.Struct, frozen=True):
    asked: str
    measured: str
    holds: bool | None  # None: nothing is asked of it


class Loss(msgspec.Struct, frozen=True):
    """A figure in which other schedulers are better, the best of them first."""

    title: str
    figure: str
    have: str
    better: tuple[tuple[str, str], ...]  # scheduler and figure


class Claim(msgspec.Struct, frozen=True):
    text: str
    holds: Callable[[Found], bool]


def jobtree(reports: Sequence[Report]) -> Report | None:
    return next((report for report in reports if report.spec.policy == "jobtree"), None)


def others(reports: Sequence[Report]) -> list[Report]:
    return [report for report in reports if report.spec.policy != "jobtree"]


def hours(seconds: float) -> str:
    return f"{seconds / 3600:,.2f} h"


# What is compared: the figure, whether more of it is better, and as it is written.
FIGURES: tuple[tuple[str, bool, Callable[[Report], str]], ...] = (
    ("in use", True, lambda report: f"{100 * report.status.fleet.allocated:.1f} %"),
    ("wait mean", False, lambda report: hours(report.status.all_jobs.wait_seconds.mean)),
    ("wait p90", False, lambda report: hours(report.status.all_jobs.wait_seconds.p90)),
    ("wait p99", False, lambda report: hours(report.status.all_jobs.wait_seconds.p99)),
    ("slowdown", False, lambda report: f"{report.status.all_jobs.slowdown.mean:,.1f}"),
    ("lost to preemption", False, lambda report: f"{preempted_percent(report):.2f} %"),
    ("fairness", True, lambda report: f"{report.status.fairness:.3f}"),
)


def preempted_percent(report: Report) -> float:
    """Returns the work lost by stops of the scheduler, in percent of all work; node failures do not count."""
    chosen = [stop for stop in report.status.stops if stop.reason != "NodeFailure"]
    hours_lost = sum(stop.lost_gpu_hours for stop in chosen)
    return 100 * hours_lost / (report.spec.work_gpu_hours + hours_lost)


def losses(by_case: Found) -> list[Loss]:
    """Returns every figure of every case in which another scheduler is better, as rounded on the page."""
    rows: list[Loss] = []
    for title, reports in by_case.items():
        mine = jobtree(reports)
        if mine is None:
            continue
        for figure, more, written in FIGURES:
            have = written(mine)
            sign = 1 if more else -1
            figures = [
                (sign * amount(written(report)), report.spec.policy, written(report))
                for report in others(reports)
            ]
            better = sorted((report for report in figures if report[0] > sign * amount(have)), reverse=True)
            if better:
                rows.append(Loss(title, figure, have, tuple((policy, value) for _, policy, value in better)))
    return rows


def amount(written: str) -> float:
    return float(written.split(maxsplit=1)[0].replace(",", ""))


def loses(by_case: Found, figures: Container[str], policies: Container[str]) -> bool:
    return any(
        loss.figure in figures and any(policy in policies for policy, _ in loss.better)
        for loss in losses(by_case)
    )


def bars(by_case: Found) -> list[Bar]:
    """Returns the bars of all cases."""
    rows: list[Bar] = []
    for title, reports in by_case.items():
        mine = jobtree(reports)
        if mine is None or not others(reports):
            continue
        rows += [utilisation(title, mine, reports)] if "110 %" in title else []
        rows += [waits(title, mine, reports)] if "90 %" in title else []
        rows += [*kept(title, mine), lost(title, mine), *expected(title, mine)]
    return rows


def utilisation(title: str, mine: Report, reports: Sequence[Report]) -> Bar:
    best = max(others(reports), key=lambda report: report.status.fleet.allocated)
    have, need = (100 * report.status.fleet.allocated for report in (mine, best))
    measured = f"{have:.1f} %, {best.spec.policy} {need:.1f} %"
    return Bar(f"{title}: in use within 2 points of the best", measured, have >= need - 2)


def waits(title: str, mine: Report, reports: Sequence[Report]) -> Bar:
    theirs = next(report for report in reports if report.spec.policy == COUNT_ON)
    have, need = (report.status.all_jobs.wait_seconds.p90 / 3600 for report in (mine, theirs))
    return Bar(
        f"{title}: p90 wait at most that of {COUNT_ON}", f"{have:.2f} h, it {need:.2f} h", have <= need
    )


def kept(title: str, mine: Report) -> list[Bar]:
    """Firm promises have a bar. Conditional ones give way to the owners of their money: reported apart."""
    promises = mine.status.promises
    assert promises is not None
    least = 97 if mine.spec.outages else 99.9
    reasons = ", ".join(f"{reason} {count}" for reason, count in promises.broken_reasons.items())
    firm, conditional = (
        f"{100 * counted.kept_share:.2f} % of {counted.dated}"
        for counted in (promises.firm, promises.conditional)
    )
    return [
        Bar(
            f"{title}: {least} % of firm promises kept",
            f"{firm}; not kept, of all: {reasons or 'none'}",
            100 * promises.firm.kept_share >= least,
        ),
        Bar(f"{title}: conditional promises kept, reported apart", conditional, None),
    ]


def lost(title: str, mine: Report) -> Bar:
    """Returns the bar of lost work; it has no limit if jobs ignore warnings."""
    share = preempted_percent(mine)
    if mine.spec.on_notice == "Ignore":
        return Bar(f"{title}: work lost to preemption, reported apart", f"{share:.2f} %", None)
    most = 5 if sum(mine.spec.budgets.values()) > mine.spec.gpus else 2
    return Bar(f"{title}: at most {most} % of work lost to preemption", f"{share:.2f} %", share <= most)


def expected(title: str, mine: Report) -> list[Bar]:
    estimates = mine.status.expected
    if estimates is None:
        return []
    half, most = 100 * estimates.by_p50, 100 * estimates.by_p90
    return [
        Bar(
            f"{title}: expected starts, 40-60 % by p50 and 85-95 % by p90",
            f"{half:.0f} % and {most:.0f} % of {estimates.told}",
            40 <= half <= 60 and 85 <= most <= 95,
        )
    ]


def missed(by_case: Found, words: str) -> bool:
    return any(words in bar.asked and bar.holds is False for bar in bars(by_case))


def large_gangs_wait_longer(by_case: Found) -> bool:
    """Whether a case misses its p90 wait while its largest jobs wait longer than under backfill."""
    for title, reports in by_case.items():
        mine = jobtree(reports)
        theirs = next((report for report in reports if report.spec.policy == COUNT_ON), None)
        if "90 %" in title and mine and theirs and not waits(title, mine, reports).holds:
            have, need = (report.status.by_size[-1].wait_seconds.mean for report in (mine, theirs))
            return have > need and not missed(by_case, "never bind: p90 wait")
    return False


CLAIMS = (
    Claim(
        "**Budgets make large gangs wait.** Where Jobtree's p90 wait is longer than conservative "
        "backfill's, small jobs wait as long or less, and gangs of several nodes, whose team's "
        "budget is smaller than they are, wait longer: they need what others lend, and lose it when "
        "those want it back. The quota schedulers, which know budgets too, show the same; backfill "
        "knows no teams and serves the oldest. The case in which budgets never bind shows that nothing "
        "else makes them wait: there Jobtree's p90 wait is the shorter one.",
        large_gangs_wait_longer,
    ),
    Claim(
        "**Promises that were not kept.** A promise is kept if its Run runs, paid, at the earliest date "
        "that it was told, and is not stopped soon after it. Which nodes a lottery or an early start "
        "leaves is not known beforehand, so now and then a promise finds its GPUs on nodes that an older "
        "one needs whole. It slips, half an hour at a time, and every slip is recorded with its reason.",
        lambda found: missed(found, "firm promises kept"),
    ),
    Claim(
        "**Expected starts are not calibrated on all of these traces.** What is told follows from how "
        "long a team's jobs of that size took so far, and is steered by what came of earlier tellings. Where "
        "dozens of jobs arrive within minutes, all are told before anything has come of the first, and they "
        "share one fate: a few such bursts among some hundred jobs are not enough to even that out.",
        lambda found: missed(found, "expected starts"),
    ),
    Claim(
        "**Utilisation under overload.** The best here serves jobs of whole nodes before smaller ones, "
        "which leaves fewer nodes half empty; Jobtree has no priorities. It keeps nodes whole for the "
        "gangs that it has promised a start, all of them and not only the first in line.",
        lambda found: missed(found, "in use"),
    ),
    Claim(
        "**Work lost.** What runs on money that its owner takes back is not warned, and goes on from "
        "its last checkpoint.",
        lambda found: missed(found, "work lost"),
    ),
    Claim(
        "**`sjf` lets people wait less.** It knows how long every job takes, which no real scheduler does, "
        "and starts the shortest first; slowdown counts the wait of a short job most. Jobtree goes by who "
        "came first and what was promised. Short jobs pass where they are certain to end in time, so the gap "
        "is widest where nobody declares a `maxDuration`.",
        lambda found: loses(found, {"wait mean", "wait p90", "slowdown"}, {"sjf"}),
    ),
    Claim(
        "**The quota schedulers keep some more GPUs in use, and some waits are shorter with them.** They "
        "start whatever fits and keep a place for nobody. Jobtree leaves GPUs idle that it has promised, "
        "unless somebody fits there who is certain to end in time or saves its state, and it does so for "
        "everybody who waits. Without `maxDuration` nobody is certain to end in time.",
        lambda found: loses(
            found, {"in use", "wait mean", "wait p90", "wait p99"}, {"quota", "quota-by-size"}
        ),
    ),
    Claim(
        "**FIFO and backfill stop nothing that runs, and Jobtree does.** It gives a team its money back, and "
        "keeps its promises, by stopping what runs on either; what was not saved is lost.",
        lambda found: loses(found, {"lost to preemption"}, {"fifo", "sjf", "easy", "conservative"}),
    ),
)
