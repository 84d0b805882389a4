"""What a Run was told before its cluster was saved, so that reading a file and saving it changes nothing."""

from jobtree.core.reasons import Reason, Verdict, Why
from jobtree.core.runs import FINISHED, RunState
from jobtree.core.verdicts import verdict_on


def verdict_told(state: RunState) -> Verdict | None:
    """The verdict on a Run that runs or is finished; one that waits is told again by the next plan."""
    if state.phase == "Running":
        return verdict_on(state, Why(Reason.ADMITTED))
    reason = state.run.status.reason
    if state.phase not in FINISHED or reason not in list(Reason):
        return None
    exceeded = reason == Reason.DURATION_EXCEEDED
    where = state.run.spec.runtime.max_duration or "" if exceeded else ""
    return Verdict(state.phase, (Why(Reason(reason), where),))
