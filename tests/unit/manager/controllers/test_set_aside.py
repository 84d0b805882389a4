"""A Run that the API server refuses to store holds up itself alone (H1)."""

import pytest

from jobtree.kube.http.api_errors import StatusCause, StatusError
from jobtree.kube.http.api_resources import EVENTS, RESERVATIONS, RUNS
from tests.unit.manager.cluster_objects import (
    endings,
    leases_of,
    phase,
    pods_of,
    put_budget,
    put_nodes,
    put_policy,
    put_run,
    put_tree,
    states,
)
from tests.unit.manager.memory_cluster import Manager, Server

REFUSALS = [
    StatusError(413, "RequestEntityTooLarge", "limit is 3145728"),
    StatusError(422, "Invalid", "too many", (StatusCause("FieldValueTooMany", "too many", "status.ranks"),)),
    StatusError(429, "TooManyRequests", "busy", (), 1),
    StatusError(500, "", "etcdserver: request is too large"),
    StatusError(504, "Timeout", "the server did not answer in time"),
]
EACH_REFUSAL = pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: str(refusal.code))


def begin() -> tuple[Server, Manager]:
    server = Server()
    put_policy(server)
    put_nodes(server, "nv-a", 4)
    put_budget(server, "org", 32)
    return server, Manager(server)


def refuse(server: Server, name: str, refusal: StatusError) -> None:
    server.refused_objects[RUNS.path("ns", name)] = refusal


def reasons(server: Server, name: str) -> list[str]:
    return [
        event["message"]
        for event in server.all(EVENTS)
        if event["reason"] == "NotWritten" and event["involvedObject"]["name"] == name
    ]


@EACH_REFUSAL
def test_run_that_cannot_be_written_holds_up_no_other_run(refusal: StatusError) -> None:
    """H1: the others start within the same turn, in whole; the Run has nothing, and its Event says why."""
    server, manager = begin()
    put_run(server, "bad", "org", 8)
    put_run(server, "good", "org", 16)
    refuse(server, "bad", refusal)
    manager.turn()
    assert phase(server, "good") == "Running"
    manager.settle()
    assert (len(leases_of(server, "good")), len(pods_of(server, "good"))) == (1, 2)
    assert (leases_of(server, "bad"), pods_of(server, "bad")) == ([], [])
    (message,) = reasons(server, "bad")
    assert str(refusal) in message
    assert b"jobtree_set_aside 1.0" in manager.metrics.page()
    assert (manager.violations, manager.loop._health.trouble) == ([], "")


def test_pauses_grow_until_the_run_can_be_written() -> None:
    """H1: the Run is tried again after growing pauses, and starts as soon as the server takes it."""
    server, manager = begin()
    put_run(server, "bad", "org", 8)
    refuse(server, "bad", REFUSALS[3])
    manager.settle()
    told = [1]
    for _ in range(40):
        server.now += 5_000
        manager.settle()
        told.append(len(reasons(server, "bad")))
    assert told[-1] == 6, "after 0, 5, 15, 35, 75 and 155 seconds"
    server.refused_objects.clear()
    server.now += 600_000
    manager.settle()
    assert (phase(server, "bad"), len(pods_of(server, "bad"))) == ("Running", 1)
    assert b"jobtree_set_aside 0.0" in manager.metrics.page()
    assert manager.violations == []


def test_edit_ends_the_pause() -> None:
    server, manager = begin()
    put_run(server, "bad", "org", 8)
    refuse(server, "bad", REFUSALS[3])
    manager.settle()
    server.refused_objects.clear()
    server.change(RUNS.path("ns", "bad"), {"spec": {"runtime": {"maxDuration": "1h"}}}, "", merge=True)
    manager.settle()
    assert phase(server, "bad") == "Running"


def test_run_that_cannot_be_written_can_be_deleted() -> None:
    server, manager = begin()
    put_run(server, "bad", "org", 8)
    refuse(server, "bad", REFUSALS[3])
    manager.settle()
    server.delete(RUNS.path("ns", "bad"))
    manager.settle()
    assert RUNS.path("ns", "bad") not in server.objects
    assert b"jobtree_set_aside 0.0" in manager.metrics.page()


@EACH_REFUSAL
def test_running_run_that_cannot_be_written_keeps_what_it_has(refusal: StatusError) -> None:
    """H1: its end cannot be written, so nobody else gets its GPUs; others start elsewhere."""
    server, manager = begin()
    put_run(server, "bad", "org", 16)
    manager.settle()
    nodes = {pod["spec"]["nodeName"] for pod in pods_of(server, "bad")}
    refuse(server, "bad", refusal)
    for pod in pods_of(server, "bad"):
        server.change(
            f"/api/v1/namespaces/ns/pods/{pod['metadata']['name']}",
            {"status": {"phase": "Succeeded"}},
            "status",
            merge=True,
        )
    manager.settle()
    put_run(server, "good", "org", 16)
    manager.settle()
    assert (phase(server, "good"), len(pods_of(server, "good"))) == ("Running", 2)
    assert nodes.isdisjoint(pod["spec"]["nodeName"] for pod in pods_of(server, "good"))
    assert (endings(server, "bad"), len(pods_of(server, "bad"))) == (["open"], 2)
    server.refused_objects.clear()
    server.now += 600_000
    manager.settle()
    assert (phase(server, "bad"), endings(server, "bad")) == ("Completed", ["Completed"])
    put_run(server, "later", "org", 16)
    manager.settle()
    assert phase(server, "later") == "Running"
    assert manager.violations == []


