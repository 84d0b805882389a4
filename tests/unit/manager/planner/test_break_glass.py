"""What others change in an emergency or by mistake: statuses of Runs, and Services."""

import pytest

from jobtree.kube.http.api_resources import RUNS, SERVICES
from tests.unit.manager.cluster_objects import (
    endings,
    phase,
    pods_of,
    put_budget,
    put_nodes,
    put_policy,
    put_run,
)
from tests.unit.manager.memory_cluster import Manager, Server


def running() -> tuple[Server, Manager]:
    server = Server()
    put_policy(server)
    put_nodes(server, "nv-a", 2)
    put_budget(server, "org", 16)
    put_run(server, "r", "org", 16)
    manager = Manager(server)
    manager.settle()
    assert phase(server, "r") == "Running"
    return server, manager


@pytest.mark.parametrize("restarts", [False, True], ids=["the manager runs", "no manager runs"])
@pytest.mark.parametrize("finished", ["Failed", "Completed"])
def test_run_that_an_administrator_marks_as_finished_ends(finished: str, *, restarts: bool) -> None:
    """Its leases close, its pods are deleted, and others get its GPUs; also if no manager saw the edit."""
    server, manager = running()
    server.change(RUNS.path("ns", "r"), {"status": {"phase": finished}}, "status", merge=True)
    if restarts:
        manager = Manager(server)
    manager.settle()
    assert (phase(server, "r"), endings(server, "r")) == (finished, [finished])
    assert [pod for pod in pods_of(server, "r") if pod["status"]["phase"] == "Running"] == []
    put_run(server, "next", "org", 16)
    manager.settle()
    assert (phase(server, "next"), manager.violations) == ("Running", [])


@pytest.mark.parametrize("restarts", [False, True], ids=["the manager runs", "no manager runs"])
def test_service_that_somebody_deletes_is_made_again(*, restarts: bool) -> None:
    """H3: without it ranks do not find each other after the next restart."""
    server, manager = running()
    (service,) = server.all(SERVICES)
    server.delete(SERVICES.path("ns", service["metadata"]["name"]))
    if restarts:
        manager = Manager(server)
    manager.settle()
    assert [found["metadata"]["name"] for found in server.all(SERVICES)] == [service["metadata"]["name"]]
    assert (phase(server, "r"), len(pods_of(server, "r"))) == ("Running", 2)


def test_service_of_a_finished_run_is_not_made_again() -> None:
    server, manager = running()
    server.change(RUNS.path("ns", "r"), {"status": {"phase": "Completed"}}, "status", merge=True)
    manager.settle()
    (service,) = server.all(SERVICES)
    server.delete(SERVICES.path("ns", service["metadata"]["name"]))
    manager.settle()
    assert server.all(SERVICES) == []
