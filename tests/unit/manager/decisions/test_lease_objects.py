"""Leases that an administrator changes by hand: the violation says what happens and how to find out who."""

import pytest

from jobtree.api.schema.quantities import format_time
from jobtree.kube.http.api_resources import LEASES, RUNS
from tests.unit.manager.cluster_objects import (
    POLICY,
    endings,
    finish_pods,
    phase,
    put_budget,
    put_nodes,
    put_policy,
    put_run,
)
from tests.unit.manager.memory_cluster import Manager, Server

AUDIT_ADVICE = "the audit log of the API server says who did it"


def running() -> tuple[Server, Manager, str]:
    """Returns a server with a running Run, its manager, and the path of its lease, after a minute."""
    server = Server()
    put_policy(server, POLICY)
    put_nodes(server, "nv-a", 2)
    put_budget(server, "org", 64)
    put_run(server, "first", "org", 8)
    manager = Manager(server)
    manager.settle()
    server.now += 60_000
    (lease,) = server.all(LEASES)
    return server, manager, LEASES.path(name=lease["metadata"]["name"])


def end_by_hand(server: Server, path: str) -> None:
    ended = {"status": {"end": format_time(server.now), "closureReason": "Failed"}}
    server.change(path, ended, "status", merge=True)


@pytest.mark.parametrize("restarted", [False, True], ids=["the same manager", "the next manager"])
@pytest.mark.parametrize("how", ["cancelled", "finished"])
def test_run_continues_and_can_end_when_its_lease_was_ended_by_a_user(how: str, *, restarted: bool) -> None:
    server, manager, path = running()
    end_by_hand(server, path)
    if restarted:
        manager = Manager(server)
    manager.settle()
    (violation,) = manager.violations
    assert "ended by somebody else while its Run holds it: cancel the Run if it is to end" in violation
    assert AUDIT_ADVICE in violation
    assert phase(server, "first") == "Running"
    server.now += 60_000
    if how == "cancelled":
        server.delete(RUNS.path("ns", "first"))
    else:
        finish_pods(server, "first")
    manager.settle()
    assert how == "finished" or RUNS.path("ns", "first") not in server.objects
    assert how == "cancelled" or phase(server, "first") == "Completed"
    assert endings(server, "first") == ["Failed"], "an end is written once"
    put_run(server, "second", "org", 16)
    manager.settle()
    assert phase(server, "second") == "Running", "its GPUs are free"


def test_lease_deleted_by_a_user_is_written_again_with_advice() -> None:
    server, manager, path = running()
    server.delete(path)
    manager.settle()
    (violation,) = manager.violations
    assert "was deleted while it counted: it is put back" in violation
    assert AUDIT_ADVICE in violation
    assert endings(server, "first") == ["open"]


def test_lease_created_by_a_user_is_ended_with_advice() -> None:
    server, manager, path = running()
    forged = {**server.find(path), "metadata": {"name": "forged"}}
    server.create(LEASES.path(), forged)
    manager.settle()
    (violation,) = manager.violations
    assert "forged belongs to no Run that holds it: it is ended" in violation
    assert AUDIT_ADVICE in violation
    assert sorted(endings(server, "first")) == ["Cancelled", "open"]
