"""What a Run was told before its cluster was saved, so that reading a file and saving it changes nothing."""

import re

from jobtree.core.reasons import SENTENCES, Reason, Verdict, Why
from jobtree.core.runs import FINISHED, RunState
from jobtree.core.verdicts import verdict_on


def verdict_told(state: RunState) -> Verdict | None:
    """The verdict on a Run that runs or is finished; one that waits is told again by the next plan."""
    if state.phase == "Running":
        return verdict_on(state, None)
    status = state.run.status
    if state.phase not in FINISHED or status.reason not in list(Reason):
        return None
    return Verdict(state.phase, (heard(Reason(status.reason), status.message),))


def heard(reason: Reason, message: str) -> Why:
    """The reason with its figures, read out of its own sentence."""
    pattern = re.escape(f"{reason}: {SENTENCES[reason]}")
    for name in ("where", "have", "need"):
        pattern = pattern.replace(re.escape(f"{{{name}}}"), f"(?P<{name}>.*)")
    found = re.search(rf"{pattern}\Z", message, re.DOTALL)  # a tree first counts its stages
    said = found.groupdict() if found else {}
    return Why(reason, said.get("where", ""), int(said.get("have") or 0), int(said.get("need") or 0))
