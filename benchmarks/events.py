"""Measures other events: a Run ends while many wait, a node is cordoned, a budget is edited."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from random import Random

import msgspec

from benchmarks.arrivals import Fleet, Kind, measure_refusals
from benchmarks.fixtures import budgets, node_name
from benchmarks.grow import parse
from benchmarks.promises import measure_expectations, measure_forecasts
from benchmarks.sampling import settle_memory, timed
from benchmarks.workload import Workload
from jobtree.api.kinds.budget import Budget
from jobtree.api.kubernetes.node import Node
from jobtree.api.schema.quantities import SECOND
from jobtree.core.model.actions import Plan
from jobtree.core.planning.planning_pass import plan
from jobtree.core.world.world import World


class Queue(msgspec.Struct, frozen=True):
    """Nanoseconds on a full fleet on which many Runs wait."""

    refusals: dict[int, list[int]]  # of one more arrival, by its GPUs
    endings: list[int]  # of a Run that ends
    failures: list[int]  # of a node that fails
    heals: list[int]  # of a node that is healed
    edits: list[int]  # of a Budget whose first envelope is cut by a node, or gets it back
    forecasts: tuple[int, int]  # of all Reservations: all odds new, and none
    expectations: int  # of all expected starts


def measure_queue(fleet: Fleet, waiting: int, sizes: Sequence[int], count: int) -> Queue:
    """Fills the queue, measures, and empties it again."""
    world, workload = fleet.world, Workload(fleet.scale, "waiting")
    before = sorted(world.runs)
    keys = [world.put_run(workload.draw(world.now)).key for _ in range(waiting)]
    world.apply_plan(plan(world))
    forecasts, expectations = measure_forecasts(world), measure_expectations(world)
    refusals = {gpus: measure_refusals(fleet, Kind(gpus, grouped=False), count, held=True) for gpus in sizes}
    Random(4).shuffle(before)
    endings = [_measure(world, partial(_end, world, key)) for key in before[:count]]
    failures, heals = measure_failed_nodes(fleet, count)
    edits = measure_cuts(fleet, count)
    for key in keys:
        world.drop_run(key)
    world.apply_plan(plan(world))
    return Queue(refusals, endings, failures, heals, edits, forecasts, expectations)


def _end(world: World, key: tuple[str, str]) -> None:
    world.advance_clock(world.now + SECOND)
    world.finish(key, succeeded=True, at=world.now)


def measure_cordons(fleet: Fleet, count: int) -> list[int]:
    """Measures the nanoseconds to plan after a node is cordoned; then it is uncordoned."""
    world, samples = fleet.world, []
    settle_memory()
    for number in range(count):
        node = world.fleet.nodes[node_name(number * 97 % fleet.scale.nodes)].node
        cordoned = msgspec.structs.replace(node, cordoned=True)
        samples.append(_measure(world, partial(world.put_node, cordoned)))
        world.put_node(node)
        world.apply_plan(plan(world))
    return samples


def measure_failed_nodes(fleet: Fleet, count: int) -> tuple[list[int], list[int]]:
    """Measures the nanoseconds to plan after a node fails, and after it is healed."""
    world = fleet.world
    failures, heals = [], []
    settle_memory()
    for number in range(count):
        node = world.fleet.nodes[node_name(number * 97 % fleet.scale.nodes)].node
        failed = msgspec.structs.replace(node, failed=True)
        failures.append(_measure(world, partial(_put_node, world, failed)))
        heals.append(_measure(world, partial(_put_node, world, node)))
    return failures, heals


def _put_node(world: World, node: Node) -> None:
    world.advance_clock(world.now + SECOND)
    world.put_node(node)


def measure_cuts(fleet: Fleet, count: int) -> list[int]:
    """Measures the nanoseconds to plan after a Budget is cut by the GPUs of a node, and raised again."""
    settle_memory()
    samples = []
    for budget in _edited(fleet, count // 2):
        first, *others = budget.spec.envelopes
        smaller = msgspec.structs.replace(first, concurrency=first.concurrency - fleet.scale.gpus_per_node)
        spec = msgspec.structs.replace(budget.spec, envelopes=(smaller, *others))
        cut = msgspec.structs.replace(budget, spec=spec)
        samples += [_measure(fleet.world, partial(fleet.world.put_budget, edit)) for edit in (cut, budget)]
    return samples


def measure_edits(fleet: Fleet, count: int) -> list[int]:
    """Measures the nanoseconds to plan after a budget is written again."""
    settle_memory()
    return [
        _measure(fleet.world, partial(fleet.world.put_budget, budget)) for budget in _edited(fleet, count)
    ]


def _edited(fleet: Fleet, count: int) -> Iterable[Budget]:
    for document in list(budgets(fleet.scale))[-count:]:
        budget = parse(document)
        assert isinstance(budget, Budget)
        yield budget


def _measure(world: World, event: Callable[[], object]) -> int:
    def take_in() -> Plan:
        event()
        return plan(world)

    decision, decide_ns = timed(take_in)
    world.apply_plan(decision)
    return decide_ns
