"""Pods that are refused (N3, H5): a manager, an API server and kubelets that say no."""

from collections.abc import Callable

import pytest

from jobtree.api.schema.quantities import MINUTE, SECOND, format_time, parse_time
from jobtree.kube.http.api_errors import StatusError
from jobtree.kube.http.api_resources import EVENTS, NODES, PODS
from tests.unit.manager.cluster_objects import (
    TEMPLATE,
    endings,
    leases_of,
    phase,
    pods_of,
    put_budget,
    put_nodes,
    put_policy,
    put_run,
)
from tests.unit.manager.memory_cluster import Body, Manager, Server

Kubelet = Callable[[Body], Body]  # the status of a new pod

GRACE = 2 * MINUTE
STEP = 5 * SECOND
RUNNING: Body = {"phase": "Running"}


class QuotaServer(Server):
    """Refuses pods beyond a quota in the namespace, as the ResourceQuota plugin does."""

    quota = 100

    def create(self, collection: str, body: Body) -> Body:
        if collection.endswith("/pods") and len(self.all(PODS)) >= self.quota:
            name = body["metadata"]["name"]
            raise StatusError(403, "Forbidden", f'pods "{name}" is forbidden: exceeded quota: small')
        return super().create(collection, body)


def rejects(reason: str, *nodes: str) -> Kubelet:
    """The kubelets of these nodes refuse every pod."""

    def status(pod: Body) -> Body:
        if pod["spec"].get("nodeName") in nodes:
            return {"phase": "Failed", "reason": reason, "message": f"no {pod['spec']['nodeName']} for you"}
        return RUNNING

    return status


def cannot_pull(*nodes: str) -> Kubelet:
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image here"}}

    def status(pod: Body) -> Body:
        if pod["spec"].get("nodeName") in nodes:
            return {"phase": "Pending", "containerStatuses": [{"name": "main", "state": waiting}]}
        return RUNNING

    return status


