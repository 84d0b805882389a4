"""Measures a job tree: it arrives, its preparation ends, two stages start together, and it is cancelled."""

from functools import partial

import msgspec

from benchmarks.arrivals import Fleet
from benchmarks.fixtures import FLAVOR, team
from benchmarks.sampling import settle_memory, timed
from benchmarks.workload import parse_run, run_document
from jobtree.api.kinds.run import Run
from jobtree.api.schema.quantities import SECOND, format_time
from jobtree.core.model.actions import Plan
from jobtree.core.planning.run_to_rest import run_to_rest
from jobtree.core.world.world import World


class Trees(msgspec.Struct, frozen=True):
    """Nanoseconds of all plans until nothing is left to do."""

    arrivals: list[int]
    starts: list[int]
    leaves: list[int]


def measure_trees(fleet: Fleet, count: int) -> Trees:
    world, measured = fleet.world, Trees([], [], [])
    settle_memory()
    for number in range(count):
        world.advance_clock(world.now + SECOND)
        tree = tree_of(fleet, number)
        key = (tree.metadata.namespace, tree.metadata.name)
        measured.arrivals.append(timed(partial(arrive, world, tree))[1])
        measured.starts.append(timed(partial(finish, world, (key[0], f"{key[1]}-prep")))[1])
        train = world.runs[key[0], f"{key[1]}-train"]
        assert train.phase == "Running", f"the stages did not start: {train.verdict}"
        measured.leaves.append(timed(partial(leave, world, key))[1])
    return measured


def tree_of(fleet: Fleet, number: int) -> Run:
    """Returns a tree: a preparation without GPUs, then training and evaluation together."""
    stages = [
        {"name": "prep", "resources": {"totalGPUs": 0, "pods": 2}},
        {"name": "train", "resources": {"gpuType": FLAVOR, "totalGPUs": 128}, "after": ["prep"]},
        {
            "name": "eval",
            "resources": {"gpuType": FLAVOR, "totalGPUs": 8},
            "after": ["prep"],
            "with": ["train"],
        },
    ]
    document = run_document(
        f"tree-{number}", team(fleet.scale, number % fleet.scale.teams), 0, fleet.world.now
    )
    del document["spec"]["resources"]
    return parse_run({**document, "spec": {**document["spec"], "stages": stages, "quota": {"maxGPUs": 200}}})


def settle(world: World) -> None:
    """Plans and applies until nothing is left to do."""

    def apply(decided: Plan) -> None:
        world.apply_plan(decided)
        for child in decided.children:
            name = child.metadata.name
            metadata = msgspec.structs.replace(
                child.metadata, uid=f"{name}-uid", creation_timestamp=format_time(world.now)
            )
            world.put_run(msgspec.structs.replace(child, metadata=metadata))

    run_to_rest(world, apply, creates_children=True)


def arrive(world: World, tree: Run) -> None:
    world.put_run(tree)
    settle(world)


def finish(world: World, key: tuple[str, str]) -> None:
    world.finish(key, succeeded=True, at=world.now)
    settle(world)


def leave(world: World, key: tuple[str, str]) -> None:
    world.drop_run(key)
    settle(world)
