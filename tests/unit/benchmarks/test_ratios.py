"""No cost is quadratic: of every bound of ``make bench`` in small, and of events that it does not measure.

Executed lines are counted (``line_count``). A bound in ``benchmarks/bars.py`` without a row here is found.
"""

from collections.abc import Callable
from functools import partial

import msgspec
import pytest

from benchmarks import bars
from benchmarks.arrivals import Fleet, Kind, Samples as Arrivals, arrive, decide, measure_refusals
from benchmarks.day import measure_day
from benchmarks.failures import eager_world
from benchmarks.fixtures import node_name
from benchmarks.grow import build, documents, full_world, parse, thin_out
from benchmarks.promises import NONCE, lottery_case
from benchmarks.replay_speed import bytes_per_waiting_run, crowded, made_up_trace
from benchmarks.scale import Scale
from benchmarks.trees import measure_trees
from benchmarks.workload import arrival
from jobtree.api.schema.quantities import SECOND
from jobtree.core.lottery.draw import run_lottery
from jobtree.core.lottery.kill_probability import exact_probabilities, simulated_probabilities
from jobtree.core.model.actions import Plan
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.planning.planning_pass import plan
from jobtree.core.reporting.reservation_codec import reservation_object
from jobtree.core.reporting.reservation_forecast import cached_kill_probabilities
from jobtree.core.world.world import World
from jobtree.manager.planner.world_gauges import WorldGauges
from jobtree.simulation.inputs.replay_cluster import made_up, made_up_budgets
from jobtree.simulation.inputs.replay_setup import ReplaySetup
from jobtree.simulation.inputs.user_behavior import UserBehavior
from jobtree.simulation.replay.saved_replay import run
from jobtree.simulation.schedulers.jobtree_scheduler import JobtreeScheduler
from tests.unit.benchmarks import lab_events
from tests.unit.benchmarks.line_count import FEW, LINEAR, PER_DRAW, SAME, SOME, Event, Row, counts


def scale(size: int, closed: int = 50) -> Scale:
    """So many domains of four nodes each, and as many Budgets, since larger fleets have more teams."""
    budgets = max(5, size)
    return Scale(
        "small", nodes=4 * size, domains=size, budgets=budgets, closed_leases=closed, free_percent=30
    )


def in_use(size: int) -> Fleet:
    sizes = scale(size)
    world = full_world(sizes)
    thin_out(world, sizes)
    return Fleet(sizes, world)


def decision(fleet: Fleet, kind: Kind) -> Event:
    """The decision on one arrival, after another one like it."""
    arrive(fleet, kind, 0, Arrivals())
    run = arrival(fleet.scale, 1, kind.gpus, fleet.world.now, grouped=kind.grouped)
    return partial(decide, fleet.world, run)


def an_arrival(size: int) -> Event:
    """On a fleet of that size."""
    fleet = in_use(4 * size)
    return decision(fleet, Kind(8, grouped=False))


def an_arrival_in_groups(size: int) -> Event:
    """The same, of a gang with groups that must each sit in one domain."""
    fleet = in_use(4 * size)
    return decision(fleet, Kind(64, grouped=True))


def a_wide_arrival(size: int) -> Event:
    """Of so many GPUs, in pods of eight."""
    fleet = in_use(24)
    kind = Kind(8 * size, grouped=False)
    return decision(fleet, kind)


def an_arrival_after(size: int) -> Event:
    """After so many leases have closed."""
    made = scale(6, closed=60 * size)
    world = full_world(made)
    thin_out(world, made)
    bodies = documents(made, world)
    fleet = Fleet(made, build(map(parse, bodies), world.now))
    return decision(fleet, Kind(8, grouped=False))


def a_refusal(size: int) -> Event:
    """On a full fleet of that size: the arrival gets a Reservation."""
    made = scale(3 * size)
    fleet = Fleet(made, full_world(made))
    measure_refusals(fleet, Kind(8, grouped=False), 1)
    return partial(measure_refusals, fleet, Kind(8, grouped=False), 1)


def all_reservations(size: int) -> Event:
    """All Reservations are written while so many Runs wait."""
    made = scale(8)
    world = full_world(made)
    for number in range(3 * size):
        world.put_run(arrival(made, number, 8, world.now, grouped=False))
    world.apply_plan(plan(world))
    promised = [(waiting, waiting.promise) for waiting in world.runs.values() if waiting.promise]
    assert len(promised) == 3 * size
    cached_kill_probabilities.cache_clear()

    def write() -> None:
        for waiting, promise in promised:
            reservation_object(world, waiting, promise)

    write()
    return write


def a_resolution(size: int) -> Event:
    case = lottery_case(6 * size)
    return partial(run_lottery, case, NONCE)


def exact_odds(size: int) -> Event:
    """With one ticket more, the number of orders grows at most by the number of tickets."""
    case = lottery_case(5 if size == FEW else 6)
    return partial(exact_probabilities, case)


def simulated_odds(size: int) -> Event:
    case = lottery_case(2 * size)
    return partial(simulated_probabilities, case)


def a_day(size: int) -> Event:
    """With so many arrivals, on a fleet that has room for them."""
    return partial(measure_day, scale(40), 8 * size)


def an_end_while_many_want_to_grow(size: int) -> Event:
    made = scale(2 * size)
    world = eager_world(made, 3 * size)
    key = min(key for key, running in world.runs.items() if running.width == 16)
    world.advance_clock(world.now + SECOND)
    world.finish(key, succeeded=True, at=world.now)
    return partial(plan, world)


