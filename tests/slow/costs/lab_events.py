"""Events that no benchmark measures, on worlds of a Lab: rows of the cost table in ``test_costs``."""

from jobtree.api.schema.quantities import HOUR, SECOND
from jobtree.core.planning.planning_pass import plan
from jobtree.core.start_forecast.expected_start import ExpectedStarts
from tests.slow.costs.line_count import CONSTANT, LINEAR, Event, Row
from tests.unit.core.build import NAMESPACE, T0, budget, nodes, run, tree
from tests.unit.core.lab import Lab

TEAMS = 24
PER_SIZE = 12  # domains or Runs for each unit of size


def full_fleet() -> Lab:
    """A fleet in which each team has a domain of two nodes, and two Runs that fill it."""
    lab = Lab(*(nodes(f"nv-{number}", 2) for number in range(TEAMS)))
    lab.put(*(budget(f"org:t{number}", 32) for number in range(TEAMS)))
    for number in range(TEAMS):
        lab.put(*(run(f"r{number}-{part}", f"org:t{number}", 8) for part in range(2)))
    lab.settle()
    return lab


def an_arrival_that_starts(size: int) -> Event:
    """A Run arrives in a fleet of empty domains; ``size`` sets their number."""
    domains = (nodes(f"nv-{number}", 2) for number in range(PER_SIZE * size))
    lab = Lab(*domains, budget("org", 1000))
    lab.settle()
    lab.put(run("new", "org", 16))
    return lambda: plan(lab.world)


def arrivals_that_wait(size: int) -> Event:
    """Runs arrive at a full fleet; ``size`` sets their number."""
    lab = full_fleet()
    lab.put(*(run(f"w{number}", f"org:t{number % TEAMS}", 8) for number in range(PER_SIZE * size)))
    return lambda: plan(lab.world)


def an_end_while_wide_runs_wait(size: int) -> Event:
    """Runs wait for two nodes each, and one node becomes free; ``size`` sets the number of Runs."""
    lab = full_fleet()
    lab.submit(*(run(f"w{number}", f"org:t{number % TEAMS}", 16) for number in range(PER_SIZE * size)))
    lab.world.advance_clock(T0 + SECOND)
    lab.world.finish((NAMESPACE, "r0-0"), succeeded=True, at=lab.world.now)
    return lambda: plan(lab.world)


def an_end_while_others_cannot_grow(size: int) -> Event:
    """One of the Runs that fill a domain each and cannot grow ends; ``size`` sets their number."""
    count = PER_SIZE * size
    lab = Lab(*(nodes(f"nv-{number}", 2) for number in range(count)), budget("org", 1000 * count))
    lab.put(*(run(f"m{number}", "org", 16, malleable=(8, 32, 8), rendezvous=True) for number in range(count)))
    lab.settle()
    lab.advance(HOUR)
    lab.world.advance_clock(T0 + 2 * HOUR)
    lab.world.finish((NAMESPACE, "m0"), succeeded=True, at=lab.world.now)
    return lambda: plan(lab.world)


def expected_starts(size: int) -> Event:
    """The expected start of a waiting Run is estimated; ``size`` sets the number of waiting Runs."""
    lab = full_fleet()
    lab.submit(*(run(f"w{number}", f"org:t{number % TEAMS}", 8) for number in range(PER_SIZE * size)))
    return lambda: ExpectedStarts(lab.world).estimate(lab["w0"])


def trees_that_arrive(size: int) -> Event:
    """Job trees arrive at a full fleet; ``size`` sets their number."""
    lab = full_fleet()
    resources = {"gpuType": "H100-80GB", "totalGPUs": 8}
    stages = [{"name": name, "resources": resources} for name in ("a", "b")]
    lab.put(*(tree(f"t{number}", f"org:t{number % TEAMS}", stages) for number in range(PER_SIZE * size)))
    return lambda: plan(lab.world)


ROWS: list[Row] = [
    (an_arrival_that_starts, CONSTANT),
    (arrivals_that_wait, LINEAR),
    (an_end_while_wide_runs_wait, LINEAR),
    (an_end_while_others_cannot_grow, CONSTANT),
    (expected_starts, LINEAR),
    (trees_that_arrive, LINEAR),
]
