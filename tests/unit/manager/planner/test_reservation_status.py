"""Thousands may wait: only some promises are told in one step, and nothing speaks of those that are not."""

import pytest

from jobtree.kube.http.api_resources import EVENTS, RUNS
from jobtree.manager.planner import reservation_status
from tests.unit.manager.cluster import Manager, Server, StoppedError, kubelets
from tests.unit.manager.stage import (
    TEMPLATE,
    finish_pods,
    phase,
    pods_of,
    put_budget,
    put_nodes,
    put_policy,
    put_run,
    states,
)

WAITING = ["w1", "w2", "w3", "w4", "w5"]


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservation_status, "PER_BUSY_TURN", 1)
    monkeypatch.setattr(reservation_status, "PER_IDLE_TURN", 2)


def crowd(waiting: list[str] = WAITING, lasts: str = "1h") -> Server:
    """One Run that holds all GPUs for so long, and others that wait for them."""
    server = Server()
    put_policy(server, TEMPLATE)
    put_nodes(server, "nv-a", 1)
    put_budget(server, "org", 64)
    put_run(server, "holder", "org", 8, max_duration=lasts)
    for name in waiting:
        put_run(server, name, "org", 8, max_duration=lasts)
    return server


def events(server: Server, reason: str) -> list[str]:
    found = [event for event in server.all(EVENTS) if event["reason"] == reason]
    return sorted(event["involvedObject"]["name"] for event in found)


def spoken_of(server: Server) -> list[str]:
    """Reservations that Runs name."""
    named = [run.get("status", {}).get("reservation") for run in server.all(RUNS)]
    return sorted(name for name in named if name)


def go_on(server: Server, manager: Manager) -> None:
    """Nothing happens until the manager wants to go on telling."""
    goes_on_at = manager.model.status_publisher.refresh_due_at()
    assert goes_on_at is not None
    server.now = goes_on_at


def rest(server: Server, manager: Manager) -> None:
    """Nothing happens until all is told."""
    manager.settle()
    while manager.model.status_publisher.reservations.has_more:
        go_on(server, manager)
        manager.settle()


def test_promises_that_come_due_first_are_written_first_and_runs_speak_of_no_other() -> None:
    server = crowd()
    manager = Manager(server)
    begun = server.now
    for told in (1, 3, 5):
        manager.turn()
        names = [f"{name}-1" for name in WAITING[:told]]
        assert sorted(states(server)) == names
        assert spoken_of(server) == names
        assert events(server, "Reserved") == WAITING[:told]
        if told < len(WAITING):
            go_on(server, manager)
            assert server.now == begun + reservation_status.CALM_MS, (
                "nobody waits for what can be told at once"
            )
    rest(server, manager)
    assert events(server, "Reserved") == WAITING, "each once"
    assert manager.broken() == []


def test_who_starts_before_its_promise_was_told_needs_no_reservation() -> None:
    server = crowd()
    manager = Manager(server)
    manager.turn()
    kubelets(server)
    server.delete(RUNS.path("ns", "w1"))
    finish_pods(server, "holder")
    manager.turn()
    assert phase(server, "w2") == "Running"
    rest(server, manager)
    assert sorted(states(server)) == ["w3-1", "w4-1", "w5-1"]
    assert events(server, "Superseded") == [], "nobody had heard of its promise"
    assert events(server, "Reserved") == ["w1", "w3", "w4", "w5"]


def test_while_much_is_decided_so_many_are_told_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservation_status, "PER_BUSY_TURN", 2)
    monkeypatch.setattr(reservation_status, "PER_SECOND", 2)
    server = crowd()
    manager = Manager(server)
    told = []
    for number in range(5):  # four a second: each decides something, and is promised the last place
        put_run(server, f"x{number}", "org", 8, max_duration="1h")
        manager.turn()
        told.append(len(states(server)))
        server.now += 250
    assert told == [2, 2, 2, 2, 4]


def test_while_gangs_come_and_go_a_moment_of_silence_is_not_calm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservation_status, "BUSY_THRESHOLD", 1)
    monkeypatch.setattr(reservation_status, "PER_SECOND", 1)
    server = crowd()
    manager = Manager(server)
    begun = server.now
    for told, after_ms in ((1, 0), (2, 1000), (3, 2000), (5, reservation_status.RECENT_MS)):
        server.now = begun + after_ms
        manager.turn()
        assert len(states(server)) == told
        if told < len(WAITING) - 2:
            assert manager.model.status_publisher.refresh_due_at() == server.now + 1000
    assert events(server, "Reserved") == WAITING


def test_what_is_due_soon_is_told_at_no_pace() -> None:
    server = crowd(lasts="1m")
    manager = Manager(server)
    for told in (1, 2, 3):  # one in a step: each decides something
        put_run(server, f"x{told}", "org", 8, max_duration="1h")
        manager.turn()
        assert sorted(states(server)) == [f"{name}-1" for name in WAITING[:told]]


def test_of_those_without_a_date_the_last_in_line_are_told_first() -> None:
    server = Server()
    put_policy(server, TEMPLATE)
    put_nodes(server, "nv-a", 1)
    put_budget(server, "org", 8)
    for name in ("holder", "w1", "w2", "w3"):
        server.now += 1000
        put_run(server, name, "org", 8)
    manager = Manager(server)
    manager.turn()
    assert list(states(server)) == ["w3-1"]


def crashes_after(writes: int) -> bool:
    """Kills a manager after so many writes, if it makes that many; the outcome must be the same."""
    undisturbed = crowd()
    rest(undisturbed, Manager(undisturbed))
    server, crashed = crowd(), False
    try:
        rest(server, Manager(server, stop_after=writes))
    except StoppedError:
        crashed = True
    manager = Manager(server)
    rest(server, manager)
    assert states(server) == states(undisturbed), writes
    assert spoken_of(server) == spoken_of(undisturbed), writes
    assert manager.broken() == [], writes
    return crashed


@pytest.mark.parametrize("writes", [3, 9])
def test_no_promise_is_lost_when_the_manager_dies_between_two_reservations(writes: int) -> None:
    assert crashes_after(writes)


def test_pods_are_told_when_nothing_threatens_them_any_more() -> None:
    server = Server()
    put_policy(server, f"minRuntime: 0s\n{TEMPLATE}")
    put_nodes(server, "nv-a", 1)
    for name in ("org", "other"):
        put_budget(server, name, 8)
    put_run(server, "holder", "org", 8)
    put_run(server, "waits", "other", 8)
    manager = Manager(server)
    manager.settle()

    def told() -> str:
        annotations: dict[str, str] = pods_of(server, "holder")[0]["metadata"]["annotations"]
        return annotations["rq.davidlangworthy.io/risk"]

    assert "waits-1" in told()
    server.delete(RUNS.path("ns", "waits"))
    manager.settle()
    assert "waits-1" not in told()
    assert "risk" not in server.run("holder")["status"]
