"""A write is refused, fails, or succeeds without an answer: the outcome is the same."""

from typing import Any
from unittest.mock import patch

import pytest

from jobtree.kube.http.api_errors import StatusError
from jobtree.kube.http.api_requests import Request
from jobtree.kube.http.api_resources import PODS, RESERVATIONS, RUNS
from jobtree.manager.controllers import pod_reconciler
from jobtree.manager.controllers.decision_writer import MAX_TRIES
from tests.unit.manager.cluster_objects import (
    endings,
    leases_of,
    phase,
    pods_of,
    put_budget,
    put_nodes,
    put_policy,
    put_run,
)
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
from tests.unit.manager.memory_cluster import Fault, Manager, Server


@pytest.fixture(autouse=True)
def _retry_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries writes of pods at once, because time does not pass in these tests."""
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


def test_deleted_run_stays_until_its_leases_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this manager dies now, the next one finds the Run of the open lease."""
    server = Server()
    put_policy(server)
    put_nodes(server, "nv-a", 1)
    put_budget(server, "org", 8)
    put_run(server, "r", "org", 8)
    manager = Manager(server)
    manager.settle()
    send = server.send

    async def fail(request: Request) -> bytes:
        if request.writes and "gpuleases" in request.target:
            monkeypatch.setattr(server, "send", send)
            raise StatusError(409, "Conflict", "the server faild")
        return await send(request)

    def watch(path: str, _: object, there: bool) -> None:
        if path == RUNS.path("ns", "r") and not there:
            assert endings(server, "r") == ["Cancelled"]

    monkeypatch.setattr(server, "send", fail)
    server.watchers.append(watch)
    server.delete(RUNS.path("ns", "r"))
    manager.settle()
    assert server.all(RUNS) == []


def loser_that_runs() -> tuple[Server, Manager]:
    """A Run uses the only node; a Run of another team could be drawn against it."""
    server = Server()
    put_policy(server)
    put_nodes(server, "nv-a", 1)
    for team in ("org", "other"):
        put_budget(server, team, 8)
    put_run(server, "loser", "org", 8)
    manager = Manager(server)
    manager.settle()
    return server, manager


def test_no_run_is_drawn_for_a_promise_that_was_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Runs that could lose had no notice and could check no commitment."""
    server, manager = loser_that_runs()
    send = server.send

    async def fail(request: Request) -> bytes:
        if request.writes and request.target.endswith("/reservations"):
            raise StatusError(409, "Conflict", "the server faild")
        return await send(request)

    monkeypatch.setattr(server, "send", fail)
    put_run(server, "winner", "other", 8)
    for _ in range(3):
        manager.turn()
        server.now += 60_000
    assert endings(server, "loser") == ["open"]
    status = server.run("winner")["status"]
    assert (status["phase"], "reservation" in status, "reservationsMade" in status) == (
        "Reserved",
        False,
        False,
    )
    monkeypatch.setattr(server, "send", send)
    for _ in range(3):  # it is tried again after a pause, and promised a new date
        manager.settle()
        server.now += 60_000
    assert endings(server, "loser")[0] == "RandomPreempt"
    drawn = [body["metadata"]["name"] for body in server.all(RESERVATIONS) if "lottery" in body["status"]]
    assert drawn[0] == "winner-1", "no other Reservation was ever written"


def test_record_is_kept_when_only_the_draw_could_write_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Reservation was created without a status; the turn that holds the draw must not delete it."""
    server, manager = loser_that_runs()
    send = server.send

    async def fail(request: Request) -> bytes:
        if request.method == "PUT" and "/reservations/" in request.target:
            raise StatusError(429, "TooManyRequests", "busy")
        return await send(request)

    monkeypatch.setattr(server, "send", fail)
    put_run(server, "winner", "other", 8)
    manager.turn()
    assert "status" not in server.all(RESERVATIONS)[0]
    monkeypatch.setattr(server, "send", send)
    server.now += 60_000
    manager.settle()
    status = server.find(RESERVATIONS.path("ns", "winner-1"))["status"]
    assert (status["state"], "lottery" in status) == ("Activated", True)
    assert endings(server, "loser")[0] == "RandomPreempt"


