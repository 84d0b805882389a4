"""Reservations are written a few at a time, and no object names a Reservation that is not written yet."""

import pytest

from jobtree.kube.http.api_resources import EVENTS, RESERVATIONS, RUNS
from jobtree.manager.planner import reservation_status
from tests.unit.manager.cluster_objects import (
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
from tests.unit.manager.memory_cluster import Manager, Server, StoppedError, kubelets

WAITING = ["w1", "w2", "w3", "w4", "w5"]


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservation_status, "PER_BUSY_TURN", 1)
    monkeypatch.setattr(reservation_status, "PER_IDLE_TURN", 2)


def crowd(waiting: list[str] = WAITING, lasts: str = "1h", owner: str = "org") -> Server:
    """Returns a server on which one Run holds all GPUs, and others wait for them."""
    server = Server()
    put_policy(server, TEMPLATE)
    put_nodes(server, "nv-a", 1)
    put_budget(server, "org", 64)
    put_run(server, "holder", "org", 8, max_duration=lasts)
    for name in waiting:
        put_run(server, name, owner, 8, max_duration=lasts)
    return server


def events(server: Server, reason: str) -> list[str]:
    return sorted(
        event["involvedObject"]["name"] for event in server.all(EVENTS) if event["reason"] == reason
    )


def named_reservations(server: Server) -> list[str]:
    """Returns the Reservations that Runs name."""
    named = [run.get("status", {}).get("reservation") for run in server.all(RUNS)]
    return sorted(name for name in named if name)


def advance_to_next_write(server: Server, manager: Manager) -> None:
    """Moves the clock to the instant at which the manager writes more Reservations."""
    at = manager.model.status_publisher.refresh_due_at()
    assert at is not None
    server.now = at


def settle_all(server: Server, manager: Manager) -> None:
    """Lets the manager write all Reservations."""
    manager.settle()
    while manager.model.status_publisher.reservations.has_more:
        advance_to_next_write(server, manager)
        manager.settle()


def test_earliest_promises_are_written_first_and_runs_name_only_these() -> None:
    server = crowd()
    manager = Manager(server)
    start = server.now
    for count in (1, 3, 5):
        manager.turn()
        names = [f"{name}-1" for name in WAITING[:count]]
        assert sorted(states(server)) == names
        assert named_reservations(server) == names
        assert events(server, "Reserved") == WAITING[:count]
        if count < len(WAITING):
            advance_to_next_write(server, manager)
            assert server.now == start + reservation_status.CALM_MS, "the writes are not delayed further"
    settle_all(server, manager)
    assert events(server, "Reserved") == WAITING, "each Run has one Event"
    assert manager.broken() == []


def test_no_reservation_is_written_when_the_run_starts_first() -> None:
    """Its date is conditional: a Run keeps a firm one when it starts (R7)."""
    server = crowd(owner="org:kin")
    put_budget(server, "org:kin", 1)
    manager = Manager(server)
    manager.turn()
    kubelets(server)
    server.delete(RUNS.path("ns", "w1"))
    finish_pods(server, "holder")
    manager.turn()
    assert phase(server, "w2") == "Running"
    settle_all(server, manager)
    assert sorted(states(server)) == ["w3-1", "w4-1", "w5-1"]
    assert events(server, "Superseded") == [], "its promise was never written"
    assert events(server, "Reserved") == ["w1", "w3", "w4", "w5"]


def test_number_of_reservations_per_second_is_limited_while_much_is_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reservation_status, "PER_BUSY_TURN", 2)
    monkeypatch.setattr(reservation_status, "PER_SECOND", 2)
    server = crowd()
    manager = Manager(server)
    written = []
    for number in range(
        5
    ):  # four turns a second, each with a decision and a new promise with the latest date
        put_run(server, f"x{number}", "org", 8, max_duration="1h")
        manager.turn()
        written.append(len(states(server)))
        server.now += 250
    assert written == [2, 2, 2, 2, 4]


