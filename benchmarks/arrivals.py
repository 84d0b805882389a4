"""Measures arrivals: a Run arrives, is planned, starts, and is cancelled again."""

from collections.abc import Sequence
from functools import partial

import msgspec

from benchmarks.grow import leave
from benchmarks.sampling import settle_memory, timed
from benchmarks.scale import Scale
from benchmarks.workload import GROUP_GPUS, arrival
from jobtree.api.kinds.run import Run
from jobtree.api.schema.quantities import SECOND
from jobtree.core.model.actions import Plan
from jobtree.core.planning.planning_pass import plan
from jobtree.core.world.world import World

TURN = 10  # arrivals on one fleet before the next fleet


class Kind(msgspec.Struct, frozen=True):
    gpus: int
    grouped: bool

    @property
    def label(self) -> str:
        return f"{self.gpus:,} GPUs{f' in groups of {min(self.gpus, GROUP_GPUS)}' if self.grouped else ''}"


class Samples(msgspec.Struct):
    """Nanoseconds of the arrivals of one kind on one fleet."""

    decide: list[int] = msgspec.field(default_factory=list)  # put_run and plan
    commit: list[int] = msgspec.field(default_factory=list)
    leave: list[int] = msgspec.field(default_factory=list)  # cancel, plan and commit


class Fleet(msgspec.Struct):
    scale: Scale
    world: World


def decide(world: World, run: Run) -> Plan:
    world.put_run(run)
    return plan(world)


def arrive(fleet: Fleet, kind: Kind, number: int, samples: Samples) -> None:
    world = fleet.world
    world.advance_clock(world.now + SECOND)
    run = arrival(fleet.scale, number, kind.gpus, world.now, grouped=kind.grouped)
    decision, decide_ns = timed(partial(decide, world, run))
    _, commit_ns = timed(partial(world.apply_plan, decision))
    state = world.runs[run.metadata.namespace, run.metadata.name]
    assert state.width == kind.gpus, f"{kind.label} did not start: {state.verdict}"
    _, leave_ns = timed(partial(leave, world, state.key))
    samples.decide.append(decide_ns)
    samples.commit.append(commit_ns)
    samples.leave.append(leave_ns)


def measure_arrivals(fleets: Sequence[Fleet], kind: Kind, count: int) -> list[Samples]:
    """Measures the same arrivals on several fleets in turns, so that noise affects all of them."""
    by_fleet = [Samples() for _ in fleets]
    settle_memory()
    for fleet in fleets:
        arrive(fleet, kind, 0, Samples())  # the first arrival of its kind fills caches
    for first in range(0, count, TURN):
        for fleet, samples in zip(fleets, by_fleet, strict=True):
            for number in range(first, min(first + TURN, count)):
                arrive(fleet, kind, number, samples)
    return by_fleet


def measure_refusals(fleet: Fleet, kind: Kind, count: int, *, held: bool = False) -> list[int]:
    """Measures the nanoseconds to plan an arrival that cannot start.

    The clock advances unless the promises of other Runs are ``held``, so that none becomes due.
    """
    world, samples = fleet.world, []
    settle_memory()
    for number in range(count):
        world.advance_clock(world.now + (0 if held else SECOND))
        run = arrival(fleet.scale, number, kind.gpus, world.now, grouped=kind.grouped)
        decision, decide_ns = timed(partial(decide, world, run))
        world.apply_plan(decision)
        state = world.runs[run.metadata.namespace, run.metadata.name]
        assert state.waiting, f"{kind.label} was not refused"
        leave(world, state.key)
        samples.append(decide_ns)
    return samples


class Burst(msgspec.Struct, frozen=True):
    arrivals: int
    started: int
    decide_ns: int
    commit_ns: int


def measure_burst(fleet: Fleet, runs: Sequence[Run]) -> Burst:
    """Measures one plan for many Runs that arrive at once; then they are cancelled."""
    world = fleet.world
    settle_memory()

    def decide_all() -> Plan:
        for run in runs:
            world.put_run(run)
        return plan(world)

    decision, decide_ns = timed(decide_all)
    _, commit_ns = timed(partial(world.apply_plan, decision))
    keys = [(run.metadata.namespace, run.metadata.name) for run in runs]
    started = sum(world.runs[key].phase == "Running" for key in keys)
    for key in keys:
        world.drop_run(key)
    world.apply_plan(plan(world))
    return Burst(len(runs), started, decide_ns, commit_ns)
