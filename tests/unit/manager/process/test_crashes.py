"""A manager that is stopped dead after any of its writes: the next one goes on as if nothing had happened."""

from collections.abc import Callable

import pytest

from jobtree.kube.http.api_resources import BUDGETS, LEASES, PODS, RESERVATIONS, RUNS
from tests.unit.manager.cluster import Body, Manager, Server, StoppedError
from tests.unit.manager.stage import (
    TEMPLATE,
    finish_pods,
    put_budget,
    put_nodes,
    put_policy,
    put_run,
    put_tree,
)

Act = Callable[[Server], None]
MANY = 400
ELSEWHERE = "A100-80GB"


def later(milliseconds: int) -> Act:
    def act(server: Server) -> None:
        server.now += milliseconds

    return act


def begin(server: Server) -> None:
    put_policy(server)
    put_nodes(server, "nv-a", 4)
    put_budget(server, "org", 64)
    put_budget(server, "other", 64)
    put_run(server, "first", "org", 16, spares=1)
    put_run(server, "small", "org", 8)


def submit_second(server: Server) -> None:
    put_run(server, "second", "other", 24)


def delete_first(server: Server) -> None:
    server.delete(RUNS.path("ns", "first"))


def lose_node(server: Server) -> None:
    server.delete("/api/v1/nodes/nv-a-00")


def complete_second(server: Server) -> None:
    finish_pods(server, "second")


def begin_tree(server: Server) -> None:
    put_nodes(server, "nv-a", 4)
    put_budget(server, "org", 64)
    put_policy(server, TEMPLATE)
    put_tree(server, "tree", "org")


def finish(run: str) -> Act:
    return lambda server: finish_pods(server, run)


def delete_tree(server: Server) -> None:
    server.delete(RUNS.path("ns", "tree"))


def begin_narrow(server: Server) -> None:
    put_policy(server, TEMPLATE)
    put_nodes(server, "nv-a", 3)
    put_budget(server, "org", 24)
    put_run(server, "blocker", "org", 16)
    put_run(server, "elastic", "org", 24, malleable=(8, 24, 8), rendezvous=True)


def begin_behind(server: Server) -> None:
    begin_narrow(server)
    put_run(server, "waiting", "org", 24, malleable=(8, 24, 8), checkpoint="1m")


def fail_a_pod(server: Server) -> None:
    finish_pods(server, "elastic", "Failed", ranks=1)


def shrink(server: Server) -> None:
    server.change(
        RUNS.path("ns", "elastic"), {"spec": {"malleable": {"desiredTotalGPUs": 8}}}, "", merge=True
    )


def begin_meanwhile(server: Server) -> None:
    """Two that may lose a draw for good, and two elsewhere that need nothing of it."""
    put_policy(server)
    put_nodes(server, "nv-a", 2)
    put_nodes(server, "nv-b", 2, flavor=ELSEWHERE)
    for team in ("org", "other"):
        put_budget(server, team, 16)
    put_budget(server, "elsewhere", 16, flavor=ELSEWHERE)
    for name in ("left", "right"):
        put_run(server, name, "org", 8, requeue=False)
    for name in ("aside", "elastic"):
        put_run(server, name, "elsewhere", 8, flavor=ELSEWHERE)


def submit_newcomer(server: Server) -> None:
    put_run(server, "newcomer", "other", 8)


def all_at_once(server: Server) -> None:
    """The promise is due; at the same moment a Run is done and another loses a pod."""
    later(60_000)(server)
    finish_pods(server, "aside")
    fail_a_pod(server)


GROWTH = (
    begin_narrow,
    finish("blocker"),
    later(61_000),
    later(61_000),
    fail_a_pod,
    later(11_000),
    shrink,
    later(61_000),
)
SOONER = (begin_behind, finish("blocker"), shrink, later(61_000), finish("elastic"), later(61_000))
TREE = (begin_tree, finish("tree-prep"), later(1000), finish("tree-eval"), delete_tree)
RESOLUTION = (begin, later(60_000), submit_second, later(60_000), delete_first, complete_second)
MEANWHILE = (begin_meanwhile, later(60_000), submit_newcomer, all_at_once, later(11_000), finish("elastic"))
FAILURE = (begin, later(60_000), lose_node, later(60_000), delete_first)


def play(acts: tuple[Act, ...], stop_after: int = 0) -> tuple[Server, int]:
    """The server at the end, and how many writes there were; the manager dies once, after so many."""
    server = Server()
    acts[0](server)
    manager = Manager(server, stop_after)
    writes = 0
    for act in (*acts[1:], later(0)):
        try:
            manager.settle()
        except StoppedError:
            writes += manager.gate.writes
            manager = Manager(server)
            manager.settle()
        assert manager.broken() == []
        act(server)
    manager.settle()
    return server, writes + manager.gate.writes


def remains(server: Server) -> dict[str, list[Body]]:
    """All that must not depend on whether a manager died: no versions, no UIDs of what it made."""
    return {
        "runs": [without_versions(one) for one in server.all(RUNS)],
        "leases": [
            {"spec": one["spec"], "status": one.get("status"), "name": one["metadata"]["name"]}
            for one in server.all(LEASES)
        ],
        "reservations": [
            {"spec": one["spec"], "status": one["status"], "name": one["metadata"]["name"]}
            for one in server.all(RESERVATIONS)
        ],
        "pods": [
            {"spec": one["spec"], "phase": one["status"]["phase"], "name": one["metadata"]["name"]}
            for one in server.all(PODS)
        ],
    }


def without_versions(run: Body) -> Body:
    status = {key: value for key, value in run["status"].items() if key != "closing"}
    finalizers = run["metadata"].get("finalizers")
    return {"name": run["metadata"]["name"], "status": status, "finalizers": finalizers}


@pytest.mark.parametrize(
    "acts",
    [RESOLUTION, MEANWHILE, FAILURE, GROWTH, SOONER, TREE],
    ids=["resolution", "meanwhile", "failure", "growth", "sooner", "tree"],
)
def test_whatever_write_was_the_last_the_outcome_is_the_same(acts: tuple[Act, ...]) -> None:
    undisturbed, writes = play(acts)
    expected = remains(undisturbed)
    assert 20 < writes < MANY
    for number in range(1, writes + 1):
        server, _ = play(acts, stop_after=number)
        assert remains(server) == expected, f"after write {number} of {writes}"


def test_stages_start_together_or_not_at_all_whenever_the_manager_dies() -> None:
    """Money goes while nobody leads: what was decided for both is carried out for both, or planned anew."""
    outcomes = set()
    for number in range(1, 40):
        server = Server()
        begin_tree(server)
        manager = Manager(server)
        manager.settle()
        finish_pods(server, "tree-prep")
        manager = Manager(server, stop_after=number)
        try:
            manager.settle()
        except StoppedError:
            poorer(server)
        manager = Manager(server)
        manager.settle()
        phases = tuple(server.run(f"tree-{stage}")["status"]["phase"] for stage in ("train", "eval"))
        assert len(set(phases)) == 1, f"after write {number}: {phases}"
        outcomes.add(phases[0])
    assert outcomes == {"Reserved", "Running"}


def poorer(server: Server) -> None:
    """The team's budget is cut to what training alone needs."""
    path = BUDGETS.path(name="org")
    envelopes = [{**server.find(path)["spec"]["envelopes"][0], "concurrency": 16}]
    server.change(path, {"spec": {"envelopes": envelopes}}, "", merge=True)
