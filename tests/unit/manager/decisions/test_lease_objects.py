"""Leases that somebody wrote by hand, behind broken glass: told, with what follows and whom to ask."""

import pytest

from jobtree.api.schema.quantities import format_time
from jobtree.kube.http.api_resources import LEASES, RUNS
from tests.unit.manager.cluster import Manager, Server
from tests.unit.manager.stage import (
    POLICY,
    endings,
    finish_pods,
    phase,
    put_budget,
    put_nodes,
    put_policy,
    put_run,
)

WHO = "the audit log of the API server says who did it"


def running() -> tuple[Server, Manager, str]:
    """One Run, its manager, and the path of its lease; a minute has passed."""
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
def test_a_run_whose_lease_was_ended_by_hand_goes_on_and_can_end(how: str, *, restarted: bool) -> None:
    server, manager, path = running()
    end_by_hand(server, path)
    if restarted:
        manager = Manager(server)
    manager.settle()
    (told,) = manager.violations
    assert "ended by somebody else while its Run holds it: cancel the Run if it is to end" in told
    assert WHO in told
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


def test_a_lease_deleted_by_hand_is_put_back_and_it_is_told_whom_to_ask() -> None:
    server, manager, path = running()
    server.delete(path)
    manager.settle()
    (told,) = manager.violations
    assert "was deleted while it counted: it is put back" in told
    assert WHO in told
    assert endings(server, "first") == ["open"]


def test_a_lease_made_by_hand_is_ended_and_it_is_told_whom_to_ask() -> None:
    server, manager, path = running()
    forged = {**server.find(path), "metadata": {"name": "forged"}}
    server.create(LEASES.path(), forged)
    manager.settle()
    (told,) = manager.violations
    assert "forged belongs to no Run that holds it: it is ended" in told
    assert WHO in told
    assert sorted(endings(server, "first")) == ["Cancelled", "open"]
