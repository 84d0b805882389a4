"""Planning time never goes back, and waits for the system clock at half speed."""

from jobtree.manager.process.planning_clock import PlanningClock

T0 = 1_800_000_000_000


class Clocks:
    def __init__(self) -> None:
        self.system, self.elapsed = T0, 0
        self.planning = PlanningClock(lambda: self.system, lambda: self.elapsed)

    def wait(self, milliseconds: int) -> None:
        self.system += milliseconds
        self.elapsed += milliseconds


def test_planning_time_is_the_system_clock_when_that_only_advances() -> None:
    clocks = Clocks()
    for _ in range(3):
        clocks.wait(700)
        assert (clocks.planning.now(), clocks.planning.ahead()) == (clocks.system, 0)


def test_planning_time_runs_at_half_speed_until_a_corrected_clock_has_caught_up() -> None:
    clocks = Clocks()
    clocks.system -= 60_000
    assert (clocks.planning.now(), clocks.planning.ahead()) == (T0, 60_000)
    clocks.wait(20_000)
    assert (clocks.planning.now(), clocks.planning.ahead()) == (T0 + 10_000, 50_000)
    clocks.wait(100_000)
    assert (clocks.planning.now(), clocks.planning.ahead()) == (T0 + 60_000, 0)
    clocks.wait(1000)
    assert clocks.planning.now() == clocks.system


def test_planning_time_starts_at_the_latest_instant_on_an_object() -> None:
    clocks = Clocks()
    clocks.planning.raise_to(T0 - 1)
    assert clocks.planning.now() == T0
    clocks.planning.raise_to(T0 + 3_600_000)
    clocks.wait(2000)
    assert clocks.planning.now() == T0 + 3_601_000


def test_planning_time_never_goes_back_when_the_clock_jumps_to_and_fro() -> None:
    clocks = Clocks()
    last = clocks.planning.now()
    for jump in (5000, -9000, 3000, -1, 12_000, -20_000):
        clocks.system += jump
        clocks.wait(10)
        assert clocks.planning.now() >= last
        last = clocks.planning.now()