def test_stages_that_start_together_wait_with_their_tree() -> None:
    """H1, J3: the tree holds the decision for its stages, so none of them starts without it."""
    server, manager = begin()
    put_tree(server, "t", "org")
    manager.settle()
    refuse(server, "t", REFUSALS[1])
    for pod in pods_of(server, "t-prep"):
        server.change(
            f"/api/v1/namespaces/ns/pods/{pod['metadata']['name']}",
            {"status": {"phase": "Succeeded"}},
            "status",
            merge=True,
        )
    put_run(server, "good", "org", 8)
    manager.settle()
    assert phase(server, "good") == "Running"
    assert [leases_of(server, name) for name in ("t-train", "t-eval")] == [[], []]
    server.refused_objects.clear()
    server.now += 600_000
    manager.settle()
    assert [phase(server, name) for name in ("t-train", "t-eval")] == ["Running", "Running"]
    assert manager.violations == []


def test_stage_that_cannot_be_created_is_told_at_its_tree_and_made_later() -> None:
    """H1: the tree says why, and the stage is tried again without a restart."""
    server, manager = begin()
    put_tree(server, "t", "org")
    server.refused["runs"] = REFUSALS[3]
    manager.settle()
    assert len(reasons(server, "t")) == 1
    server.refused.clear()
    server.now += 5_000
    manager.settle()
    assert phase(server, "t-prep") == "Running"
    assert manager.violations == []


def test_run_that_has_the_name_of_a_stage_is_left_alone() -> None:
    """H3: nothing of the stage is written to it; it runs on when the tree is deleted."""
    server, manager = begin()
    put_run(server, "t-prep", "org", 8)
    spec = server.run("t-prep")["spec"]
    put_tree(server, "t", "org")
    manager.settle()
    assert (server.run("t-prep")["spec"], phase(server, "t-prep")) == (spec, "Running")
    assert server.run("t")["status"]["reason"] == "NameTaken"
    server.delete(RUNS.path("ns", "t"))
    manager.settle()
    assert (phase(server, "t-prep"), endings(server, "t-prep")) == ("Running", ["open"])
    put_tree(server, "t", "org")
    server.delete(RUNS.path("ns", "t-prep"))
    manager.settle()
    assert "stages" not in server.run("t-prep")["spec"]
    assert server.run("t-prep")["metadata"]["ownerReferences"][0]["name"] == "t"
    status = server.run("t")["status"]
    assert (status["phase"], status.get("reason", "")) == ("Running", "")
    assert manager.violations == []


def test_lease_that_cannot_be_created_holds_up_nothing() -> None:
    """H1: the Run holds it in its allocation, its pods run, and the Lease object is created later."""
    server, manager = begin()
    server.refused["gpuleases"] = REFUSALS[4]
    put_run(server, "r", "org", 8)
    manager.settle()
    assert (phase(server, "r"), len(pods_of(server, "r")), leases_of(server, "r")) == ("Running", 1, [])
    server.refused.clear()
    server.now += 5_000
    manager.settle()
    assert (endings(server, "r"), manager.violations) == (["open"], [])


@EACH_REFUSAL
def test_promise_without_a_reservation_is_set_aside_alone_when_it_is_due(refusal: StatusError) -> None:
    """H1: nobody ends for it without notice, others start, and it starts when it can be written."""
    server, manager = begin()
    put_budget(server, "new", 32)
    put_run(server, "old", "org", 32, requeue=False)
    manager.settle()
    server.refused_objects[RESERVATIONS.path("ns", "bad-1")] = refusal
    put_run(server, "bad", "new", 8)
    manager.settle()
    put_nodes(server, "nv-b", 1, "OTHER")
    put_budget(server, "others", 8, flavor="OTHER")
    told_before = len(reasons(server, "bad"))
    server.now += 10_000
    put_run(server, "good", "others", 8, flavor="OTHER")
    manager.settle()
    assert (phase(server, "good"), phase(server, "old"), leases_of(server, "bad")) == (
        "Running",
        "Running",
        [],
    )
    (message,) = reasons(server, "bad")[told_before:]
    assert "Reservation bad-1 could not be written before its date" in message
    assert str(refusal) in message
    server.refused_objects.clear()
    for _ in range(10):
        server.now += 10_000
        manager.settle()
    assert (phase(server, "bad"), phase(server, "old")) == ("Running", "Failed")
    assert list(states(server).values()) == ["Activated"]
    assert manager.violations == []
