"""Updates the verdicts of waiting Runs before they are written.

A pass skips Runs that a change does not help, so their verdicts may have figures of earlier passes.
"""

from collections.abc import Iterable

from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.reasons import Verdict
from jobtree.core.operations.trial import Trial
from jobtree.core.planning.admission import refusal_causes
from jobtree.core.planning.stage_gang_admission import gang_verdict, waiting_members
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.world import World


def refresh_verdicts(world: World, runs: Iterable[RunKey]) -> list[RunKey]:
    """Updates the verdicts of these waiting Runs; returns those that changed."""
    trial = Trial(world)
    changed = []
    for run in [world.runs[key] for key in runs if key in world.runs]:
        verdict = run.verdict
        if run.shape is None or not run.waiting or verdict is None or verdict.phase != "Reserved":
            continue
        run.record_verdict(present_verdict(trial, run))
        if run.verdict != verdict:
            world.run_queue.mark_active(run)
            changed.append(run.key)
    return changed


def present_verdict(trial: Trial, run: RunState) -> Verdict:
    """Returns every cause why the Run, or the gang of stages that it starts with, cannot start now."""
    shape = run.shape
    assert shape is not None
    if run.gang:
        return gang_verdict(trial, run, waiting_members(trial.world, run))
    flavor = trial.world.fleet.flavors.get(shape.flavor)
    pod_size = shape.pod_size(flavor.biggest_node if flavor else 1)
    return Verdict("Reserved", tuple(refusal_causes(trial, run, shape, flavor, pod_size)))
