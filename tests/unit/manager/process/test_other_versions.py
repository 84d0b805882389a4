"""A manager takes over from one of another release, whose objects have fields that it does not know."""

from typing import Any

import pytest

from jobtree.kube.http.api_resources import LEASES, RESERVATIONS, RUNS
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
from tests.unit.manager.memory_cluster import Manager, Server

UNKNOWN = {"fromAnotherRelease": {"count": 3}}


def begin() -> Server:
    """A Run that is running, and one that has a promise of a date."""
    server = Server()
    put_policy(server)
    put_nodes(server, "nv-a", 4)
    put_budget(server, "org", 32)
    put_run(server, "runs", "org", 24, max_duration="1h")
    manager = Manager(server)
    manager.settle()
    put_run(server, "waits", "org", 16)
    manager.settle()
    assert (phase(server, "runs"), phase(server, "waits")) == ("Running", "Reserved")
    return server


def paths(server: Server) -> list[str]:
    (lease,) = leases_of(server, "runs")
    return [
        RUNS.path("ns", "runs"),
        RUNS.path("ns", "waits"),
        RESERVATIONS.path("ns", "waits-1"),
        LEASES.path("", lease["metadata"]["name"]),
    ]


def set_status(server: Server, path: str, fields: dict[str, Any]) -> None:
    server.change(path, {"status": fields}, "status", merge=True)


@pytest.mark.parametrize("position", [0, 1, 2, 3], ids=["running", "waiting", "reservation", "lease"])
def test_unknown_fields_are_kept_and_stop_no_other_run(position: int) -> None:
    """The object is treated like one that cannot be read: it keeps what it has, and others start."""
    server = begin()
    path = paths(server)[position]
    set_status(server, path, UNKNOWN)
    manager = Manager(server)
    manager.settle()
    put_run(server, "starts", "org", 8)
    manager.settle()
    assert phase(server, "starts") == "Running"
    assert server.find(path)["status"].items() >= UNKNOWN.items()
    assert (endings(server, "runs"), len(pods_of(server, "runs"))) == (["open"], 3)
    set_status(server, path, dict.fromkeys(UNKNOWN))
    manager = Manager(server)
    manager.settle()
    assert (phase(server, "runs"), phase(server, "starts")) == ("Running", "Running")
    assert (endings(server, "runs"), manager.violations) == (["open"], [])


@pytest.mark.parametrize(
    "field", ["revision", "leasesOpened", "funding", "risk", "reservationsMade", "reason"]
)
def test_status_without_a_field_of_this_release_is_read(field: str) -> None:
    """An older release did not write it; the Run keeps its leases and its pods."""
    server = begin()
    set_status(server, RUNS.path("ns", "runs"), {field: None})
    pods = {pod["metadata"]["uid"] for pod in pods_of(server, "runs")}
    manager = Manager(server)
    manager.settle()
    assert (phase(server, "runs"), endings(server, "runs")) == ("Running", ["open"])
    assert {pod["metadata"]["uid"] for pod in pods_of(server, "runs")} == pods
    assert manager.view.runs.unreadable == {}
    assert manager.violations == []
