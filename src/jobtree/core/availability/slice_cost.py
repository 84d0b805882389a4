"""What a start in a domain would take from others: Runs by lottery, then steps, then spares (R1).

A lottery stops whole Runs. So a need of 32 GPUs that only a Run of 128 can meet costs 128.
"""

from collections.abc import Iterable
from typing import NamedTuple

from jobtree.core.availability.occupancy import domain_occupancy
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.promise import LOTTERY, STRUCTURAL
from jobtree.core.model.versioned_cache import VersionedCache
from jobtree.core.supply.domain import Domain
from jobtree.core.world.world import World


class SliceCost(NamedTuple):
    """What a slice takes from others; the less the better, in this order."""

    stopped_gpus: int  # of whole Runs that a lottery stops
    shrunk_gpus: int
    spare_gpus: int


FREE = SliceCost(0, 0, 0)


class DrawableGpus(NamedTuple):
    """GPUs in a domain that a lottery may take from one Run, and from when until when."""

    run_key: RunKey
    gpus: int
    immune_until: int
    end: int


DRAWABLE_GPUS = VersionedCache[None, list[DrawableGpus]]()


def slice_cost(world: World, domain: Domain, at: int, by_lottery: int, not_free: int) -> SliceCost:
    """Returns the cost of so many GPUs in a domain, of which some need a lottery and some are not free."""
    cut = max(0, not_free - by_lottery)
    spares = min(cut, domain.gpu_counts().spare) if cut else 0
    return SliceCost(least_stopped(world, domain, at, by_lottery) if by_lottery else 0, cut - spares, spares)


def least_stopped(world: World, domain: Domain, at: int, gpus: int) -> int:
    """Returns the fewest GPUs of whole Runs that a lottery at that instant stops to get so many.

    It is an upper bound of the fewest: Runs are added by what they stop for each GPU in the domain, and the
    rest is met by the smallest Run that suffices.
    """
    runs = [
        (drawable.gpus, _stopped_with(world, drawable.run_key))
        for drawable in _drawable_gpus(world, domain)
        if drawable.immune_until <= at < drawable.end
    ]
    return fewest_stopped(runs, gpus)


def fewest_stopped(runs: Iterable[tuple[int, int]], gpus: int) -> int:
    """Returns the fewest GPUs to stop, from the GPUs that each Run gives and those that stop with it."""
    by_stopped = sorted(runs, key=lambda run: (run[1], -run[0]))
    by_share = sorted(by_stopped, key=lambda run: (run[1] << 20) // run[0])
    stopped, fewest = 0, sum(stops for _, stops in by_stopped)
    while gpus > 0:
        last = next((stops for given, stops in by_stopped if given >= gpus), None)
        if last is not None:
            fewest = min(fewest, stopped + last)
        taken = next((run for run in by_share if run[0] < gpus), None)
        if taken is None or stopped + taken[1] >= fewest:
            break
        by_share.remove(taken)
        by_stopped.remove(taken)
        gpus, stopped = gpus - taken[0], stopped + taken[1]
    return fewest


def _stopped_with(world: World, run_key: RunKey) -> int:
    """Returns the width of a Run and of the stages that stop with it."""
    return sum(member.width for member in world.run_graph.members(world.runs[run_key]))


def _drawable_gpus(world: World, domain: Domain) -> list[DrawableGpus]:
    cached = DRAWABLE_GPUS.at(domain.occupancy_version)
    drawable = cached.get(None)
    if drawable is None:
        by_run: dict[RunKey, DrawableGpus] = {}
        for lease in domain_occupancy(world, domain).leases:
            run_key, notice = lease.posted.lease.run_key, lease.draw_notice
            if notice is None or run_key not in world.runs:
                continue
            gpus = sum(
                part.gpus for part in lease.parts if part.releases[LOTTERY] < part.releases[STRUCTURAL]
            )
            before = by_run.get(run_key)
            if before is not None:
                gpus += before.gpus
            if gpus:
                by_run[run_key] = DrawableGpus(run_key, gpus, notice.immune_until, notice.certain_end)
        drawable = cached[None] = list(by_run.values())
    return drawable
