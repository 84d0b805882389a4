"""Steps that a malleable Run can give up: whole groups if it is grouped, else single pods (X3, E2)."""

from collections.abc import Container

import msgspec

from jobtree.core.model.gpu_lease import GpuLease, pods_of
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.world import World


class LeasePart(msgspec.Struct, frozen=True):
    """A part of a lease: one pod's slots, or all of the lease on one node."""

    lease: str
    node: str
    mask: int


ShrinkStep = tuple[LeasePart, ...]


def rank_leases(run: RunState) -> list[GpuLease]:
    """Returns the leases of the Run's ranks, lowest rank first."""
    leases = [lease for lease in run.leases.values() if lease.role != "Spare"]
    return sorted(leases, key=lambda lease: (lease.group, lease.start, lease.name))


def shrink_steps(world: World, run: RunState, domains: Container[str] | None = None) -> list[ShrinkStep]:
    """Returns the steps that the Run could give up in these domains (None: anywhere), highest ranks first."""
    shape = run.shape
    if shape is None or not shape.malleable:
        return []
    steps: list[ShrinkStep] = []
    pending: list[LeasePart] = []
    pending_gpus = 0
    for unit in shrink_units(world, run, domains):
        pending += unit
        pending_gpus += sum(part.mask.bit_count() for part in unit)
        if pending_gpus == shape.step:
            steps.append(tuple(pending))
            pending, pending_gpus = [], 0
    return steps[: (run.width - shape.min) // shape.step]


def shrink_units(world: World, run: RunState, domains: Container[str] | None) -> list[list[LeasePart]]:
    """Returns the smallest units that the Run can give up, highest ranks first: groups, else single pods."""
    shape, domain_by_node = run.shape, world.fleet.domain_by_node
    parts = [
        (lease.group, LeasePart(lease.name, node, mask))
        for lease in rank_leases(run)
        for node, mask in pods_of(lease.slots, run.pod_size)
    ]
    parts_inside = [
        (group, part)
        for group, part in parts
        if part.node in domain_by_node and (domains is None or domain_by_node[part.node].name in domains)
    ]
    if shape is None or not shape.group:
        return [[part] for _, part in reversed(parts_inside)]
    parts_by_group: dict[int, list[LeasePart]] = {}
    for group, part in parts_inside:
        parts_by_group.setdefault(group, []).append(part)
    return [parts_by_group[group] for group in sorted(parts_by_group, reverse=True)]
