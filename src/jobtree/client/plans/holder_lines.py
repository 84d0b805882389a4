"""Lists the Runs that hold what a waiting Run lacks, and when each ends at the latest."""

from collections.abc import Iterable

from jobtree.api.schema.quantities import format_time
from jobtree.core import GpuLease, RunKey, RunState, World
from jobtree.messages.wording import counted_noun, joined_list


def holders(world: World, leases: Iterable[GpuLease]) -> str:
    """``default/a (32 GPUs, ends by …) and default/b (8 GPUs)``, largest first."""
    gpus: dict[RunKey, int] = {}
    for lease in leases:
        gpus[lease.run_key] = gpus.get(lease.run_key, 0) + lease.gpus
    largest = sorted(gpus.items(), key=lambda item: (-item[1], item[0]))
    return joined_list([_holder(world, run_key, number) for run_key, number in largest])


def _holder(world: World, run_key: RunKey, gpus: int) -> str:
    run = world.runs.get(run_key)
    end = run.known_end if run else None
    until = f", ends by {format_time(end)}" if end is not None else ""
    return f"{'/'.join(run_key)} ({counted_noun(gpus, 'GPU')}{until})"


def holders_in_flavor(world: World, run: RunState) -> str:
    """Returns the Runs with funded GPUs of the Run's flavor."""
    leases = (posted.lease for posted in world.posted_leases.values())
    return holders(
        world,
        (lease for lease in leases if lease.flavor == run.flavor and lease.role != "Opportunistic"),
    )
