"""No cost becomes quadratic: neither what ``make bench`` bounds, nor the events that only ``lab_events`` has.

The cost of an event is the number of executed lines (``line_count``). ``size`` is a number that the event
grows with; each docstring says how. Every bound in ``benchmarks/bars.py`` has a row here.
"""

from collections.abc import Callable
from functools import partial

import msgspec
import pytest

from benchmarks import bars
from benchmarks.arrivals import Fleet, Kind, Samples as Arrivals, arrive, decide, measure_refusals
from benchmarks.day import measure_day
from benchmarks.failures import eager_world
from benchmarks.fixtures import budgets, node_name
from benchmarks.grow import build, documents, full_world, parse, thin_out
from benchmarks.promises import NONCE, lottery_case
from benchmarks.replay_speed import bytes_per_waiting_run, crowded, made_up_trace
from benchmarks.scale import Scale
from benchmarks.trees import measure_trees
from benchmarks.workload import arrival
from jobtree.api.kinds.budget import Budget
from jobtree.api.schema.quantities import SECOND
from jobtree.core.lottery.draw import run_lottery
from jobtree.core.lottery.kill_probability import exact_probabilities, simulated_probabilities
from jobtree.core.model.actions import Plan
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.planning.planning_pass import plan
from jobtree.core.reporting.promise_sequence import cached_kill_probabilities
from jobtree.core.reporting.reservation_codec import reservation_object
from jobtree.core.world.world import World
from jobtree.manager.planner.world_gauges import WorldGauges
from jobtree.simulation.inputs.job_trace import Trace
from jobtree.simulation.inputs.replay_cluster import ReplayCluster, made_up, made_up_budgets
from jobtree.simulation.inputs.replay_setup import ReplaySetup
from jobtree.simulation.inputs.user_behavior import UserBehavior
from jobtree.simulation.replay.saved_replay import run as run_replay
from jobtree.simulation.schedulers.jobtree_scheduler import JobtreeScheduler
from tests.slow.costs import lab_events
from tests.slow.costs.line_count import (
    CONSTANT,
    DRAWS,
    IN_A_CROWD,
    LINEAR,
    PARTLY_LINEAR,
    SMALL,
    Event,
    Row,
    line_counts,
)
from tests.unit.core.world.test_inactive_queue import recorded


def small_scale(domains: int, closed_leases: int = 50) -> Scale:
    """A fleet with four nodes per domain, and as many Budgets as domains: larger fleets have more teams."""
    return Scale(
        "small",
        nodes=4 * domains,
        domains=domains,
        budgets=max(5, domains),
        closed_leases=closed_leases,
        free_percent=30,
    )


def fleet_in_use(domains: int) -> Fleet:
    scale = small_scale(domains)
    world = full_world(scale)
    thin_out(world, scale)
    return Fleet(scale, world)


def decision(fleet: Fleet, kind: Kind) -> Event:
    """The decision on one arrival, after the same kind of arrival came and went once."""
    arrive(fleet, kind, 0, Arrivals())
    run = arrival(fleet.scale, 1, kind.gpus, fleet.world.now, grouped=kind.grouped)
    return partial(decide, fleet.world, run)


def an_arrival(size: int) -> Event:
    """A Run of one node arrives; ``size`` sets the domains of the fleet."""
    return decision(fleet_in_use(4 * size), Kind(8, grouped=False))


def an_arrival_in_groups(size: int) -> Event:
    """A Run with groups arrives; ``size`` sets the domains of the fleet."""
    return decision(fleet_in_use(4 * size), Kind(64, grouped=True))


def a_wide_arrival(size: int) -> Event:
    """A Run of ``size`` pods arrives, each with 8 GPUs."""
    return decision(fleet_in_use(24), Kind(8 * size, grouped=False))


def an_arrival_after_many_leases_closed(size: int) -> Event:
    """A Run of one node arrives; ``size`` sets the number of closed leases."""
    scale = small_scale(6, closed_leases=60 * size)
    world = full_world(scale)
    thin_out(world, scale)
    fleet = Fleet(scale, build(map(parse, documents(scale, world)), world.now))
    return decision(fleet, Kind(8, grouped=False))


def a_refusal(size: int) -> Event:
    """A Run arrives at a full fleet and gets a Reservation; ``size`` sets the domains of the fleet."""
    scale = small_scale(3 * size)
    fleet = Fleet(scale, full_world(scale))
    measure_refusals(fleet, Kind(8, grouped=False), 1)
    return partial(measure_refusals, fleet, Kind(8, grouped=False), 1)


def all_reservations(size: int) -> Event:
    """All Reservations are written again; ``size`` sets the number of waiting Runs."""
    scale = small_scale(8)
    world = full_world(scale)
    for number in range(3 * size):
        world.put_run(arrival(scale, number, 8, world.now, grouped=False))
    world.apply_plan(plan(world))
    promises = [(run, run.promise) for run in world.runs.values() if run.promise]
    assert len(promises) == 3 * size
    cached_kill_probabilities.cache_clear()

    def write_all() -> None:
        for run, promise in promises:
            reservation_object(world, run, promise)

    write_all()
    return write_all


