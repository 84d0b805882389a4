"""Measures Reservations, expected starts, lotteries and kill probabilities."""

from random import Random

from benchmarks.sampling import settle_memory, timed
from jobtree.core.lottery.draw import run_lottery
from jobtree.core.lottery.kill_probability import exact_probabilities, simulated_probabilities
from jobtree.core.lottery.resolution import Case, NodeRoom, Ticket
from jobtree.core.reporting.promise_sequence import cached_kill_probabilities
from jobtree.core.reporting.reservation_codec import reservation_object
from jobtree.core.start_forecast.expected_start import ExpectedStarts
from jobtree.core.world.world import World

GPUS_PER_NODE = 8
NONCE = bytes(32)


def measure_forecasts(world: World) -> tuple[int, int]:
    """Measures the nanoseconds to make all Reservations, with an empty and with a full cache."""

    def write_all() -> None:
        for state in world.runs.values():
            if state.promise is not None:
                reservation_object(world, state, state.promise)

    settle_memory()
    cached_kill_probabilities.cache_clear()
    return timed(write_all)[1], timed(write_all)[1]


def measure_expectations(world: World) -> int:
    """Measures the nanoseconds to estimate the starts of all waiting Runs."""

    def expect_all() -> None:
        expectations = ExpectedStarts(world)
        for state in world.runs.values():
            if state.promise is not None:
                expectations.estimate(state)

    settle_memory()
    return timed(expect_all)[1]


def measure_resolution(tickets: int, count: int) -> list[int]:
    """Measures the nanoseconds to resolve a lottery that frees half of the slice."""
    case = lottery_case(tickets)
    return [timed(lambda: run_lottery(case, NONCE))[1] for _ in range(count)]


def measure_odds(tickets: int, count: int) -> list[int]:
    case, odds = lottery_case(tickets), exact_probabilities if tickets <= 6 else simulated_probabilities
    return [timed(lambda: odds(case))[1] for _ in range(count)]


def lottery_case(tickets: int) -> Case:
    """Returns a case of one full domain with ``tickets`` Runs of mixed sizes; half of it is needed."""
    random = Random(tickets)
    sizes = [random.choice((2, 4, 8, 8, 16)) for _ in range(tickets)]
    nodes = [f"n{number:03d}" for number in range(-(-sum(sizes) // GPUS_PER_NODE))]
    slots = [node for node in nodes for _ in range(GPUS_PER_NODE)]
    held: list[Ticket] = []
    for number, size in enumerate(sizes):
        mine, slots = slots[:size], slots[size:]
        gpus = tuple((node, mine.count(node)) for node in dict.fromkeys(mine))
        held.append(Ticket(f"uid-{number:03d}", gpus))
    free = {node: slots.count(node) for node in nodes}
    return Case(
        pod_size=GPUS_PER_NODE,
        pods=(("nv-000", len(nodes) // 2),),
        nodes=tuple(NodeRoom(node, "nv-000", free[node]) for node in nodes),
        takings=(),
        tickets=tuple(held),
    )
