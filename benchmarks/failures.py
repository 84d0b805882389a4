"""Measures the end of a Run and failures of nodes while many malleable Runs want to grow."""

from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from benchmarks.fixtures import EPOCH, FLAVOR, budgets, node_name, nodes, team
from benchmarks.grow import build, parse, submit
from benchmarks.sampling import settle_memory, timed
from benchmarks.scale import Scale
from benchmarks.workload import Workload, parse_run, run_document
from jobtree.api.schema.quantities import HOUR, SECOND
from jobtree.core.planning.planning_pass import plan
from jobtree.core.world.world import World

MALLEABLE = {"minTotalGPUs": 8, "maxTotalGPUs": 32, "stepGPUs": 8}
STARTS_WITH = 16  # GPUs
TOGETHER = 50  # Runs that arrive at once
AT_ONCE = 128  # nodes that fail together


class Failures(msgspec.Struct, frozen=True):
    """Nanoseconds of the plan after each event."""

    endings: list[int]
    failures: list[int]
    outage: int


def measure_failures(scale: Scale, eager: int, count: int) -> Failures:
    world = eager_world(scale, eager)
    small = sorted(key for key, state in world.runs.items() if 0 < state.width <= MALLEABLE["stepGPUs"])
    settle_memory()
    endings = [_after(world, partial(_end, world, key)) for key in small[:count]]
    names = [node_name(number * 97 % scale.nodes) for number in range(count)]
    failures = [_after(world, partial(_fail, world, [name])) for name in names]
    many = [node_name(number) for number in range(scale.nodes // 2, scale.nodes)][:AT_ONCE]
    return Failures(endings, failures, _after(world, partial(_fail, world, many)))


def eager_world(scale: Scale, eager: int) -> World:
    """Returns a full fleet with ``eager`` Runs at half of their desired width."""
    world = build(map(parse, [*nodes(scale), *budgets(scale)]), EPOCH)
    for number in range(eager):
        owner, name = team(scale, number % scale.teams), f"eager-{number:05d}"
        runtime = {"checkpoint": "30m"}
        document = run_document(name, owner, STARTS_WITH, world.now, malleable=MALLEABLE, runtime=runtime)
        world.put_run(parse_run(document))
        if number % TOGETHER == 0:
            world.apply_plan(plan(world))
    world.apply_plan(plan(world))
    workload, flavor = Workload(scale), world.fleet.flavor(FLAVOR)
    for gpus in (128, 8, 4, 2, 1):
        refused = 0
        while flavor.free >= gpus and refused < 20:
            refused = 0 if submit(world, workload.draw(world.now, gpus)) else refused + 1
    world.advance_clock(world.now + HOUR)
    world.apply_plan(plan(world))
    return world


def _end(world: World, key: tuple[str, str]) -> None:
    world.finish(key, succeeded=True, at=world.now)


def _fail(world: World, names: Iterable[str]) -> None:
    for name in names:
        world.put_node(msgspec.structs.replace(world.fleet.nodes[name].node, failed=True))


def _after(world: World, event: Callable[[], None]) -> int:
    world.advance_clock(world.now + SECOND)
    event()
    decision, decide_ns = timed(lambda: plan(world))
    world.apply_plan(decision)
    return decide_ns
