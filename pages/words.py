"""The reasons, events and exit codes that people search for, read off the code."""

from collections.abc import Iterable

from jobtree.cli.shell.command_errors import MEANINGS
from jobtree.core.model.outcomes import CLOSURES, EVENTS, OPENINGS
from jobtree.core.model.reasons import FUNDING, ROOM, Reason
from jobtree.manager.metrics import METRICS
from pages.tables import table

REASONS = (
    "Every reason Jobtree gives. The word is the reason of a Run's condition and stands in `status.reason`;",
    "the sentence stands in `status.message` and in what `kubectl runs explain` prints.",
    "*h* is what there is, *n* what is needed.",
)
BLANKS = {"where": "…", "have": "*h*", "need": "*n*"}


def reasons_page() -> str:
    """Why a Run waits, what became of it, and why leases open and close."""
    parts = {
        "Nobody pays": _sentences(reason for reason in Reason if reason.topic == FUNDING),
        "No place": _sentences(reason for reason in Reason if reason.topic == ROOM),
        "What became of a Run or a promise": _sentences(
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
    """The Events that are written about Runs."""
    lines = [
        "# Events",
        "",
        "Jobtree writes these Events about Runs. `kubectl describe run RUN` shows them on a live cluster;",
        "on a simulated one, every command that lets something happen prints them.",
        "",
    ]
    rows = [
        (f"`{name}`", "Warning" if facts.warning else "Normal", facts.meaning)
        for name, facts in EVENTS.items()
    ]
    lines += table(("event", "type", "meaning"), rows)
    return "\n".join(lines) + "\n"


def metrics_page() -> str:
    """What the manager serves for Prometheus."""
    lines = [
        "# Metrics",
        "",
        "The manager serves these on `/metrics`, at the address that `--health-address` says.",
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
