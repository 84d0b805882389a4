"""Measures the memory of a fleet in a separate process that reads it from a file."""

import multiprocessing
from pathlib import Path

import msgspec

from benchmarks.grow import parse, put
from benchmarks.sampling import settle_memory
from jobtree.core.planning.planning_pass import plan
from jobtree.core.world.world import World


class Footprint(msgspec.Struct, frozen=True):
    before_mib: float  # the interpreter and the imported modules
    after_mib: float  # with the whole fleet in memory


def resident_mib() -> float:
    """Returns the resident memory of this process; 0 if this is not Linux."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0.0
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


def measure_footprint(path: Path, now: int) -> Footprint:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_build, (path, now))


def _build(path: Path, now: int) -> Footprint:
    before = resident_mib()
    world = World(now=now)
    with path.open("rb") as lines:
        for line in lines:
            put(world, parse(msgspec.json.decode(line)))
    world.apply_plan(plan(world))
    settle_memory()
    return Footprint(before, resident_mib())
