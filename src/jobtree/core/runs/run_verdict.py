"""The verdict on a Run that does not wait: its GPUs and their payers, or how it ended."""

from jobtree.core.model.reasons import Cause, Reason, Verdict
from jobtree.core.model.refusals import describe
from jobtree.core.runs.run_state import RunState


def current_verdict(run: RunState, cause: Cause | None, stalled: tuple[Cause, ...] = ()) -> Verdict:
    """Returns the verdict on a finished Run, with its cause, or on a running Run, with its payers.

    ``stalled`` says why a running Run cannot grow. What refuses its pods comes last (N3).
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
    refusals = [refusal for refusal in run.refusals if refusal.is_open]
    if refusals:
        causes.append(Cause(Reason.REFUSED, describe(refusals)))
    return Verdict("Running", (*stalled, *causes))


def is_reported_refused(run: RunState) -> bool:
    """Whether its verdict says that its pods are refused."""
    verdict = run.verdict
    return verdict is not None and any(cause.reason is Reason.REFUSED for cause in verdict.causes)


def held_verdict(run: RunState) -> Verdict:
    """Returns the verdict on a Run that waits because its pods are refused everywhere (N3)."""
    refusals = [refusal for refusal in run.refusals if not refusal.is_open]
    return Verdict(run.phase, (Cause(Reason.UNPLACEABLE, describe(refusals)),))
