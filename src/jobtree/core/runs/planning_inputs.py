"""Derives from a Run all that planning uses of it.

A waiting Run keeps its promise through an edit that leaves this value as it was. Planning does not use
labels, annotations, ``onNotice``, ``maxRestarts``, ``requeue``, the pod count of a Run without GPUs, or
anything in a template but resource requests, host ports, tolerations, node selectors and node affinity. A new
field of a Run is either read here or listed as unused in the tests of this module, which walk all fields.
"""

import msgspec

from jobtree.api.kinds.run import Follow, Quota, Run
from jobtree.api.schema.quantities import parse_duration
from jobtree.core.model.gang_shape import GangShape, gang_shape
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.runs.run_tree import children_of, stage_gangs


class PlanningInputs(msgspec.Struct, frozen=True):
    name: str
    owner: str
    shape: GangShape | None
    max_duration: int | None  # milliseconds; a Run without GPUs has one too
    follow: Follow | None
    quota: Quota | None
    stages: tuple["PlanningInputs", ...]  # of the child Runs that a tree asks for
    gangs: tuple[tuple[RunKey, ...], ...]  # children that start together


def planning_inputs(run_object: Run) -> PlanningInputs:
    spec = run_object.spec
    limit = spec.runtime.max_duration
    return PlanningInputs(
        name=run_object.metadata.name,
        owner=spec.owner,
        shape=gang_shape(spec),
        max_duration=parse_duration(limit) if limit else None,
        follow=spec.follow,
        quota=spec.quota,
        stages=tuple(planning_inputs(child) for child in children_of(run_object)),
        gangs=tuple(stage_gangs(run_object)),
    )


def is_planned_alike(before: Run, after: Run) -> bool:
    """Whether an edit changed nothing that planning uses."""
    return before.spec == after.spec or planning_inputs(before) == planning_inputs(after)
