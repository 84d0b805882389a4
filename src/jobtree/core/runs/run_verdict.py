"""What to tell a Run that is not waiting: what it holds and who pays, or how it ended."""

from jobtree.core.model.reasons import Cause, Reason, Verdict
from jobtree.core.runs.run_state import RunState


def current_verdict(run: RunState, cause: Cause | None, stalled: tuple[Cause, ...] = ()) -> Verdict:
    """The verdict on a Run as it stands, running or finished, what brought it there and what it lacks."""
    if run.phase != "Running":
        return Verdict(run.phase, (cause,) if cause else ())
    payers: dict[str, int] = {}
    for lease in run.leases.values():
        if lease.role == "Active":
            label = "/".join(lease.payer)
            payers[label] = payers.get(label, 0) + lease.gpus
    whys = [Cause(Reason.ADMITTED, where, gpus, gpus) for where, gpus in sorted(payers.items())]
    if run.provisional:
        whys.append(Cause(Reason.PROVISIONAL, "", 0, run.width))
    if run.opportunistic_gpus:
        demoted = any(lease.reason == "Demote" for lease in run.leases.values())
        whys.append(Cause(Reason.DEMOTED if demoted else Reason.OPPORTUNISTIC, "", 0, run.opportunistic_gpus))
    return Verdict("Running", (*stalled, *whys))
