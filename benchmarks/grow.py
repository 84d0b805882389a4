"""Fills a fleet with the planner, then ends Runs at random.

So free GPUs are distributed as the planner leaves them. The fleet can also be written as documents and built
again, as a manager does at its start.
"""

from collections.abc import Iterable
from random import Random

import msgspec

from benchmarks.fixtures import EPOCH, FLAVOR, Document, budgets, closed_leases, nodes
from benchmarks.scale import Scale
from benchmarks.workload import Workload
from jobtree.api.kinds.budget import Budget
from jobtree.api.kinds.lease import Lease
from jobtree.api.kinds.run import Run, RunStatus
from jobtree.api.kubernetes.node import Node, read_node
from jobtree.api.schema.quantities import SECOND
from jobtree.api.validation.object_parser import parse_object, to_document
from jobtree.core.model.gpu_lease import RunKey, lease_to_object
from jobtree.core.planning.planning_pass import plan
from jobtree.core.runs.run_allocation import build_allocation
from jobtree.core.world.world import World

Parsed = Node | Budget | Run | Lease


def parse(document: Document) -> Parsed:
    if document["kind"] == "Node":
        return read_node(document, "benchmark")
    parsed = parse_object(document, "benchmark")
    assert isinstance(parsed, Budget | Run | Lease)
    return parsed


def put(world: World, parsed: Parsed) -> None:
    match parsed:
        case Node():
            world.put_node(parsed)
        case Budget():
            world.put_budget(parsed)
        case Run():
            world.put_run(parsed)
        case Lease():
            world.put_lease(parsed)


def build(objects: Iterable[Parsed], now: int) -> World:
    """Returns a world with these objects, after its first plan."""
    world = World(now=now)
    for parsed in objects:
        put(world, parsed)
    world.apply_plan(plan(world))
    return world


def submit(world: World, run: Run) -> bool:
    """Adds a Run, and removes it again if it cannot start; returns whether it started."""
    key = world.put_run(run).key
    world.apply_plan(plan(world))
    if world.runs[key].phase == "Running":
        return True
    leave(world, key)
    return False


def leave(world: World, key: RunKey) -> None:
    """Removes a Run."""
    world.drop_run(key)
    world.apply_plan(plan(world))


def full_world(scale: Scale) -> World:
    """Returns a fleet without free GPUs: Runs of the workload, then small Runs for the remaining GPUs."""
    world = build(map(parse, [*nodes(scale), *budgets(scale)]), EPOCH)
    workload = Workload(scale)
    flavor = world.fleet.flavor(FLAVOR)
    refused = 0
    while flavor.free and refused < 10:
        world.advance_clock(world.now + SECOND)
        refused = 0 if submit(world, workload.draw(world.now)) else refused + 1
    for gpus in (8, 4, 2, 1):
        refused = 0
        while flavor.free >= gpus and refused < 20:
            refused = 0 if submit(world, workload.draw(world.now, gpus)) else refused + 1
    assert not flavor.free, f"{flavor.free} GPUs could not be filled"
    return world


def thin_out(world: World, scale: Scale) -> None:
    """Ends Runs at random until ``free_percent`` of the fleet is free."""
    keys = sorted(world.runs)
    Random(2).shuffle(keys)
    wanted = scale.gpus * scale.free_percent // 100
    while world.fleet.flavor(FLAVOR).free < wanted:
        leave(world, keys.pop())


def documents(scale: Scale, world: World) -> list[Document]:
    """Returns the documents of the fleet, with its closed leases before the open ones."""
    runs = []
    for state in world.runs.values():
        status = RunStatus(
            phase="Running",
            allocation=build_allocation(state),
            attempt=state.attempt,
            leases_opened=state.leases_opened,
        )
        runs.append(to_document(msgspec.structs.replace(state.run_object, status=status)))
    history = closed_leases(scale, runs)
    leases = (to_document(lease_to_object(held.lease)) for held in world.posted_leases.values())
    return [*nodes(scale), *budgets(scale), *runs, *history, *leases]


def is_closed_lease(parsed: Parsed) -> bool:
    return isinstance(parsed, Lease) and parsed.status.end is not None


def with_closed(objects: Iterable[Parsed], closed: int) -> list[Parsed]:
    """Returns the same objects with at most ``closed`` closed leases."""
    kept: list[Parsed] = []
    for parsed in objects:
        if is_closed_lease(parsed):
            closed -= 1
            if closed < 0:
                continue
        kept.append(parsed)
    return kept
