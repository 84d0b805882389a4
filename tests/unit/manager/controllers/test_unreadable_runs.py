"""Runs that cannot be read: told so, and left with what they hold."""

from jobtree.api.validation.object_parser import to_document
from jobtree.kube.http.api_resources import BUDGETS, LEASES, RUNS
from tests.unit.core.build import budget, envelope
from tests.unit.manager.cluster import Body, Manager, Server
from tests.unit.manager.stage import endings, phase, pods_of, put_budget, put_nodes, put_policy, put_run

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


def test_it_is_told_and_planned_once_it_is_mended() -> None:
    server = begin()
    edit(server, BROKEN)
    manager = Manager(server)
    manager.settle()
    status = server.run("r")["status"]
    assert (status["phase"], status["reason"]) == ("Pending", "Unreadable")
    assert "spec.runtime.checkpoint" in status["message"]
    assert {one["type"]: one["status"] for one in status["conditions"]} == {
        "Admitted": "False",
        "Finished": "False",
    }
    version = server.version
    manager.settle()
    assert server.version == version, "it is told once"
    edit(server, MENDED)
    manager.settle()
    assert (phase(server, "r"), len(pods_of(server, "r")), manager.violations) == ("Running", 2, [])
    assert server.run("r")["status"]["reason"] == "Admitted"


def test_one_that_runs_goes_on_as_it_was_and_can_be_cancelled() -> None:
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


def test_one_that_a_new_manager_cannot_read_keeps_what_it_holds_until_it_is_deleted() -> None:
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
    return [one["usedGPUs"] for one in server.all(BUDGETS)[0]["status"]["envelopes"]]


def test_one_that_a_new_manager_cannot_read_is_paid_for_all_the_same() -> None:
    """There is room for another Run, and no money: what holds GPUs costs its payer."""
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


def test_a_lease_that_is_ended_while_its_run_cannot_be_read_is_charged_once() -> None:
    server = begin()
    Manager(server).settle()
    edit(server, BROKEN)
    manager = Manager(server)
    manager.settle()
    (lease,) = server.all(LEASES)
    server.delete(RUNS.path("ns", "r"))
    manager.settle()
    assert (endings(server, "r"), used(server), manager.violations) == (["Cancelled"], ["0"], [])
    assert lease["metadata"]["name"] not in manager.model.world.open_leases.unreadable_run_leases
