"""Writes the reference of reasons, Events, metrics and exit codes from the code."""

from collections.abc import Iterable

from jobtree.cli.shell.command_errors import MEANINGS
from jobtree.core.model.outcomes import CLOSURES, EVENTS, OPENINGS
from jobtree.core.model.reasons import FUNDING, ROOM, Reason
from jobtree.manager.metrics import METRICS
from pages.tables import table

REASONS = (
    "Every reason that Jobtree gives. The word is in `status.reason` and in the condition of a Run; the",
    "sentence is in `status.message` and in the output of `kubectl runs explain`. *h* is the present amount,",
    "*n* the needed one.",
)
BLANKS = {"where": "…", "have": "*h*", "need": "*n*"}


def reasons_page() -> str:
    """Returns the page of reasons of Runs and leases."""
    parts = {
        "No funding": _sentences(reason for reason in Reason if reason.topic == FUNDING),
        "No free GPUs": _sentences(reason for reason in Reason if reason.topic == ROOM),
        "Outcomes of Runs and promises": _sentences(
            reason for reason in Reason if reason.topic not in {FUNDING, ROOM}
        ),
        "Why Leases open": [(f"`{reason}`", facts.sentence) for reason, facts in OPENINGS.items()],
        "Why Leases close": [(f"`{reason}`", facts.sentence) for reason, facts in CLOSURES.items()],
    }
    lines = ["# Reasons", "", *REASONS]
    for title, rows in parts.items():
        lines += ["", f"## {title}", "", *table(("reason", "sentence"), rows)]
    return "\n".join(lines) + "\n"


def events_page() -> str:
    """Returns the page of Events."""
    lines = [
        "# Events",
        "",
        "Jobtree writes these Events about Runs. `kubectl describe run RUN` shows them on a live cluster;",
        "on a simulated one, every command that causes Events prints them.",
        "",
    ]
    rows = [
        (f"`{name}`", "Warning" if facts.warning else "Normal", facts.meaning)
        for name, facts in EVENTS.items()
    ]
    lines += table(("event", "type", "meaning"), rows)
    return "\n".join(lines) + "\n"


def metrics_page() -> str:
    """Returns the page of metrics."""
    lines = [
        "# Metrics",
        "",
        "The manager serves these metrics for Prometheus on `/metrics` at `--health-address`.",
        "No metric has a label per Run.",
        "",
    ]
    rows = [
        (f"`{metric.name}`", metric.kind, ", ".join(f"`{label}`" for label in metric.labels), metric.text)
        for metric in METRICS
    ]
    lines += table(("metric", "type", "labels", "meaning"), rows)
    return "\n".join(lines) + "\n"


def exit_codes() -> list[str]:
    return table(("code", "meaning"), ((f"`{int(code)}`", meaning) for code, meaning in MEANINGS.items()))


def _sentences(reasons: Iterable[Reason]) -> list[tuple[str, str]]:
    return [(f"`{reason}`", reason.sentence.format(**BLANKS)) for reason in reasons]
