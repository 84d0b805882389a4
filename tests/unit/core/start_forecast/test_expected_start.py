"""Expected starts follow from past and declared durations, and are never later than the promise."""

import pytest

from jobtree.api.schema.quantities import HOUR, MINUTE
from jobtree.core.start_forecast import expected_start, queue_forecast
from jobtree.core.start_forecast.expected_start import ExpectedStarts
from jobtree.core.start_forecast.queue_forecast import QueueForecast
from jobtree.core.world.world import World
from tests.unit.core.build import T0, budget, envelope, nodes, run
from tests.unit.core.lab import Lab


def expected(lab: Lab, name: str) -> tuple[int, int] | None:
    """Returns the p50 and p90 of the start of a Run, after T0."""
    found = ExpectedStarts(lab.world).estimate(lab[name])
    return None if found is None else (found.p50 - T0, found.p90 - T0)


def lab_with_history(*minutes: int, owner: str = "org:a") -> Lab:
    """One node on which Runs of that owner ran one after another, so long each. It is 100 hours after T0."""
    lab = Lab(nodes("nv-a", 1), budget("org:a", 8), budget("org:b", 8), budget("org:c", 8))
    now = 0
    for number, lasted in enumerate(minutes):
        lab.submit(run(f"past-{number}", owner, 8, at=now))
        now += lasted * MINUTE
        lab.live(now)
        lab.finish(f"past-{number}")
    lab.live(100 * HOUR)
    return lab


def waiting(lab: Lab, age: int = 0, owner: str = "org:a", **fields: str) -> Lab:
    """A Run of that owner has used the node for that long, and a Run of another team waits for it."""
    now = lab.world.now - T0
    lab.submit(run("holder", owner, 8, at=now, max_duration=fields.get("max_duration")))
    lab.live(now + age)
    lab.submit(run("next", "org:b", 8, at=now + age))
    return lab


def test_no_start_is_expected_without_a_declared_end_or_a_history() -> None:
    lab = waiting(lab_with_history())
    assert lab.promised_at("next") == 102 * HOUR
    assert expected(lab, "next") is None


def test_declared_end_is_used_without_a_history() -> None:
    lab = waiting(lab_with_history(), max_duration="1h")
    assert expected(lab, "next") == (101 * HOUR, 101 * HOUR)


def test_history_is_that_of_the_owners_runs_of_similar_size() -> None:
    lab = waiting(lab_with_history(10, 20, 30, 40, 50))
    assert expected(lab, "next") == (100 * HOUR + 30 * MINUTE, 100 * HOUR + 50 * MINUTE)


def test_runs_of_other_owners_and_sizes_do_not_count() -> None:
    assert expected(waiting(lab_with_history(10, 20, 30, 40, 50, owner="org:c")), "next") is None
    lab = lab_with_history(10, 20, 30, 40, 50)
    lab.submit(run("small", "org:a", 4, at=100 * HOUR))
    lab.submit(run("next", "org:b", 8, at=100 * HOUR))
    assert expected(lab, "next") is None


def test_long_running_run_is_not_expected_to_end_like_short_ones() -> None:
    lab = waiting(lab_with_history(*[10] * 9, 100, 110), age=20 * MINUTE)
    assert expected(lab, "next") == (100 * HOUR + 100 * MINUTE, 100 * HOUR + 110 * MINUTE)


def test_expected_end_is_at_most_the_declared_end() -> None:
    lab = waiting(lab_with_history(10, 20, 30, 40, 50), max_duration="45m")
    assert expected(lab, "next") == (100 * HOUR + 30 * MINUTE, 100 * HOUR + 45 * MINUTE)


def test_expected_start_is_at_most_the_promised_start() -> None:
    lab = waiting(lab_with_history(*[600] * 5))
    assert lab.promised_at("next") == 102 * HOUR
    assert expected(lab, "next") == (102 * HOUR, 102 * HOUR)


