"""Steps of a malleable Run: which pods it would give up, whole groups where it is grouped (X3, E2)."""

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
    """The leases of the Run's ranks, lowest rank first."""
    found = [lease for lease in run.leases.values() if lease.role != "Spare"]
    return sorted(found, key=lambda lease: (lease.group, lease.start, lease.name))


def shrink_steps(world: World, run: RunState, domains: Container[str] | None = None) -> list[ShrinkStep]:
    """Steps that it could give up inside these domains (or anywhere), highest ranks first."""
    shape = run.shape
    if shape is None or not shape.malleable:
        return []
    steps: list[ShrinkStep] = []
    pending: list[LeasePart] = []
    gathered = 0
    for chunk in shrink_units(world, run, domains):
        pending += chunk
        gathered += sum(piece.mask.bit_count() for piece in chunk)
        if gathered == shape.step:
            steps.append(tuple(pending))
            pending, gathered = [], 0
    return steps[: (run.width - shape.min) // shape.step]


def shrink_units(world: World, run: RunState, domains: Container[str] | None) -> list[list[LeasePart]]:
    """What must go together, highest first: whole groups where grouped, else single pods."""
    shape, nodes = run.shape, world.fleet.nodes
    pieces = [
        (lease.group, LeasePart(lease.name, node, mask))
        for lease in rank_leases(run)
        for node, mask in pods_of(lease.slots, run.pod_size)
    ]
    inside = [
        (group, piece)
        for group, piece in pieces
        if piece.node in nodes and (domains is None or nodes[piece.node].domain.name in domains)
    ]
    if shape is None or not shape.group:
        return [[piece] for _, piece in reversed(inside)]
    groups: dict[int, list[LeasePart]] = {}
    for group, piece in inside:
        groups.setdefault(group, []).append(piece)
    return [groups[group] for group in sorted(groups, reverse=True)]
