"""The verdict on a Run that does not wait: its GPUs and their payers, or how it ended."""

from jobtree.core.model.reasons import Cause, Reason, Verdict
from jobtree.core.runs.run_state import RunState


def current_verdict(run: RunState, cause: Cause | None, stalled: tuple[Cause, ...] = ()) -> Verdict:
    """Returns the verdict on a finished Run, with its cause, or on a running Run, with its payers.

    ``stalled`` says why a running Run cannot grow.
    """
    if run.phase != "Running":
        return Verdict(run.phase, (cause,) if cause else ())
    payers: dict[str, int] = {}
    for lease in run.leases.values():
        if lease.role == "Active":
            label = "/".join(lease.payer)
            payers[label] = payers.get(label, 0) + lease.gpus
    causes = [Cause(Reason.ADMITTED, label, gpus, gpus) for label, gpus in sorted(payers.items())]
    if run.provisional:
        causes.append(Cause(Reason.PROVISIONAL, "", 0, run.width))
    if run.opportunistic_gpus:
        demoted = any(lease.reason == "Demote" for lease in run.leases.values())
        reason = Reason.DEMOTED if demoted else Reason.OPPORTUNISTIC
        causes.append(Cause(reason, "", 0, run.opportunistic_gpus))
    return Verdict("Running", (*stalled, *causes))