def test_earlier_promise_is_expected_to_start_first() -> None:
    """Both wait for the node. The second also waits for the first, whose team has Runs of an hour."""
    lab = lab_with_history(*[10] * 6)
    lab.submit(run("holder", "org:a", 8, at=100 * HOUR))
    lab.submit(run("next", "org:b", 8, at=100 * HOUR, max_duration="1h"))
    lab.submit(run("last", "org:c", 8, at=100 * HOUR))
    assert expected(lab, "next") == (100 * HOUR + 10 * MINUTE, 100 * HOUR + 10 * MINUTE)
    assert expected(lab, "last") == (101 * HOUR + 10 * MINUTE, 101 * HOUR + 10 * MINUTE)


def test_budget_that_returns_allows_an_expected_start() -> None:
    """There are two nodes, and the team pays for one: no start is promised, but the running Run will end."""
    lab = lab_with_history(*[10] * 5)
    lab.put(nodes("nv-b", 1))
    lab.submit(run("holder", "org:a", 8, at=100 * HOUR))
    lab.submit(run("next", "org:a", 8, at=100 * HOUR + 1))
    assert lab.promised_at("next") is None
    assert expected(lab, "next") == (100 * HOUR + 10 * MINUTE, 100 * HOUR + 10 * MINUTE)


def test_expected_start_waits_for_the_window_of_the_payer() -> None:
    lab = Lab(nodes("nv-a", 2), budget("org:a", 8), budget("org:b", envelope(8, start=3 * HOUR)))
    lab.submit(run("holder", "org:a", 8, max_duration="1h"))
    lab.submit(run("next", "org:b", 8))
    assert expected(lab, "next") == (3 * HOUR, 3 * HOUR)


def test_run_that_can_never_start_has_no_expected_start() -> None:
    lab = Lab(nodes("nv-a", 2), budget("org:a", 8), budget("org:b", 8))
    lab.submit(run("holder", "org:a", 8, max_duration="1h"))
    lab.submit(run("next", "org:b", 64))
    assert expected(lab, "next") is None