def a_resolution(size: int) -> Event:
    """A lottery is resolved; ``size`` sets the number of tickets."""
    case = lottery_case(6 * size)
    return partial(run_lottery, case, NONCE)


def exact_kill_probabilities(size: int) -> Event:
    """The probabilities of 5 and of 6 tickets are computed: there are at most 6 times as many orders."""
    case = lottery_case(5 if size == SMALL else 6)
    return partial(exact_probabilities, case)


def simulated_kill_probabilities(size: int) -> Event:
    """The probabilities are computed by simulation; ``size`` sets the number of tickets."""
    case = lottery_case(2 * size)
    return partial(simulated_probabilities, case)


def a_day(size: int) -> Event:
    """A day passes on a fleet with free GPUs; ``size`` sets the number of arrivals."""
    return partial(measure_day, small_scale(40), 8 * size)


def an_end_while_many_want_to_grow(size: int) -> Event:
    """A Run ends; ``size`` sets the number of Runs that want to grow, and the domains of the fleet."""
    world = eager_world(small_scale(2 * size), 3 * size)
    key = min(key for key, run in world.runs.items() if run.width == 16)
    world.advance_clock(world.now + SECOND)
    world.finish(key, succeeded=True, at=world.now)
    return partial(plan, world)


def failure_of_nodes(world: World, names: list[str]) -> Event:
    world.advance_clock(world.now + SECOND)
    for name in names:
        world.put_node(msgspec.structs.replace(world.fleet.nodes[name].node, failed=True))
    return partial(plan, world)


def a_failure(size: int) -> Event:
    """A node fails; ``size`` sets the domains of the fleet and the number of its Runs."""
    return failure_of_nodes(eager_world(small_scale(2 * size), 2 * size), [node_name(0)])


def an_outage(size: int) -> Event:
    """Nodes fail at once; ``size`` sets their number."""
    names = [node_name(number) for number in range(2 * size)]
    return failure_of_nodes(eager_world(small_scale(40), 40), names)


def a_scrape(size: int) -> Event:
    """All gauges are read; ``size`` is the number of domains."""
    world = fleet_in_use(size).world
    gauges = WorldGauges(lambda: world, lambda: world.now)
    gauges.page()
    return gauges.page


def a_tree(size: int) -> Event:
    """A job tree comes and goes; ``size`` sets the domains of the fleet."""
    fleet = fleet_in_use(4 * size)
    measure_trees(fleet, 1)
    return partial(measure_trees, fleet, 1)


def crowd(size: int) -> tuple[Scale, World]:
    """Returns a full fleet; ``size`` sets the number of waiting Runs."""
    scale = small_scale(8)
    world = full_world(scale)
    for number in range(6 * size):
        world.put_run(arrival(scale, number, 8, world.now, grouped=False))
    world.apply_plan(plan(world))
    return scale, world


def an_end_while_many_wait(size: int) -> Event:
    """A Run ends on a full fleet and frees too few GPUs for any waiting Run; ``size`` sets their number."""
    _, world = crowd(size)
    first, second = sorted(key for key, run in world.runs.items() if run.phase == "Running")[:2]

    def end(key: RunKey) -> Plan:
        world.advance_clock(world.now + SECOND)
        world.finish(key, succeeded=True, at=world.now)
        return plan(world)

    world.apply_plan(end(first))
    return partial(end, second)


def a_failure_while_many_wait(size: int) -> Event:
    """A node fails on a full fleet; ``size`` sets the number of waiting Runs."""
    _, world = crowd(size)
    return failure_of_nodes(world, [node_name(0)])


def a_heal_while_many_wait(size: int) -> Event:
    """The node is healed; ``size`` sets the number of waiting Runs."""
    _, world = crowd(size)
    node = world.fleet.nodes[node_name(0)].node
    failure_of_nodes(world, [node_name(0)])
    world.apply_plan(plan(world))
    world.advance_clock(world.now + SECOND)
    world.put_node(node)
    return partial(plan, world)


def an_edit_while_many_wait(size: int) -> Event:
    """A Budget is cut by a node; ``size`` sets the number of waiting Runs."""
    scale, world = crowd(size)
    budget = parse(list(budgets(scale))[-1])
    assert isinstance(budget, Budget)
    first, *others = budget.spec.envelopes
    cut = msgspec.structs.replace(first, concurrency=first.concurrency - 8)
    spec = msgspec.structs.replace(budget.spec, envelopes=(cut, *others))
    world.put_budget(msgspec.structs.replace(budget, spec=spec))
    return partial(plan, world)


def a_replay(size: int) -> Event:
    """A trace is replayed on a fleet with free GPUs; ``size`` sets the number of jobs."""
    return replay_of(made_up_trace(20 * size, 1_024, 70), made_up(128, 8, 8))


def a_replay_on_a_large_fleet(size: int) -> Event:
    """The same jobs are replayed; ``size`` is the number of domains."""
    return replay_of(made_up_trace(40, 64, 70), made_up(16 * size, 8, size))


