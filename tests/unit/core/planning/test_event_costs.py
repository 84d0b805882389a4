"""What events cost when there is twice as much of everything: counted in calls, so no machine is too slow.

Each row has a bound on the ratio. Where a cost is quadratic the ratio comes to four.
"""

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from jobtree.api.schema.quantities import HOUR, SECOND
from jobtree.core.planning.planning_pass import plan
from jobtree.core.start_forecast.expected_start import ExpectedStarts
from tests.unit.core.build import NAMESPACE, T0, budget, nodes, run, tree
from tests.unit.core.lab import Lab

Event = Callable[[], object]
FEW = 24
NEVER_QUADRATIC = 2.8  # twice as much work, and something for what is sorted
HARDLY_MORE = 1.5


def calls(event: Event) -> int:
    """Python functions called in the course of an event."""
    count = 0

    def note(_frame: FrameType, what: str, _of: object) -> None:
        nonlocal count
        count += what == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        event()
    finally:
        sys.setprofile(before)
    return count


def full(count: int) -> Lab:
    """A fleet that Runs of eight fill, two of them for each team; so many teams."""
    lab = Lab(*(nodes(f"nv-{number}", 2) for number in range(count)))
    lab.put(*(budget(f"org:t{number}", 32) for number in range(count)))
    for number in range(count):
        lab.put(*(run(f"r{number}-{part}", f"org:t{number}", 8) for part in range(2)))
    lab.settle()
    return lab


def an_arrival_that_starts(count: int) -> Event:
    lab = Lab(*(nodes(f"nv-{number}", 2) for number in range(count)), budget("org", 1000))
    lab.settle()
    lab.put(run("new", "org", 16))
    return lambda: plan(lab.world)


def arrivals_that_wait(count: int) -> Event:
    lab = full(FEW)
    lab.put(*(run(f"w{number}", f"org:t{number % FEW}", 8) for number in range(count)))
    return lambda: plan(lab.world)


def an_end_while_many_wait(count: int) -> Event:
    lab = full(FEW)
    lab.submit(*(run(f"w{number}", f"org:t{number % FEW}", 16) for number in range(count)))
    lab.world.advance_clock(T0 + SECOND)
    lab.world.finish((NAMESPACE, "r0-0"), succeeded=True, at=lab.world.now)
    return lambda: plan(lab.world)


def an_end_while_many_want_to_grow(count: int) -> Event:
    lab = Lab(*(nodes(f"nv-{number}", 2) for number in range(count)), budget("org", 1000 * count))
    lab.put(*(run(f"m{number}", "org", 16, malleable=(8, 32, 8), rendezvous=True) for number in range(count)))
    lab.settle()
    lab.advance(HOUR)
    lab.world.advance_clock(T0 + 2 * HOUR)
    lab.world.finish((NAMESPACE, "m0"), succeeded=True, at=lab.world.now)
    return lambda: plan(lab.world)


def expected_starts(count: int) -> Event:
    lab = full(FEW)
    lab.submit(*(run(f"w{number}", f"org:t{number % FEW}", 8) for number in range(count)))
    return lambda: ExpectedStarts(lab.world).estimate(lab["w0"])


def trees_that_arrive(count: int) -> Event:
    lab = full(FEW)
    stage = {"gpuType": "H100-80GB", "totalGPUs": 8}
    stages = [{"name": name, "resources": stage} for name in ("a", "b")]
    lab.put(*(tree(f"t{number}", f"org:t{number % FEW}", stages) for number in range(count)))
    return lambda: plan(lab.world)


@pytest.mark.parametrize(
    ("row", "bound"),
    [
        (an_arrival_that_starts, HARDLY_MORE),
        (arrivals_that_wait, NEVER_QUADRATIC),
        (an_end_while_many_wait, NEVER_QUADRATIC),
        (an_end_while_many_want_to_grow, NEVER_QUADRATIC),
        (expected_starts, NEVER_QUADRATIC),
        (trees_that_arrive, NEVER_QUADRATIC),
    ],
)
def test_twice_as_much_does_not_cost_four_times(row: Callable[[int], Event], bound: float) -> None:
    once, twice = calls(row(2 * FEW)), calls(row(4 * FEW))
    assert twice <= bound * once, f"{once} calls, then {twice}"


def test_runs_that_know_why_they_cannot_grow_cost_next_to_nothing() -> None:
    event = an_end_while_many_want_to_grow
    assert calls(event(4 * FEW)) - calls(event(2 * FEW)) < 2 * FEW * 20
