"""A write is refused, fails, or succeeds without an answer: the outcome is the same."""

from typing import Any
from unittest.mock import patch

import pytest

from jobtree.kube.http.api_errors import StatusError
from jobtree.kube.http.api_requests import Request
from jobtree.kube.http.api_resources import PODS, RESERVATIONS, RUNS
from jobtree.manager.controllers import pod_reconciler
from jobtree.manager.controllers.decision_writer import MAX_TRIES
from tests.unit.manager.cluster import Fault, Manager, Server
from tests.unit.manager.histories import (
    FAILURE,
    FAULTS,
    RESOLUTION,
    TREE,
    History,
    play_with_fault,
    remains,
    spread,
)
from tests.unit.manager.stage import (
    endings,
    leases_of,
    phase,
    pods_of,
    put_budget,
    put_nodes,
    put_policy,
    put_run,
)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes of pods are retried at once: time does not pass by itself here."""
    monkeypatch.setattr(pod_reconciler, "RETRY_MS", 0)


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("history", [RESOLUTION, FAILURE, TREE], ids=["resolution", "failure", "tree"])
def test_outcome_is_the_same_when_some_write_meets_a_fault(history: History, kind: str) -> None:
    """Some writes of each history; ``tests/crash`` takes every write."""
    undisturbed = play_with_fault(history)
    expected = remains(undisturbed)
    for number in spread(undisturbed.writes, 3):
        server = play_with_fault(history, Fault(number, *FAULTS[kind]))
        assert remains(server) == expected, f"{kind} at write {number} of {undisturbed.writes}"


def test_a_run_does_not_go_before_its_leases_are_seen_to_be_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes next, should this manager die now, finds the Run that the open lease belongs to."""
    server = Server()
    put_policy(server)
    put_nodes(server, "nv-a", 1)
    put_budget(server, "org", 8)
    put_run(server, "r", "org", 8)
    manager = Manager(server)
    manager.settle()
    send = server.send

    async def stumble(request: Request) -> bytes:
        if request.writes and "gpuleases" in request.target:
            monkeypatch.setattr(server, "send", send)
            raise StatusError(409, "Conflict", "the server stumbled")
        return await send(request)

    def watch(path: str, _: object, there: bool) -> None:
        if path == RUNS.path("ns", "r") and not there:
            assert endings(server, "r") == ["Cancelled"]

    monkeypatch.setattr(server, "send", stumble)
    server.watchers.append(watch)
    server.delete(RUNS.path("ns", "r"))
    manager.settle()
    assert server.all(RUNS) == []


def test_nobody_is_drawn_for_a_promise_that_could_not_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """It came due before anybody could read it: those who might lose have had no notice, and no proof."""
    server = Server()
    put_policy(server)
    put_nodes(server, "nv-a", 1)
    for team in ("org", "other"):
        put_budget(server, team, 8)
    put_run(server, "loser", "org", 8)
    manager = Manager(server)
    manager.settle()
    send = server.send

    async def stumble(request: Request) -> bytes:
        if request.writes and request.target.endswith("/reservations"):
            raise StatusError(409, "Conflict", "the server stumbled")
        return await send(request)

    monkeypatch.setattr(server, "send", stumble)
    put_run(server, "winner", "other", 8)
    for _ in range(3):
        manager.turn()
        server.now += 60_000
    assert endings(server, "loser") == ["open"]
    told = server.run("winner")["status"]
    assert (told["phase"], "reservation" in told, "reservationsMade" in told) == ("Reserved", False, False)
    monkeypatch.setattr(server, "send", send)
    manager.settle()
    server.now += 60_000
    manager.settle()
    assert endings(server, "loser")[0] == "RandomPreempt"
    drawn = [one["metadata"]["name"] for one in server.all(RESERVATIONS) if "lottery" in one["status"]]
    assert drawn[0] == "winner-1", "nobody ever saw another one"


