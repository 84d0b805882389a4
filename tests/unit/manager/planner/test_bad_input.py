"""Errors outside Jobtree are reported on the Run, and do not affect other Runs."""

import msgspec

from jobtree.api.kinds.policy import Policy
from jobtree.api.kinds.reservation import Forecast
from jobtree.api.schema.quantities import MINUTE
from jobtree.api.schema.scalars import MAX_GPUS
from jobtree.kube.http.api_errors import StatusError
from jobtree.kube.http.api_resources import EVENTS, NODES, PODS
from jobtree.manager.controllers.pod_reconciler import RETRY_MS
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

MISSING = 'failed to pull and unpack image "train:0": not found'


def begin(nodes: int = 1) -> Server:
    server = Server()
    put_policy(server)
    put_nodes(server, "nv-a", nodes)
    put_budget(server, "org", 16)
    return server


def give_gpus(server: Server, gpus: int) -> None:
    allocatable = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": str(gpus)}
    server.change(NODES.path(name="nv-a-00"), {"status": {"allocatable": allocatable}}, "status", merge=True)


def test_missing_image_is_reported_once_for_all_pods() -> None:
    server = begin(nodes=2)
    put_run(server, "r", "org", 16)
    manager = Manager(server)
    manager.turn()
    for pod in pods_of(server, "r"):
        waiting = {"state": {"waiting": {"reason": "ErrImagePull", "message": MISSING}}}
        status = {"phase": "Pending", "containerStatuses": [{"name": "main", **waiting}]}
        server.change(PODS.path("ns", pod["metadata"]["name"]), {"status": status}, "status", merge=True)
    manager.settle()
    (message,) = [event["message"] for event in server.all(EVENTS) if event["reason"] == "PodStuck"]
    assert MISSING in message
    assert "cancel the Run and submit it with another template" in message
    assert (phase(server, "r"), endings(server, "r")) == ("Running", ["open"]), "the image may still appear"


def test_node_that_reports_no_gpus_keeps_its_leases_and_takes_no_run() -> None:
    server = begin()
    give_gpus(server, 0)
    put_run(server, "r", "org", 8)
    manager = Manager(server)
    manager.settle()
    assert (phase(server, "r"), server.run("r")["status"]["reason"]) == ("Reserved", "NoSuchFlavor")
    give_gpus(server, 8)
    manager.settle()
    assert phase(server, "r") == "Running"
    give_gpus(server, 0)
    manager.settle()
    assert (phase(server, "r"), endings(server, "r"), len(pods_of(server, "r"))) == ("Running", ["open"], 1)
    put_run(server, "next", "org", 8)
    manager.settle()
    assert phase(server, "next") == "Reserved"
    assert (manager.violations, manager.broken()) == ([], [])


def test_missing_permission_fails_no_run() -> None:
    """The Run waits for its pod and uses no restart, because only an administrator can grant the right."""
    server = begin()
    forbidden = 'pods is forbidden: User "jobtree" cannot create resource "pods" in API group ""'
    server.refused["pods"] = StatusError(403, "Forbidden", forbidden)
    put_run(server, "r", "org", 8)
    manager = Manager(server)
    manager.settle()
    status = server.run("r")["status"]
    assert (status["phase"], status["attempt"], status.get("restarts", 0)) == ("Running", 1, 0)
    messages = [event["message"] for event in server.all(EVENTS) if event["reason"] == "PodRefused"]
    assert messages == [f"a pod could not be made: {forbidden}"]
    server.refused.clear()
    server.now += RETRY_MS
    manager.settle()
    assert len(pods_of(server, "r")) == 1


def test_unreadable_policy_changes_nothing_until_a_restart() -> None:
    server = Server()
    put_policy(server, "maxNotice: 20m\n")
    manager = Manager(server)
    manager.settle()
    path = "/api/v1/namespaces/jobtree-system/configmaps/jobtree-policy"
    server.change(path, {"data": {"policy.yaml": "maxNotice: soon\n"}}, "", merge=True)
    manager.settle()
    assert manager.model.world.policy.max_notice_ms == 20 * MINUTE
    restarted = Manager(server)
    restarted.settle()
    assert restarted.model.world.policy == Policy()


def test_reservation_may_lack_more_than_the_largest_run_asks_for() -> None:
    """Its envelope can be short of what earlier promises count on, too: the status could not be written."""
    forecast = {"deficitGPUs": MAX_GPUS + 8, "remedies": [{"kind": "RaiseEnvelope", "gpus": MAX_GPUS + 8}]}
    assert msgspec.convert(forecast, Forecast).remedies[0].gpus == MAX_GPUS + 8