def test_pod_deleted_during_a_refused_decision_frees_its_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The model is rebuilt from the cluster, but the pod reconciler still learns of deleted pods."""
    server = Server()
    put_policy(server)
    put_nodes(server, "nv-a", 1)
    put_budget(server, "org", 8)
    put_run(server, "first", "org", 8)
    manager = Manager(server)
    manager.settle()
    send, (pod,) = server.send, pods_of(server, "first")

    async def fail(request: Request) -> bytes:
        if request.writes and "runs/second" in request.target:
            monkeypatch.setattr(server, "send", send)
            server.delete(PODS.path("ns", pod["metadata"]["name"]))
            raise StatusError(409, "Conflict", "somebody was faster")
        return await send(request)

    server.delete(RUNS.path("ns", "first"))
    put_run(server, "second", "org", 8)
    monkeypatch.setattr(server, "send", fail)
    manager.settle()
    assert [body["status"]["phase"] for body in pods_of(server, "second")] == ["Running"]


MOMENTS = {"before the first write": 1, "between the finalizer and the status": 2}
LABEL = {"metadata": {"labels": {"seen-by": "somebody"}}}
FEWER = {"spec": {"resources": {"totalGPUs": 4}}}


def change_run_at_write(server: Server, write: int, change: dict[str, Any], part: str = "") -> None:
    """Changes the Run before write 1 arrives, or after the answer to the write before ``write``."""
    send, writes = server.send, 0

    async def send_with_change(request: Request) -> bytes:
        nonlocal writes
        to_run = request.writes and "/runs/r" in request.target
        writes += to_run
        if to_run and writes == write == 1:
            server.change(RUNS.path("ns", "r"), change, part, merge=True)
        answer = await send(request)
        if to_run and writes == write - 1:
            server.change(RUNS.path("ns", "r"), change, part, merge=True)
        return answer

    server.send = send_with_change  # type: ignore[method-assign]


def about_to_start() -> tuple[Server, Manager]:
    server = Server()
    put_policy(server)
    put_nodes(server, "nv-a", 1)
    put_budget(server, "org", 8)
    manager = Manager(server)
    manager.settle()
    put_run(server, "r", "org", 8)
    return server, manager


@pytest.mark.parametrize("write", MOMENTS.values(), ids=MOMENTS)
def test_label_set_during_a_decision_does_not_undo_it(write: int) -> None:
    """The model is not loaded again either."""
    server, manager = about_to_start()
    change_run_at_write(server, write, LABEL)
    with patch.object(manager.model, "load") as load:
        manager.turn()
    assert load.call_count == 0
    body = server.run("r")
    assert (body["status"]["phase"], body["metadata"]["labels"]) == ("Running", {"seen-by": "somebody"})
    assert body["metadata"]["finalizers"]
    manager.settle()
    assert endings(server, "r") == ["open"]
    assert manager.broken() == []


@pytest.mark.parametrize("write", MOMENTS.values(), ids=MOMENTS)
def test_run_edited_during_a_decision_is_planned_again(write: int) -> None:
    server, manager = about_to_start()
    change_run_at_write(server, write, FEWER)
    manager.turn()
    assert phase(server, "r") != "Running"
    manager.settle()
    (lease,) = leases_of(server, "r")
    assert (phase(server, "r"), lease["spec"]["slots"]) == ("Running", ["nv-a-00#0-3"])


OWNED = {"kind": "Run", "name": "tree", "uid": "tree-uid", "apiVersion": "rq.davidlangworthy.io/v1"}
DELETED = {"finalizers": ["somebody/else"], "deletionTimestamp": "2026-01-05T09:00:00Z"}
RELEVANT_CHANGES = {
    "it became a stage": ({"metadata": {"ownerReferences": [OWNED]}}, ""),
    "it is being deleted": ({"metadata": DELETED}, ""),
    "another manager decided": ({"status": {"revision": 7}}, "status"),
}


@pytest.mark.parametrize(("change", "part"), RELEVANT_CHANGES.values(), ids=RELEVANT_CHANGES)
def test_decision_is_dropped_when_a_relevant_field_changed(change: dict[str, Any], part: str) -> None:
    server, manager = about_to_start()
    change_run_at_write(server, 1, change, part)
    with patch.object(manager.model, "load", wraps=manager.model.load) as load:
        manager.turn()
    assert load.call_count == 1
    assert "allocation" not in server.run("r").get("status", {})


def test_run_labelled_at_every_write_is_planned_again_after_some_tries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, manager = about_to_start()
    send, labels = server.send, iter(range(1000))

    async def send_with_change(request: Request) -> bytes:
        if request.writes and "/runs/r" in request.target:
            label = {"metadata": {"labels": {"number": str(next(labels))}}}
            server.change(RUNS.path("ns", "r"), label, "", merge=True)
        return await send(request)

    monkeypatch.setattr(server, "send", send_with_change)
    with patch.object(manager.model, "load", wraps=manager.model.load) as load:
        manager.turn()
    assert (load.call_count, next(labels)) == (1, MAX_TRIES)
    monkeypatch.setattr(server, "send", send)
    manager.settle()
    assert phase(server, "r") == "Running"
