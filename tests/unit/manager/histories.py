"""Histories of a cluster: lists of events for tests in which the manager dies or a write fails."""

from collections.abc import Callable

from jobtree.kube.http.api_errors import KubeError, StatusError, UnreachableError
from jobtree.kube.http.api_resources import BUDGETS, LEASES, PODS, RESERVATIONS, RUNS
from tests.unit.manager.cluster_objects import (
    TEMPLATE,
    finish_pods,
    put_budget,
    put_nodes,
    put_policy,
    put_run,
    put_tree,
)
from tests.unit.manager.memory_cluster import Body, Fault, Manager, Server, StoppedError

Event = Callable[[Server], None]
History = tuple[Event, ...]
ELSEWHERE = "A100-80GB"


def later(milliseconds: int) -> Event:
    def event(server: Server) -> None:
        server.now += milliseconds

    return event


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


def finish(run: str) -> Event:
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
    """Starts two Runs that fail if they are drawn, and two of another flavor that cannot be drawn."""
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
    """Makes the promise due while one Run completes and another loses a pod."""
    later(60_000)(server)
    finish_pods(server, "aside")
    fail_a_pod(server)


def begin_refused(server: Server) -> None:
    """Begins with a node that refuses every pod."""
    put_policy(server, TEMPLATE)
    put_nodes(server, "nv-a", 4)
    put_budget(server, "org", 64)
    server.refusing_nodes = {"nv-a-00"}
    put_run(server, "first", "org", 16, spares=1)


def submit_beyond_quota(server: Server) -> None:
    server.refused = {"pods": StatusError(403, "Forbidden", "exceeded quota")}
    put_run(server, "late", "org", 8)


def raise_quota(server: Server) -> None:
    server.refused = {}
    server.refusing_nodes = set()


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
REFUSAL = (
    begin_refused,
    *[later(10_000)] * 3,
    later(91_000),
    finish("first"),
    submit_beyond_quota,
    *[later(61_000)] * 3,
    raise_quota,
    later(200_000),
    finish("late"),
)
FAILURE = (begin, later(60_000), lose_node, later(60_000), delete_first)


HISTORIES = {
    "resolution": RESOLUTION,
    "meanwhile": MEANWHILE,
    "failure": FAILURE,
    "refusal": REFUSAL,
    "growth": GROWTH,
    "sooner": SOONER,
    "tree": TREE,
}


FAULTS: dict[str, tuple[KubeError, bool]] = {  # the error, and whether the write takes effect
    "conflict": (StatusError(409, "Conflict", "somebody was faster"), False),
    "busy": (StatusError(429, "TooManyRequests", "later", retry_after_seconds=0), False),
    "unwell": (StatusError(500, "InternalError", "ouch"), False),
    "unheard": (UnreachableError("no answer came", may_have_happened=True), True),
}


def play_with_crash(history: History, stop_after: int = 0) -> tuple[Server, int]:
    """Returns the server at the end, and the number of writes; a manager dies after ``stop_after`` writes."""
    server = Server()
    history[0](server)
    manager = Manager(server, stop_after)
    writes = 0
    for event in (*history[1:], later(0)):
        try:
            manager.settle()
        except StoppedError:
            writes += manager.gate.writes
            manager = Manager(server)
            manager.settle()
        assert manager.broken() == []
        event(server)
    manager.settle()
    return server, writes + manager.gate.writes


def play_with_fault(history: History, fault: Fault | None = None) -> Server:
    """Returns the server at the end; one write meets a fault."""
    server = Server()
    history[0](server)
    server.fault = fault
    manager = Manager(server)
    for event in (*history[1:], later(0)):
        manager.settle()
        assert manager.broken() == []
        event(server)
    assert manager.violations == []
    return server


def spread(count: int, samples: int = 4) -> list[int]:
    """Returns ``samples`` numbers from 1 to ``count``, evenly spread, with the last one."""
    return sorted({max(1, count * number // samples) for number in range(1, samples + 1)})


def start_of_stages_with_crash(stop_after: int) -> str:
    """Returns the phase of two stages that start together, after a crash and a cut of their Budget (J3).

    The Budget is cut while no manager runs: either both stages start as it was decided, or both wait. With 0
    the manager dies before its first write.
    """
    server = Server()
    begin_tree(server)
    manager = Manager(server)
    manager.settle()
    finish_pods(server, "tree-prep")
    try:
        if stop_after:
            Manager(server, stop_after).settle()
        else:
            cut_budget(server)
    except StoppedError:
        cut_budget(server)
    manager = Manager(server)
    manager.settle()
    train, evaluate = (str(server.run(f"tree-{stage}")["status"]["phase"]) for stage in ("train", "eval"))
    assert train == evaluate, f"after write {stop_after}: {train}, {evaluate}"
    return train


def cut_budget(server: Server) -> None:
    """Cuts the Budget to the GPUs of the training stage alone."""
    path = BUDGETS.path(name="org")
    envelopes = [{**server.find(path)["spec"]["envelopes"][0], "concurrency": 16}]
    server.change(path, {"spec": {"envelopes": envelopes}}, "", merge=True)


def remains(server: Server) -> dict[str, list[Body]]:
    """Returns what must not depend on a crash: objects without versions and UIDs."""
    return {
        "runs": [without_versions(run) for run in server.all(RUNS)],
        "leases": [
            {"spec": lease["spec"], "status": lease.get("status"), "name": lease["metadata"]["name"]}
            for lease in server.all(LEASES)
        ],
        "reservations": [
            {key: reservation[key] for key in ("spec", "status")} | {"name": reservation["metadata"]["name"]}
            for reservation in server.all(RESERVATIONS)
        ],
        "pods": [
            {"spec": pod["spec"], "phase": pod["status"]["phase"], "name": pod["metadata"]["name"]}
            for pod in server.all(PODS)
        ],
    }


def without_versions(run: Body) -> Body:
    status = {key: value for key, value in run["status"].items() if key != "closing"}
    finalizers = run["metadata"].get("finalizers")
    return {"name": run["metadata"]["name"], "status": status, "finalizers": finalizers}
