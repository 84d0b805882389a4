"""A live cluster and a simulated one have the same statuses and messages."""

import json
from typing import Any

import pytest

from jobtree.api.documents.document_stream import Document
from jobtree.api.kinds.policy import PolicySpec, build_policy
from jobtree.manager.planner import status_updates
from jobtree.simulation.cluster.simulated_cluster import SimulatedCluster
from tests.unit.manager.cluster_objects import TEMPLATE, put_budget, put_nodes, put_policy, put_run
from tests.unit.manager.histories import GROWTH, SOONER, History, finish, later
from tests.unit.manager.memory_cluster import KEY, Body, Manager, Server


def crowd(server: Server) -> None:
    """Puts a Run that waits for all GPUs while the number of free GPUs changes."""
    put_policy(server, TEMPLATE)
    put_nodes(server, "nv-a", 4)
    put_budget(server, "org", 64)
    for number in range(4):
        put_run(server, f"a{number}", "org", 8)
    put_run(server, "big", "org", 32)


def messages(bodies: list[Body]) -> dict[str, tuple[Any, ...]]:
    return {
        body["metadata"]["name"]: tuple(
            body.get("status", {}).get(key) for key in ("phase", "reason", "message")
        )
        for body in bodies
        if body["kind"] == "Run"
    }


def simulated(server: Server) -> dict[str, tuple[Any, ...]]:
    """Returns the messages of a simulation with the same objects at the same instant."""
    cluster = SimulatedCluster(server.now, build_policy(PolicySpec(), "test"), key=KEY, checked=False)
    kinds = ("Node", "Budget", "Run", "Lease", "Reservation")
    bodies = [body for body in server.objects.values() if body.get("kind") in kinds]
    cluster.load(
        Document(f"object {number}", json.loads(json.dumps(body))) for number, body in enumerate(bodies)
    )
    return messages(cluster.documents())


@pytest.mark.parametrize(
    "history", [(crowd, finish("a1"), later(1000)), GROWTH[:3], SOONER[:3]], ids=["crowd", "growth", "sooner"]
)
def test_live_and_simulated_cluster_have_the_same_messages(history: History) -> None:
    server = Server()
    history[0](server)
    manager = Manager(server)
    for act in history[1:]:
        manager.settle()
        act(server)
    manager.settle()
    server.now += status_updates.REFRESH_MS
    manager.settle()
    live = messages(list(server.objects.values()))
    assert live == simulated(server)