def cannot_mount(server: Server, *nodes: str) -> Kubelet:
    def status(pod: Body) -> Body:
        condition = {"type": "PodReadyToStartContainers", "status": "False"}
        condition["lastTransitionTime"] = format_time(server.now // SECOND * SECOND)
        on_node = pod["spec"].get("nodeName") in nodes
        return {"phase": "Pending", "conditions": [condition]} if on_node else RUNNING

    return status


def begin(nodes: int = 2, server: Server | None = None, domains: int = 1) -> Server:
    server = server or Server()
    put_policy(server, TEMPLATE)
    for number in range(domains):
        put_nodes(server, f"nv-{'ab'[number]}", nodes)
    put_budget(server, "org", 100)
    return server


def settle(server: Server, manager: Manager, kubelet: Kubelet) -> None:
    for _ in range(50):
        before = server.version
        manager.turn()
        for pod in server.all(PODS):
            if "status" not in pod:
                path = PODS.path(pod["metadata"]["namespace"], pod["metadata"]["name"])
                server.change(path, {"status": kubelet(pod)}, "status", merge=True)
        if server.version == before and not manager.loop.woken.is_set():
            return
    raise AssertionError("the manager still writes after 50 turns")


def pass_time(
    server: Server, manager: Manager, milliseconds: int, kubelet: Kubelet = lambda _: RUNNING
) -> None:
    settle(server, manager, kubelet)
    for _ in range(0, milliseconds, STEP):
        server.now += STEP
        settle(server, manager, kubelet)


def node_of(server: Server, run: str) -> str:
    (pod,) = [pod for pod in pods_of(server, run) if "deletionTimestamp" not in pod["metadata"]]
    return str(pod["spec"]["nodeName"])


def creations(server: Server) -> int:
    return sum(count for path, count in server.created.items() if "/pods/" in path)


def charged(server: Server, run: str, *nodes: str) -> int:
    """Milliseconds for which closed leases of a Run on these nodes were charged."""
    return sum(
        parse_time(lease["status"]["end"]) - parse_time(lease["spec"]["start"])
        for lease in leases_of(server, run)
        if lease.get("status", {}).get("end")
        and any(slot.partition("#")[0] in nodes for slot in lease["spec"]["slots"])
    )


KUBELETS = {
    "OutOfcpu": rejects("OutOfcpu", "nv-a-00"),
    "UnexpectedAdmissionError": rejects("UnexpectedAdmissionError", "nv-a-00"),
    "NodeAffinity": rejects("NodeAffinity", "nv-a-00"),
    "TaintToleration": rejects("TaintToleration", "nv-a-00"),
    "Evicted": rejects("Evicted", "nv-a-00"),
    "ImagePullBackOff": cannot_pull("nv-a-00"),
}


@pytest.mark.parametrize("word", KUBELETS)
def test_n3_pod_that_a_kubelet_refuses_is_told_and_moved_after_the_grace(word: str) -> None:
    server, kubelet = begin(), KUBELETS[word]
    put_run(server, "r", "org", 8, max_restarts=0)
    manager = Manager(server)
    pass_time(server, manager, GRACE - STEP, kubelet)
    status = server.run("r")["status"]
    assert (status["phase"], status["reason"], word in status["message"]) == ("Running", "Refused", True)
    assert node_of(server, "r") == "nv-a-00"
    assert creations(server) <= 6, "the pauses between two tries grow"
    pass_time(server, manager, 2 * STEP, kubelet)
    status = server.run("r")["status"]
    assert (status["phase"], status["reason"], status.get("restarts", 0)) == ("Running", "Admitted", 0)
    assert node_of(server, "r") == "nv-a-01"
    assert endings(server, "r") == ["CapacityLost", "open"]
    assert GRACE <= charged(server, "r", "nv-a-00") <= GRACE + STEP
    assert "Refused" in [event["reason"] for event in server.all(EVENTS)]
    assert manager.violations == []


def test_n3_pod_that_a_kubelet_accepts_at_the_next_try_stays() -> None:
    """Devices may be missing for a moment after a kubelet has started."""
    server = begin()
    put_run(server, "r", "org", 8)
    manager = Manager(server)
    pass_time(server, manager, STEP, rejects("UnexpectedAdmissionError", "nv-a-00"))
    pass_time(server, manager, GRACE)
    assert (endings(server, "r"), node_of(server, "r")) == (["open"], "nv-a-00")
    status = server.run("r")["status"]
    assert (status["reason"], status["attempt"], status.get("refusals")) == ("Admitted", 1, None)


def test_n3_other_ranks_keep_running_while_one_is_tried_again() -> None:
    server = begin(3)
    put_run(server, "r", "org", 16)
    manager = Manager(server)
    pass_time(server, manager, GRACE // 2, rejects("OutOfcpu", "nv-a-01"))
    by_node = {pod["spec"]["nodeName"]: pod["status"]["phase"] for pod in pods_of(server, "r")}
    assert by_node["nv-a-00"] == "Running"
    assert [count for path, count in server.created.items() if "/pods/" in path and "-0-0-1" in path] == [1]


def test_n3_volume_that_does_not_come_moves_the_run() -> None:
    server = begin()
    put_run(server, "r", "org", 8)
    manager = Manager(server)
    pass_time(server, manager, GRACE // 4, cannot_mount(server, "nv-a-00"))
    assert server.run("r")["status"]["reason"] == "Admitted", "most volumes take a moment"
    pass_time(server, manager, GRACE // 2, cannot_mount(server, "nv-a-00"))
    assert "volumes" in server.run("r")["status"]["message"]
    pass_time(server, manager, GRACE, cannot_mount(server, "nv-a-00"))
    assert node_of(server, "r") == "nv-a-01"
    assert charged(server, "r", "nv-a-00") <= 3 * GRACE // 2 + STEP


def test_n3_taint_without_toleration_moves_the_run_and_counts_no_restart() -> None:
    """The taint manager deletes the pods, whose containers then fail with the signal."""
    server = begin()
    put_run(server, "r", "org", 8, max_restarts=0)
    manager = Manager(server)
    pass_time(server, manager, STEP)
    taint = {"key": "maintenance", "effect": "NoExecute"}
    server.change(NODES.path(name="nv-a-00"), {"spec": {"taints": [taint]}}, "", merge=True)
    (pod,) = pods_of(server, "r")
    path = PODS.path("ns", pod["metadata"]["name"])
    disruption = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
    server.change(path, {"status": {"phase": "Failed", "conditions": [disruption]}}, "status", merge=True)
    pass_time(server, manager, STEP)
    status = server.run("r")["status"]
    assert (status["phase"], status.get("restarts", 0)) == ("Running", 0)
    assert [pod["spec"]["nodeName"] for pod in pods_of(server, "r") if pod["status"] == RUNNING] == [
        "nv-a-01"
    ]


def test_n3_pod_that_hangs_on_a_node_moves_the_run_that_waits_for_its_gpus() -> None:
    """Within its grace period a pod may take its time; after that its node is given up."""
    server = begin(1)
    put_run(server, "first", "org", 8)
    manager = Manager(server)
    pass_time(server, manager, STEP)
    (pod,) = pods_of(server, "first")
    path = PODS.path("ns", pod["metadata"]["name"])
    server.change(path, {"metadata": {"finalizers": ["example.com/hangs"]}}, "", merge=True)
    server.delete("/apis/rq.davidlangworthy.io/v1/namespaces/ns/runs/first")
    pass_time(server, manager, STEP)
    put_run(server, "waits", "org", 8)
    pass_time(server, manager, 4 * STEP)
    status = server.run("waits")["status"]
    assert (status["reason"], "still terminating" in status["message"]) == ("Refused", True)
    pass_time(server, manager, GRACE)
    status = server.run("waits")["status"]
    assert (status["phase"], status["reason"]) == ("Reserved", "Unplaceable")
    assert "open" not in endings(server, "waits")


# The API server


def test_h5_ranks_beyond_a_quota_free_all_gpus_and_start_when_it_is_raised() -> None:
    server = begin(2, QuotaServer())
    assert isinstance(server, QuotaServer)
    server.quota = 1
    put_run(server, "r", "org", 16, max_restarts=0)
    put_run(server, "waits", "org", 8)
    manager = Manager(server)
    pass_time(server, manager, GRACE // 2)
    assert (phase(server, "r"), phase(server, "waits")) == ("Running", "Reserved")
    assert "exceeded quota" in server.run("r")["status"]["message"]
    pass_time(server, manager, GRACE // 2)
    status = server.run("r")["status"]
    assert (status["phase"], status["reason"], status.get("restarts", 0)) == ("Pending", "Unplaceable", 0)
    assert (endings(server, "r"), status.get("reservation")) == (["CapacityLost"], None)
    assert phase(server, "waits") == "Running", "the GPUs came free"
    assert [pod["metadata"]["name"] for pod in pods_of(server, "r")] == []
    server.quota = 10
    pass_time(server, manager, GRACE + STEP)
    assert (phase(server, "r"), server.run("r")["status"]["reason"]) == ("Reserved", "NoFreeSlots")
    server.delete("/apis/rq.davidlangworthy.io/v1/namespaces/ns/runs/waits")
    pass_time(server, manager, STEP)
    assert (phase(server, "r"), len(pods_of(server, "r"))) == ("Running", 2)
    assert manager.violations == []


def test_h5_payer_of_a_run_beyond_its_quota_pays_for_one_grace_only() -> None:
    server = begin(2, QuotaServer())
    assert isinstance(server, QuotaServer)
    server.quota = 1
    put_run(server, "r", "org", 16)
    manager = Manager(server)
    pass_time(server, manager, 60 * MINUTE)
    starts = len(leases_of(server, "r"))
    assert 3 <= starts <= 6, "the pauses double"
    assert charged(server, "r", "nv-a-00") <= GRACE + starts * STEP
    assert creations(server) <= 60
    told = [event["reason"] for event in server.all(EVENTS)]
    assert told.count("PodRefused") <= starts


@pytest.mark.parametrize("second", [15, 60, 130, 200])
def test_n3_refusals_survive_a_restart_of_the_manager(second: int) -> None:
    def history(*, restarted: bool) -> tuple[list[str], int]:
        server = begin(1, QuotaServer())
        assert isinstance(server, QuotaServer)
        server.quota = 0
        put_run(server, "r", "org", 8)
        manager = Manager(server)
        pass_time(server, manager, second * SECOND)
        if restarted:
            manager = Manager(server)
        pass_time(server, manager, 6 * MINUTE - second * SECOND)
        assert manager.violations == []
        return endings(server, "r"), charged(server, "r", "nv-a-00")

    (_, paid), (endings_then, paid_then) = history(restarted=False), history(restarted=True)
    assert endings_then == ["CapacityLost"] * len(endings_then)
    assert paid_then <= paid + 2 * STEP


def test_n3_a_run_that_is_left_out_by_a_grace_of_a_second_waits_sooner() -> None:
    server = Server()
    put_policy(server, f"{TEMPLATE}placementGrace: 10s\n")
    put_nodes(server, "nv-a", 1)
    put_budget(server, "org", 8)
    put_run(server, "r", "org", 8)
    manager = Manager(server)
    pass_time(server, manager, 3 * STEP, rejects("OutOfcpu", "nv-a-00"))
    status = server.run("r")["status"]
    assert (status["phase"], status["reason"]) == ("Reserved", "Unplaceable")
    assert "OutOfcpu: no nv-a-00 for you" in status["message"]


# The scheduler


def test_n3_run_leaves_a_node_for_which_the_scheduler_finds_no_room() -> None:
    server = begin()
    put_policy_again(server, "binding: Scheduler\n")
    put_run(server, "r", "org", 8)
    manager = Manager(server)

    def scheduler(pod: Body) -> Body:
        if target(pod) != "nv-a-00":
            return RUNNING
        message = "0/2 nodes are available: 1 Insufficient rdma/hca"
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        return {"phase": "Pending", "conditions": [{**condition, "message": message}]}

    pass_time(server, manager, STEP, scheduler)
    assert server.run("r")["status"]["reason"] == "Admitted", "it may not know yet that other pods are gone"
    pass_time(server, manager, 2 * STEP, scheduler)
    assert "Insufficient rdma/hca" in server.run("r")["status"]["message"]
    pass_time(server, manager, GRACE, scheduler)
    assert (phase(server, "r"), {target(pod) for pod in pods_of(server, "r")}) == ("Running", {"nv-a-01"})
    assert charged(server, "r", "nv-a-00") <= GRACE + 3 * STEP


def test_n3_run_waits_and_holds_nothing_while_no_scheduler_answers() -> None:
    server = begin()
    put_policy_again(server, "binding: Scheduler\n")
    put_run(server, "r", "org", 8)
    manager = Manager(server)
    pass_time(server, manager, 2 * GRACE, lambda _: {"phase": "Pending"})
    status = server.run("r")["status"]
    assert (status["phase"], status["reason"], endings(server, "r")) == (
        "Pending",
        "Unplaceable",
        ["CapacityLost"],
    )
    assert "no scheduler has placed its pods" in status["message"]
    assert charged(server, "r", "nv-a-00") <= 3 * GRACE // 2 + STEP
    pass_time(server, manager, GRACE)
    assert phase(server, "r") == "Running"


def put_policy_again(server: Server, text: str) -> None:
    path = "/api/v1/namespaces/jobtree-system/configmaps/jobtree-policy"
    server.change(path, {"data": {"policy.yaml": TEMPLATE + text}}, "", merge=True)


def target(pod: Body) -> str:
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = required["nodeSelectorTerms"]
    return str(term["matchFields"][0]["values"][0])


# The priority class of the manifests


def test_n1_cluster_without_the_priority_class_still_gets_pods() -> None:
    server = PriorityServer()
    begin(1, server)
    put_run(server, "r", "org", 8)
    manager = Manager(server)
    pass_time(server, manager, 2 * STEP)
    (pod,) = pods_of(server, "r")
    assert "priorityClassName" not in pod["spec"]
    assert server.run("r")["status"]["reason"] == "Admitted"
    assert manager.logged("pods have no priority") != []


class PriorityServer(Server):
    """Has no PriorityClass."""

    def create(self, collection: str, body: Body) -> Body:
        name = body.get("spec", {}).get("priorityClassName")
        if name:
            message = f'pods "x" is forbidden: no PriorityClass with name {name} was found'
            raise StatusError(403, "Forbidden", message)
        return super().create(collection, body)
