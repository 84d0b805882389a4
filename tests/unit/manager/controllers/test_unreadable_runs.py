"""A Run that cannot be read gets a condition, and keeps its leases."""

from jobtree.api.validation.object_parser import to_document
from jobtree.kube.http.api_resources import BUDGETS, LEASES, RUNS
from tests.unit.core.build import budget, envelope
from tests.unit.manager.cluster_objects import (
    endings,
    phase,
    pods_of,
    put_budget,
    put_nodes,
    put_policy,
    put_run,
)
from tests.unit.manager.memory_cluster import Body, Manager, Server

BROKEN = {"spec": {"runtime": {"checkpoint": "soon"}}}
MENDED = {"spec": {"runtime": {"checkpoint": "10m"}}}


def begin() -> Server:
    server = Server()
    put_policy(server)
    put_nodes(server, "nv-a", 2)
    put_budget(server, "org", 16)
    put_run(server, "r", "org", 16)
    return server


def edit(server: Server, patch: Body) -> None:
    server.change(RUNS.path("ns", "r"), patch, "", merge=True)


def test_unreadable_run_gets_a_condition_and_starts_when_it_is_corrected() -> None:
    server = begin()
    edit(server, BROKEN)
    manager = Manager(server)
    manager.settle()
    status = server.run("r")["status"]
    assert (status["phase"], status["reason"]) == ("Pending", "Unreadable")
    assert "spec.runtime.checkpoint" in status["message"]
    assert {condition["type"]: condition["status"] for condition in status["conditions"]} == {
        "Admitted": "False",
        "Finished": "False",
        "Ready": "False",
    }
    version = server.version
    manager.settle()
    assert server.version == version, "the condition is written once"
    edit(server, MENDED)
    manager.settle()
    assert (phase(server, "r"), len(pods_of(server, "r")), manager.violations) == ("Running", 2, [])
    assert server.run("r")["status"]["reason"] == "Admitted"


def test_running_run_that_becomes_unreadable_continues_and_can_be_deleted() -> None:
    server = begin()
    manager = Manager(server)
    manager.settle()
    edit(server, BROKEN)
    put_run(server, "later", "org", 8)
    manager.settle()
    assert (phase(server, "r"), endings(server, "r"), phase(server, "later")) == (
        "Running",
        ["open"],
        "Reserved",
    )
    server.delete(RUNS.path("ns", "r"))
    manager.settle()
    assert (endings(server, "r"), phase(server, "later"), pods_of(server, "r")) == (
        ["Cancelled"],
        "Running",
        [],
    )


def test_unreadable_run_keeps_its_leases_after_a_restart_until_it_is_deleted() -> None:
    server = begin()
    Manager(server).settle()
    edit(server, BROKEN)
    put_run(server, "later", "org", 16)
    manager = Manager(server)
    manager.settle()
    assert (phase(server, "r"), endings(server, "r"), len(pods_of(server, "r"))) == ("Running", ["open"], 2)
    assert server.run("r")["status"]["reason"] == "Unreadable"
    assert phase(server, "later") == "Reserved", "its pods are there, whoever they belong to"
    server.delete(RUNS.path("ns", "r"))
    manager.settle()
    assert (endings(server, "r"), manager.violations) == (["Cancelled"], [])
    assert (pods_of(server, "r"), phase(server, "later")) == ([], "Running")
    assert len(server.all(LEASES)) == 2


def used(server: Server) -> list[str]:
    return [envelope["usedGPUs"] for envelope in server.all(BUDGETS)[0]["status"]["envelopes"]]


def test_unreadable_run_is_charged_to_its_payer_after_a_restart() -> None:
    """There are GPUs for another Run, but no budget: the leases of the unreadable Run cost their payer."""
    server = begin()
    put_nodes(server, "nv-b", 2)
    Manager(server).settle()
    edit(server, BROKEN)
    put_run(server, "later", "org", 16)
    manager = Manager(server)
    manager.settle()
    assert (phase(server, "later"), used(server)) == ("Reserved", ["16"])
    assert server.run("later")["status"]["reason"] == "ConcurrencyExhausted"
    wider = to_document(budget("org", envelope(24)))["spec"]
    server.change(
        BUDGETS.path(name=server.all(BUDGETS)[0]["metadata"]["name"]), {"spec": wider}, "", merge=True
    )
    manager.settle()
    assert (phase(server, "later"), used(server)) == ("Reserved", ["16"]), "an edit does not lose sight of it"
    edit(server, MENDED)
    manager.settle()
    assert (phase(server, "r"), phase(server, "later"), used(server)) == ("Running", "Reserved", ["16"])
    assert (endings(server, "r"), manager.violations) == (["open"], [])
    server.delete(RUNS.path("ns", "r"))
    manager.settle()
    assert (phase(server, "later"), used(server), manager.violations) == ("Running", ["16"], [])


def test_lease_that_ends_while_its_run_is_unreadable_is_charged_once() -> None:
    server = begin()
    Manager(server).settle()
    edit(server, BROKEN)
    manager = Manager(server)
    manager.settle()
    (lease,) = server.all(LEASES)
    server.delete(RUNS.path("ns", "r"))
    manager.settle()
    assert (endings(server, "r"), used(server), manager.violations) == (["Cancelled"], ["0"], [])
    assert lease["metadata"]["name"] not in manager.model.world.open_leases.held
