"""Reads the verdict of a Run from its status, as an earlier pass or another planner wrote it."""

import re

from jobtree.core import FINISHED, REASONS, Cause, Reason, RunState, Verdict, current_verdict, held_verdict


def reported_verdict(run: RunState) -> Verdict | None:
    """Returns the verdict of a Run that runs, is finished or is refused; None: the next plan reports it."""
    if run.phase == "Running":
        return current_verdict(run, None)
    if run.refused_everywhere:
        return held_verdict(run)
    status = run.run_object.status
    if run.phase in FINISHED and status.reason in REASONS:
        return Verdict(run.phase, (parse_cause(REASONS[status.reason], status.message),))
    return None


def verdict_from_status(run: RunState) -> Verdict:
    """Returns the verdict in the status of a Run, with all its causes."""
    parts = re.split(f"; (?=(?:{'|'.join(REASONS)}): )", run.run_object.status.message)
    named = [(part.partition(": ")[0], part) for part in parts]
    return Verdict(
        run.phase, tuple(parse_cause(REASONS[word], part) for word, part in named if word in REASONS)
    )


def parse_cause(reason: Reason, message: str) -> Cause:
    """Reads the figures of a cause from its sentence."""
    pattern = re.escape(f"{reason}: {reason.sentence}")
    for name in ("where", "have", "need"):
        pattern = pattern.replace(re.escape(f"{{{name}}}"), f"(?P<{name}>.*)")
    match = re.search(rf"{pattern}\Z", message, re.DOTALL)  # a tree first counts its stages
    figures = match.groupdict() if match else {}
    return Cause(
        reason, figures.get("where", ""), int(figures.get("have") or 0), int(figures.get("need") or 0)
    )
