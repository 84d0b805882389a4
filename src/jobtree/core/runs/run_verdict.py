"""What to tell a Run that is not waiting: what it holds and who pays, or how it ended."""

from jobtree.core.model.reasons import Cause, Reason, Verdict
from jobtree.core.runs.run_state import RunState


def current_verdict(state: RunState, cause: Cause | None, stalled: tuple[Cause, ...] = ()) -> Verdict:
    """The verdict on a Run as it stands, running or finished, what brought it there and what it lacks."""
    if state.phase != "Running":
        return Verdict(state.phase, (cause,) if cause else ())
    payers: dict[str, int] = {}
    for lease in state.leases.values():
        if lease.role == "Active":
            label = "/".join(lease.payer)
            payers[label] = payers.get(label, 0) + lease.gpus
    whys = [Cause(Reason.ADMITTED, where, gpus, gpus) for where, gpus in sorted(payers.items())]
    if state.provisional:
        whys.append(Cause(Reason.PROVISIONAL, "", 0, state.width))
    if state.opportunistic_gpus:
        demoted = any(lease.reason == "Demote" for lease in state.leases.values())
        whys.append(
            Cause(Reason.DEMOTED if demoted else Reason.OPPORTUNISTIC, "", 0, state.opportunistic_gpus)
        )
    return Verdict("Running", (*stalled, *whys))
