"""The reasons, events and exit codes that people search for, read off the code."""

from itertools import takewhile
from typing import get_args

from jobtree.api.kinds.lease import ClosureReason, OpenReason
from jobtree.cli.shell.command_errors import MEANINGS
from jobtree.cli.views.runs.run_history import CLOSED, OPENED
from jobtree.core.model.actions import ActionKind
from jobtree.core.model.reasons import SENTENCES, Reason
from jobtree.manager.metrics import METRICS
from jobtree.manager.planner.event_notes import WARNINGS
from jobtree.messages.run_events import EVENT_NAMES, RECOVERIES
from pages.tables import event_sentences, table

REASONS = (
    "Every reason Jobtree gives. The word is the reason of a Run's condition and stands in `status.reason`;",
    "the sentence stands in `status.message` and in what `kubectl runs explain` prints.",
    "*h* is what there is, *n* what is needed.",
)
COVER = (Reason.NO_ENVELOPE, Reason.NO_SUCH_FLAVOR)
PACK = (Reason.NO_SUCH_FLAVOR, Reason.ADMITTED)
MOVES = (Reason.EDITED, Reason.NODES_LOST, Reason.FUNDING_LOST, Reason.CROWDED_OUT, Reason.KEY_CHANGED)
"""Why a promise is looked at again: what it then says is an Event of that name."""
BLANKS = {"where": "…", "have": "*h*", "need": "*n*"}


def reasons_page() -> str:
    """Why a Run waits, what became of it, and why leases open and close."""
    parts = {
        "Nobody pays": _sentences(*COVER),
        "No place": _sentences(*PACK),
        "What became of a Run or a promise": _sentences(Reason.ADMITTED, None),
        "Why Leases open": _meanings(get_args(OpenReason), OPENED),
        "Why Leases close": _meanings(get_args(ClosureReason), CLOSED),
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
        (f"`{name}`", "Warning" if name in WARNINGS else "Normal", text)
        for name, text in event_sentences().items()
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
        (f"`{one.name}`", one.kind, ", ".join(f"`{label}`" for label in one.labels), one.text)
        for one in METRICS
    ]
    lines += table(("metric", "type", "labels", "meaning"), rows)
    return "\n".join(lines) + "\n"


def event_names() -> set[str]:
    """Every name that the code gives an Event, those after a cause included."""
    named = set(EVENT_NAMES.values()) | set(RECOVERIES.values()) | {"NodeFailed", "Evicted", "AtRisk"}
    return named | WARNINGS | {str(reason) for reason in (Reason.RELEASED, *MOVES)}


def unnamed_actions() -> set[str]:
    """Actions whose Event is named after the cause."""
    return set(get_args(ActionKind)) - EVENT_NAMES.keys() - {"Recover"}


def exit_codes() -> list[str]:
    return table(("code", "meaning"), ((f"`{int(code)}`", meaning) for code, meaning in MEANINGS.items()))


def _sentences(first: Reason, after: Reason | None) -> list[tuple[str, str]]:
    reasons = list(Reason)[list(Reason).index(first) :]
    chosen = takewhile(lambda reason: reason is not after, reasons)
    return [(f"`{reason}`", SENTENCES[reason].format(**BLANKS)) for reason in chosen]


def _meanings(reasons: tuple[str, ...], meanings: dict[str, str]) -> list[tuple[str, str]]:
    return [(f"`{reason}`", meanings[reason]) for reason in reasons]