def test_run_behind_many_gets_an_estimate_from_the_speed_of_their_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One Run of an hour after another: the sixth starts after six hours, simulated or not."""
    lab = Lab(nodes("nv-a", 1), budget("org:a", 8))
    lab.submit(run("holder", "org:a", 8, max_duration="1h"))
    for number in range(6):
        lab.submit(run(f"w{number}", "org:a", 8, at=number + 1, max_duration="1h"))
    assert expected(lab, "w5") == (6 * HOUR, 6 * HOUR)
    monkeypatch.setattr(queue_forecast, "HEAD", 2)
    assert QueueForecast(lab.world).simulated == 2
    assert expected(lab, "w1") == (2 * HOUR, 2 * HOUR)
    early, late = expected(lab, "w5") or (0, 0)
    assert 5 * HOUR < early <= late <= 6 * HOUR


def test_cached_forecast_is_dropped_when_a_run_starts_without_waiting() -> None:
    """A forecast of days is used for hours. Then other Runs take the free nodes, and the next has to wait."""
    lab = Lab(nodes("nv-a", 3), budget("org:a", 8), budget("org:b", 24))
    lab.submit(run("holder", "org:a", 8, max_duration="90h"))
    lab.submit(run("w0", "org:a", 8, at=1, max_duration="90h"))
    shared = ExpectedStarts(lab.world)
    assert shared.estimate(lab["w0"]) is not None
    lab.live(HOUR)
    lab.submit(*(run(f"b{number}", "org:b", 8, at=HOUR, max_duration="10h") for number in range(2)))
    lab.submit(run("next", "org:b", 8, at=HOUR + 1, max_duration="10h"))
    assert shared.is_current()
    found = shared.estimate(lab["next"])
    assert found is not None
    assert found.p50 > lab.world.now
    assert found == ExpectedStarts(lab.world).estimate(lab["next"])


def test_forecast_is_used_again_while_little_has_changed() -> None:
    """A later Run comes behind all simulated ones; a forecast of hours is used for minutes."""
    lab = Lab(nodes("nv-a", 1), budget("org:a", 8))
    lab.submit(run("holder", "org:a", 8, max_duration="10h"))
    lab.submit(run("w0", "org:a", 8, at=1, max_duration="10h"))
    shared = ExpectedStarts(lab.world)
    assert shared.estimate(lab["w0"]) == ExpectedStarts(lab.world).estimate(lab["w0"])
    lab.live(10 * MINUTE)
    lab.submit(run("w1", "org:a", 8, at=10 * MINUTE, max_duration="10h"))
    assert shared.is_current()
    assert shared.estimate(lab["w1"]) == ExpectedStarts(lab.world).estimate(lab["w1"])
    lab.live(2 * HOUR)
    assert not shared.is_current()


def test_expensive_forecast_is_used_for_several_estimates(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(nodes("nv-a", 1), budget("org:a", 8))
    lab.submit(run("holder", "org:a", 8, max_duration="10h"))
    lab.submit(*(run(f"w{number}", "org:a", 8, at=1, max_duration="10h") for number in range(3)))
    shared = ExpectedStarts(lab.world)
    shared.estimate(lab["w0"])
    lab.live(90 * MINUTE)
    assert not shared.is_current()
    monkeypatch.setattr(expected_start, "SMALL_SIMULATIONS", 2)
    assert shared.is_current()
    monkeypatch.setattr(queue_forecast, "HEAD", 3)
    lab.submit(run("last", "org:a", 8, at=90 * MINUTE, max_duration="10h"))
    shared.estimate(lab["last"])
    assert not shared.is_current()


def test_run_that_starts_soon_gets_a_new_forecast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others wait for days, this Run for an hour: a forecast of two hours ago is too old for it."""
    lab = Lab(nodes("nv-a", 2), budget("org:a", 8), budget("org:b", 8))
    lab.submit(run("long", "org:a", 8, max_duration="90h"), run("short", "org:b", 8, max_duration="3h"))
    lab.submit(run("w0", "org:a", 8, at=1, max_duration="90h"))
    shared, made = ExpectedStarts(lab.world), list[int]()
    shared.estimate(lab["w0"])

    def anew(world: World) -> QueueForecast:
        made.append(world.now)
        return QueueForecast(world)

    monkeypatch.setattr(expected_start, "QueueForecast", anew)
    lab.live(2 * HOUR)
    lab.submit(run("w1", "org:a", 8, at=2 * HOUR, max_duration="90h"))
    lab.submit(run("next", "org:b", 8, at=2 * HOUR, max_duration="3h"))
    assert shared.is_current()
    assert shared.estimate(lab["w1"]) is not None
    assert not made
    assert shared.estimate(lab["next"]) is not None
    assert made == [lab.world.now]


def test_forecast_is_dropped_when_nodes_change() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org:a", 8))
    lab.submit(run("holder", "org:a", 8, max_duration="10h"))
    lab.submit(run("w0", "org:a", 8, at=1, max_duration="10h"))
    shared = ExpectedStarts(lab.world)
    shared.estimate(lab["w0"])
    assert shared.is_current()
    lab.put(nodes("nv-b", 1))
    assert not shared.is_current()


def test_start_adjusts_the_next_estimates() -> None:
    """All Runs declare ten hours and take one. Each team has its first Runs, so there is no history."""
    lab = Lab(nodes("nv-a", 1), *(budget(f"org:{number}", 8) for number in range(12)))
    waits = []
    for number in range(12):
        now, owner = 100 * HOUR * number, f"org:{number}"
        lab.live(now)
        lab.submit(run(f"holder-{number}", owner, 8, at=now, max_duration="10h"))
        lab.submit(run(f"next-{number}", owner, 8, at=now, max_duration="10h"))
        found = ExpectedStarts(lab.world).estimate_and_record(lab[f"next-{number}"])
        assert found is not None
        assert found.mean == T0 + now + 10 * HOUR
        waits.append(found.p50 - T0 - now)
        lab.live(now + HOUR)
        lab.finish(f"holder-{number}")
        assert lab[f"next-{number}"].phase == "Running"
        lab.live(now + 2 * HOUR)
        lab.finish(f"next-{number}")
    assert (waits[0], waits[-1]) == (10 * HOUR, HOUR)