def replay_of(trace: Trace, cluster: ReplayCluster) -> Event:
    budgets, owners = made_up_budgets(trace, cluster.nodes, {})
    setup = ReplaySetup(trace, cluster.nodes, budgets, owners, cluster.epoch)
    return partial(run_replay, JobtreeScheduler(setup))


def steps_of_a_crowded_replay(size: int) -> Event:
    """Steps of a replay on a fleet that is too small; ``size`` sets the number of waiting Runs."""
    replay = JobtreeScheduler(crowded(1_000, 128, 300, UserBehavior(notice=True)))
    while len(replay.world.queue) < 3 * size:
        assert replay.step()

    def take_steps() -> None:
        for _ in range(60):  # some of these steps compute a forecast, which is expensive
            replay.step()

    return take_steps


ROWS: dict[str, list[Row]] = {
    "DECIDE_MS": [(an_arrival, CONSTANT), (a_wide_arrival, LINEAR)],
    "FLEET_RATIO": [(an_arrival_in_groups, CONSTANT)],
    "CLOSED_RATIO": [(an_arrival_after_many_leases_closed, CONSTANT)],
    "RESERVATION_MS": [(a_refusal, PARTLY_LINEAR)],
    "FORECAST_MS": [(all_reservations, LINEAR)],
    "CROWD_END_MS": [(an_end_while_many_wait, CONSTANT)],
    "CROWD_FAILURE_MS": [(a_failure_while_many_wait, IN_A_CROWD)],
    "CROWD_HEAL_MS": [(a_heal_while_many_wait, IN_A_CROWD)],
    "CROWD_EDIT_MS": [(an_edit_while_many_wait, IN_A_CROWD)],
    "RESOLUTION_MS": [(a_resolution, DRAWS)],
    "EXACT_ODDS_MS": [(exact_kill_probabilities, 7)],
    "SIMULATED_ODDS_MS": [(simulated_kill_probabilities, DRAWS)],
    "DAY_S": [(a_day, LINEAR)],
    "GROWTH_MS": [(an_end_while_many_want_to_grow, LINEAR)],
    "REPAIR_MS": [(a_failure, LINEAR)],
    "OUTAGE_MS": [(an_outage, LINEAR)],
    "SCRAPE_MS": [(a_scrape, LINEAR)],
    "TREE_MS": [(a_tree, PARTLY_LINEAR)],
    "REPLAY_S": [
        (a_replay, LINEAR),
        (steps_of_a_crowded_replay, LINEAR),
        (a_replay_on_a_large_fleet, CONSTANT),
    ],
}
BY_MEMORY = {"MEMORY_RATIO"}
OF_PLANS = {  # bounds on what is planned, not on what planning costs
    "FIRM_MISSED_PERCENT",
    "FIRM_OUTAGES_PERCENT",
    "LOST_PERCENT",
    "MOST_STOPS",
    "NOT_RUNNING_RATIO",
    "NO_OTHER_REASON",
    "OWN_BUDGET_MIN",
    "USE_POINTS",
}
WITHOUT_A_BOUND: list[Row] = [*lab_events.ROWS]  # in ``make bench``


@pytest.mark.parametrize(
    ("prepare", "bound"),
    [pytest.param(*row, id=row[0].__name__) for rows in (*ROWS.values(), WITHOUT_A_BOUND) for row in rows],
)
def test_an_event_four_times_as_large_costs_at_most_the_bound(
    prepare: Callable[[int], Event], bound: float
) -> None:
    small, large = line_counts(prepare)
    assert large <= bound * small, f"{small} lines, then {large}: {large / small:.1f} times as many"


def test_every_bound_of_the_benchmarks_has_a_row() -> None:
    bounds = {
        name for name in vars(bars) if name.isupper() and isinstance(getattr(bars, name), (bars.Bar, dict))
    }
    assert bounds == ROWS.keys() | BY_MEMORY | OF_PLANS


def tried_starts(load_percent: int, waiting: int) -> int:
    """Returns how many starts 40 steps try, once so many Runs wait on an overloaded fleet."""
    replay = JobtreeScheduler(crowded(200, 64, load_percent))
    while len(replay.world.queue) < waiting:
        assert replay.step()
    with recorded() as runs:
        for _ in range(40):
            replay.step()
    return len(runs.tried)


def test_number_of_tried_starts_grows_less_than_the_queue() -> None:
    """The load is about four times the fleet, so the queue grows. The long queue has 4 times the Runs."""
    short_queue, long_queue = (
        sum(tried_starts(load_percent, waiting) for load_percent in (380, 400, 420, 440))
        for waiting in (10, 40)
    )
    assert long_queue <= 2.5 * short_queue, f"{short_queue} starts were tried, then {long_queue}"


def test_a_waiting_run_needs_no_more_memory_when_twice_as_many_wait() -> None:
    """A waiting Run holds no memory for each of the other waiting Runs."""
    (few, bytes_of_few), (many, bytes_of_many) = bytes_per_waiting_run(
        100
    )  # cached answers weigh less the more Runs wait
    assert few < many
    ratio = bytes_of_many / bytes_of_few
    assert bars.MEMORY_RATIO.holds(ratio), f"{bytes_of_few:.0f} bytes each, then {bytes_of_many:.0f}"
