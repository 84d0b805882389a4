"""What a Run was told before: by this planner, before its cluster was saved, or by that of a live cluster."""

import re

from jobtree.core import FINISHED, REASONS, Cause, Reason, RunState, Verdict, current_verdict


def reported_verdict(run: RunState) -> Verdict | None:
    """The verdict on a Run that runs or is finished; one that waits is told again by the next plan."""
    if run.phase == "Running":
        return current_verdict(run, None)
    status = run.run_object.status
    if run.phase in FINISHED and status.reason in REASONS:
        return Verdict(run.phase, (parse_cause(REASONS[status.reason], status.message),))
    return None


def verdict_from_status(run: RunState) -> Verdict:
    """The verdict as another planner wrote it into the status, reason by reason."""
    parts = re.split(f"; (?=(?:{'|'.join(REASONS)}): )", run.run_object.status.message)
    named = [(part.partition(": ")[0], part) for part in parts]
    return Verdict(
        run.phase, tuple(parse_cause(REASONS[word], part) for word, part in named if word in REASONS)
    )


def parse_cause(reason: Reason, message: str) -> Cause:
    """The reason with its figures, read out of its own sentence."""
    pattern = re.escape(f"{reason}: {reason.sentence}")
    for name in ("where", "have", "need"):
        pattern = pattern.replace(re.escape(f"{{{name}}}"), f"(?P<{name}>.*)")
    found = re.search(rf"{pattern}\Z", message, re.DOTALL)  # a tree first counts its stages
    said = found.groupdict() if found else {}
    return Cause(reason, said.get("where", ""), int(said.get("have") or 0), int(said.get("need") or 0))