def test_a_pod_that_goes_while_a_decision_is_refused_leaves_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The model is built anew from what is there; whoever counts pods must hear of those that went."""
    server = Server()
    put_policy(server)
    put_nodes(server, "nv-a", 1)
    put_budget(server, "org", 8)
    put_run(server, "first", "org", 8)
    manager = Manager(server)
    manager.settle()
    send, (pod,) = server.send, pods_of(server, "first")

    async def stumble(request: Request) -> bytes:
        if request.writes and "runs/second" in request.target:
            monkeypatch.setattr(server, "send", send)
            server.delete(PODS.path("ns", pod["metadata"]["name"]))
            raise StatusError(409, "Conflict", "somebody was faster")
        return await send(request)

    server.delete(RUNS.path("ns", "first"))
    put_run(server, "second", "org", 8)
    monkeypatch.setattr(server, "send", stumble)
    manager.settle()
    assert [one["status"]["phase"] for one in pods_of(server, "second")] == ["Running"]


IN_BETWEEN = {"before the first write": 1, "between the finalizer and the status": 2}
LABEL = {"metadata": {"labels": {"seen-by": "somebody"}}}
FEWER = {"spec": {"resources": {"totalGPUs": 4}}}


def somebody_is_quick(server: Server, write: int, change: dict[str, Any], part: str = "") -> None:
    """Just before that write to the Run arrives, or when the one before it was answered, it is changed."""
    send, writes = server.send, 0

    async def interfere(request: Request) -> bytes:
        nonlocal writes
        to_run = request.writes and "/runs/r" in request.target
        writes += to_run
        if to_run and writes == write == 1:
            server.change(RUNS.path("ns", "r"), change, part, merge=True)
        answer = await send(request)
        if to_run and writes == write - 1:
            server.change(RUNS.path("ns", "r"), change, part, merge=True)
        return answer

    server.send = interfere  # type: ignore[method-assign]


def about_to_start() -> tuple[Server, Manager]:
    server = Server()
    put_policy(server)
    put_nodes(server, "nv-a", 1)
    put_budget(server, "org", 8)
    manager = Manager(server)
    manager.settle()
    put_run(server, "r", "org", 8)
    return server, manager


@pytest.mark.parametrize("write", IN_BETWEEN.values(), ids=IN_BETWEEN)
def test_a_label_that_comes_in_between_undoes_no_decision(write: int) -> None:
    """Nor is the whole cluster read again for it."""
    server, manager = about_to_start()
    somebody_is_quick(server, write, LABEL)
    with patch.object(manager.model, "load") as load:
        manager.turn()
    assert load.call_count == 0
    found = server.run("r")
    assert (found["status"]["phase"], found["metadata"]["labels"]) == ("Running", {"seen-by": "somebody"})
    assert found["metadata"]["finalizers"]
    manager.settle()
    assert endings(server, "r") == ["open"]
    assert manager.broken() == []


@pytest.mark.parametrize("write", IN_BETWEEN.values(), ids=IN_BETWEEN)
def test_a_run_that_is_edited_in_between_is_planned_again_as_it_is_now(write: int) -> None:
    server, manager = about_to_start()
    somebody_is_quick(server, write, FEWER)
    manager.turn()
    assert phase(server, "r") != "Running"
    manager.settle()
    (lease,) = leases_of(server, "r")
    assert (phase(server, "r"), lease["spec"]["slots"]) == ("Running", ["nv-a-00#0-3"])


OWNED = {"kind": "Run", "name": "tree", "uid": "tree-uid", "apiVersion": "rq.davidlangworthy.io/v1"}
GOING = {"finalizers": ["somebody/else"], "deletionTimestamp": "2026-01-05T09:00:00Z"}
DECIDES = {
    "it became a stage": ({"metadata": {"ownerReferences": [OWNED]}}, ""),
    "it is being deleted": ({"metadata": GOING}, ""),
    "another manager decided": ({"status": {"revision": 7}}, "status"),
}


@pytest.mark.parametrize(("change", "part"), DECIDES.values(), ids=DECIDES)
def test_what_was_decided_is_dropped_if_something_changed_that_decides(
    change: dict[str, Any], part: str
) -> None:
    server, manager = about_to_start()
    somebody_is_quick(server, 1, change, part)
    with patch.object(manager.model, "load", wraps=manager.model.load) as load:
        manager.turn()
    assert load.call_count == 1
    assert "allocation" not in server.run("r").get("status", {})


def test_a_run_that_is_labelled_all_the_time_is_planned_again_at_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, manager = about_to_start()
    send, labels = server.send, iter(range(1000))

    async def interfere(request: Request) -> bytes:
        if request.writes and "/runs/r" in request.target:
            label = {"metadata": {"labels": {"number": str(next(labels))}}}
            server.change(RUNS.path("ns", "r"), label, "", merge=True)
        return await send(request)

    monkeypatch.setattr(server, "send", interfere)
    with patch.object(manager.model, "load", wraps=manager.model.load) as load:
        manager.turn()
    assert (load.call_count, next(labels)) == (1, MAX_TRIES)
    monkeypatch.setattr(server, "send", send)
    manager.settle()
    assert phase(server, "r") == "Running"
