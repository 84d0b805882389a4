"""Edits of a waiting Run on a live cluster: its Reservation stays if planning does not use what changed."""

from typing import Any

import pytest

from jobtree.kube.http.api_resources import RESERVATIONS, RUNS
from tests.unit.core.build import H100
from tests.unit.manager.cluster_objects import (
    TEMPLATE,
    finish_pods,
    phase,
    pods_of,
    put_budget,
    put_nodes,
    put_policy,
    put_run,
)
from tests.unit.manager.memory_cluster import Body, Manager, Server

HOLDER_ENDS_IN_MS = 3_600_000


def crowded() -> Server:
    """Returns a server on which one Run holds both nodes for an hour."""
    server = Server()
    put_policy(server, TEMPLATE)
    put_nodes(server, "nv-a", 2)
    put_budget(server, "org", 64)
    put_run(server, "holder", "org", 16, max_duration="1h")
    return server


def container(image: str) -> Body:
    return {"spec": {"containers": [{"name": "main", "image": image}]}}


def edit(server: Server, name: str, change: Body) -> None:
    server.change(RUNS.path("ns", name), change, "", merge=True)


def images(server: Server, run: str) -> set[str]:
    return {pod["spec"]["containers"][0]["image"] for pod in pods_of(server, run)}


@pytest.mark.parametrize(
    ("change", "generation"),
    [
        ({"metadata": {"labels": {"seen-by": "somebody"}}}, 1),
        ({"metadata": {"annotations": {"note": "hello"}}}, 1),
        ({"spec": {"runtime": {"maxRestarts": 9}}}, 2),
        ({"spec": {"template": container("v2")}}, 2),
    ],
    ids=["labels", "annotations", "maxRestarts", "image"],
)
def test_reservation_stays_when_planning_does_not_use_the_edit(change: Body, generation: int) -> None:
    server = crowded()
    put_run(server, "waits", "org", 16, max_duration="1h", template=container("v1"))
    manager = Manager(server)
    manager.settle()
    (before,) = server.all(RESERVATIONS)
    edit(server, "waits", change)
    manager.settle()
    assert server.all(RESERVATIONS) == [before], "it is not written again"
    status = server.run("waits")["status"]
    assert (status["observedGeneration"], status["reservation"]) == (generation, "waits-1")
    finish_pods(server, "holder")
    manager.settle()
    assert phase(server, "waits") == "Running"
    assert images(server, "waits") == {"v2" if "template" in change.get("spec", {}) else "v1"}
    assert manager.violations == []


def test_reservation_slips_when_planning_uses_the_edit() -> None:
    server = crowded()
    put_run(server, "waits", "org", 16, max_duration="1h")
    manager = Manager(server)
    manager.settle()
    (before,) = server.all(RESERVATIONS)
    edit(server, "waits", {"spec": {"resources": {"totalGPUs": 24}}})
    manager.settle()
    (after,) = server.all(RESERVATIONS)
    assert after["metadata"]["name"] == before["metadata"]["name"]
    assert [slip["reason"] for slip in after["status"]["slips"]] == ["Edited"]
    assert server.run("waits")["status"].get("earliestStart") is None, "no 24 GPUs are there"


def stages(image: str) -> list[dict[str, Any]]:
    resources = {"gpuType": H100, "totalGPUs": 8}
    return [
        {"name": "a", "resources": resources, "template": container(image)},
        {"name": "b", "resources": resources, "with": ["a"], "template": container(image)},
    ]


def test_reservation_of_a_gang_stays_when_planning_does_not_use_the_edit_of_its_tree() -> None:
    server = crowded()
    manager = Manager(server)
    manager.settle()
    metadata = {"name": "tree", "namespace": "ns"}
    spec = {"owner": "org", "stages": stages("v1")}
    kind = {"apiVersion": RUNS.api_version, "kind": "Run"}
    server.create(RUNS.path("ns"), {**kind, "metadata": metadata, "spec": spec})
    manager.settle()
    (before,) = server.all(RESERVATIONS)
    assert before["spec"]["members"] == ["a", "b"]
    edit(server, "tree", {"spec": {"stages": stages("v2")}})
    manager.settle()
    assert server.all(RESERVATIONS) == [before]
    server.now += HOLDER_ENDS_IN_MS
    manager.settle()
    assert (phase(server, "tree-a"), phase(server, "tree-b")) == ("Running", "Running")
    assert images(server, "tree-a") == images(server, "tree-b") == {"v2"}
    assert manager.violations == []