def test_limit_stays_for_a_while_after_gangs_started_or_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservation_status, "BUSY_THRESHOLD", 1)
    monkeypatch.setattr(reservation_status, "PER_SECOND", 1)
    server = crowd()
    manager = Manager(server)
    start = server.now
    for count, after_ms in ((1, 0), (2, 1000), (3, 2000), (5, reservation_status.RECENT_MS)):
        server.now = start + after_ms
        manager.turn()
        assert len(states(server)) == count
        if count < len(WAITING) - 2:
            assert manager.model.status_publisher.refresh_due_at() == server.now + 1000
    assert events(server, "Reserved") == WAITING


def test_promises_due_soon_are_written_without_a_limit() -> None:
    server = crowd(lasts="1m")
    manager = Manager(server)
    for count in (1, 2, 3):  # each turn has a decision, and writes one Reservation
        put_run(server, f"x{count}", "org", 8, max_duration="1h")
        manager.turn()
        assert sorted(states(server)) == [f"{name}-1" for name in WAITING[:count]]


def test_last_promise_in_creation_order_is_written_first_when_none_has_a_date() -> None:
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
    """Kills a manager after ``writes`` writes; the outcome must be the same.

    Returns whether the manager made so many writes.
    """
    undisturbed = crowd()
    settle_all(undisturbed, Manager(undisturbed))
    server, crashed = crowd(), False
    try:
        settle_all(server, Manager(server, stop_after=writes))
    except StoppedError:
        crashed = True
    manager = Manager(server)
    settle_all(server, manager)
    assert states(server) == states(undisturbed), writes
    assert named_reservations(server) == named_reservations(undisturbed), writes
    assert manager.broken() == [], writes
    return crashed


@pytest.mark.parametrize("writes", [3, 9])
def test_all_reservations_are_written_when_the_manager_dies_between_two(writes: int) -> None:
    assert crashes_after(writes)


def test_risk_of_a_pod_is_cleared_when_the_promise_is_gone() -> None:
    server = Server()
    put_policy(server, f"minRuntime: 0s\n{TEMPLATE}")
    put_nodes(server, "nv-a", 1)
    for name in ("org", "other"):
        put_budget(server, name, 8)
    put_run(server, "holder", "org", 8)
    put_run(server, "waits", "other", 8)
    manager = Manager(server)
    manager.settle()

    def risk() -> str:
        annotations: dict[str, str] = pods_of(server, "holder")[0]["metadata"]["annotations"]
        return annotations["rq.davidlangworthy.io/risk"]

    assert "waits-1" in risk()
    server.delete(RUNS.path("ns", "waits"))
    manager.settle()
    assert "waits-1" not in risk()
    assert "risk" not in server.run("holder")["status"]


def places(server: Server) -> dict[str, int]:
    """Returns the place in line that each Reservation shows."""
    return {
        reservation["metadata"]["name"]: reservation["status"]["forecast"]["place"]["number"]
        for reservation in server.all(RESERVATIONS)
        if reservation["status"].get("forecast", {}).get("place")
    }


def test_a_place_in_line_is_written_again_when_it_has_halved() -> None:
    """R13: a Run that leaves the line does not rewrite the Reservations of all behind it."""
    server = crowd([f"w{number}" for number in range(1, 8)])
    manager = Manager(server)
    settle_all(server, manager)
    assert places(server) == {f"w{number}-1": number for number in range(1, 8)}
    server.delete(RUNS.path("ns", "w1"))
    settle_all(server, manager)
    shown = places(server)
    assert {name: shown[name] for name in ("w2-1", "w6-1", "w7-1")} == {"w2-1": 1, "w6-1": 6, "w7-1": 7}
    for name in ("w2", "w3", "w4"):
        server.delete(RUNS.path("ns", name))
        settle_all(server, manager)
    shown = places(server)
    assert {name: shown[name] for name in ("w6-1", "w7-1")} == {"w6-1": 3, "w7-1": 3}, "w6 is the second now"


@pytest.mark.parametrize(
    ("written", "present", "near"),
    [(142, 142, True), (142, 72, True), (142, 71, False), (71, 141, True), (71, 142, False), (0, 1, False)],
)
def test_a_place_is_near_until_it_has_halved_or_doubled(written: int, present: int, near: bool) -> None:
    assert reservation_status.is_near(written, present) == near