def failing(world: World, names: list[str]) -> Event:
    world.advance_clock(world.now + SECOND)
    for name in names:
        world.put_node(msgspec.structs.replace(world.fleet.nodes[name].node, failed=True))
    return partial(plan, world)


def a_failure(size: int) -> Event:
    """Of one node, in a fleet of that size."""
    return failing(eager_world(scale(2 * size), 2 * size), [node_name(0)])


def an_outage(size: int) -> Event:
    """Of so many nodes at once."""
    return failing(eager_world(scale(40), 40), [node_name(number) for number in range(2 * size)])


def a_scrape(size: int) -> Event:
    world = in_use(size).world
    gauges = WorldGauges(lambda: world, lambda: world.now)
    gauges.page()
    return gauges.page


def a_tree(size: int) -> Event:
    """On a fleet of that size."""
    fleet = in_use(4 * size)
    measure_trees(fleet, 1)
    return partial(measure_trees, fleet, 1)


def an_end_while_many_wait(size: int) -> Event:
    """On a full fleet: what becomes free is too little for each of them, or reserved for one."""
    made = scale(8)
    world = full_world(made)
    first, second = sorted(world.runs)[:2]
    for number in range(6 * size):
        world.put_run(arrival(made, number, 8, world.now, grouped=False))
    world.apply_plan(plan(world))

    def end(key: RunKey) -> Plan:
        world.advance_clock(world.now + SECOND)
        world.finish(key, succeeded=True, at=world.now)
        return plan(world)

    world.apply_plan(end(first))
    return partial(end, second)


def a_replay(size: int) -> Event:
    """Of so many jobs, on a fleet that has room for them."""
    trace = made_up_trace(20 * size, 1_024, 70)
    ground = made_up(128, 8, 8)
    budgets, owners = made_up_budgets(trace, ground.gpus, {})
    return partial(run, JobtreeScheduler(ReplaySetup(trace, ground.nodes, budgets, owners, ground.epoch)))


def a_replay_on(size: int) -> Event:
    """Of the same jobs, on a fleet of that size."""
    trace = made_up_trace(40, 64, 70)
    ground = made_up(16 * size, 8, size)
    budgets, owners = made_up_budgets(trace, ground.gpus, {})
    return partial(run, JobtreeScheduler(ReplaySetup(trace, ground.nodes, budgets, owners, ground.epoch)))


def some_crowded_instants(size: int) -> Event:
    """Of a replay on a fleet that is too small, when so many Runs wait."""
    replay = JobtreeScheduler(crowded(1_000, 128, 300, UserBehavior(notice=True)))
    while len(replay.world.queue) < 3 * size:
        assert replay.step()

    def go_on() -> None:
        for _ in range(60):  # some of these steps compute a forecast, which is expensive
            replay.step()

    return go_on


ROWS: dict[str, list[Row]] = {
    "DECIDE_MS": [(an_arrival, SAME), (a_wide_arrival, LINEAR)],
    "FLEET_RATIO": [(an_arrival_in_groups, SAME)],
    "CLOSED_RATIO": [(an_arrival_after, SAME)],
    "RESERVATION_MS": [(a_refusal, SOME)],
    "FORECAST_MS": [(all_reservations, LINEAR)],
    "RESOLUTION_MS": [(a_resolution, PER_DRAW)],
    "EXACT_ODDS_MS": [(exact_odds, 7)],
    "SIMULATED_ODDS_MS": [(simulated_odds, PER_DRAW)],
    "DAY_S": [(a_day, LINEAR)],
    "GROWTH_MS": [(an_end_while_many_want_to_grow, LINEAR)],
    "REPAIR_MS": [(a_failure, LINEAR)],
    "OUTAGE_MS": [(an_outage, LINEAR)],
    "SCRAPE_MS": [(a_scrape, LINEAR)],
    "TREE_MS": [(a_tree, SOME)],
    "REPLAY_S": [(a_replay, LINEAR), (some_crowded_instants, LINEAR), (a_replay_on, SAME)],
}
BY_MEMORY = {"MEMORY_RATIO"}
WITHOUT_BOUND: list[Row] = [(an_end_while_many_wait, SAME), *lab_events.ROWS]  # in ``make bench``


@pytest.mark.parametrize(
    ("prepare", "bound"),
    [pytest.param(*row, id=row[0].__name__) for rows in (*ROWS.values(), WITHOUT_BOUND) for row in rows],
)
def test_an_event_four_times_as_large_costs_at_most_the_bound(
    prepare: Callable[[int], Event], bound: float
) -> None:
    few, many = counts(prepare)
    assert many <= bound * few, f"{few} lines, then {many}: {many / few:.1f} times as many"


def test_every_bound_of_the_benchmarks_has_a_row() -> None:
    bounds = {
        name for name in vars(bars) if name.isupper() and isinstance(getattr(bars, name), (bars.Bar, dict))
    }
    assert bounds == ROWS.keys() | BY_MEMORY


def test_a_waiting_run_needs_no_more_memory_when_twice_as_many_wait() -> None:
    """No waiting Run may keep something for each other waiting Run."""
    (few, light), (many, heavy) = bytes_per_waiting_run(32)
    assert few < many
    assert bars.MEMORY_RATIO.holds(heavy / light), f"{light:.0f} bytes each, then {heavy:.0f}"
