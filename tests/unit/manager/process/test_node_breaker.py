"""The breaker (F2c): Events, a metric and the log tell, and a restart of the manager changes nothing."""

from jobtree.api.schema.quantities import MINUTE, format_time
from jobtree.kube.http.api_resources import EVENTS, NODES, PODS
from tests.unit.manager.cluster_objects import endings, phase, put_budget, put_nodes, put_policy, put_run
from tests.unit.manager.memory_cluster import Manager, Server


def set_ready(server: Server, node: str, status: str) -> None:
    condition = {"type": "Ready", "status": status, "lastTransitionTime": format_time(server.now)}
    server.change(NODES.path(name=node), {"status": {"conditions": [condition]}}, "status", merge=True)


def running_gang() -> tuple[Server, Manager, list[str]]:
    server = Server()
    put_policy(server)
    names = put_nodes(server, "nv-a", 5)
    put_budget(server, "org", 64)
    put_run(server, "gang", "org", 32)
    manager = Manager(server)
    manager.settle()
    return server, manager, names


def lose(server: Server, manager: Manager, *names: str) -> None:
    for name in names:
        set_ready(server, name, "Unknown")
    manager.settle()
    server.now += 10 * MINUTE
    manager.settle()


def held_events(server: Server) -> list[str]:
    return [event["message"] for event in server.all(EVENTS) if event["reason"] == "NodesHeld"]


def test_f2c_a_restart_keeps_the_leases_and_pods_on_held_nodes() -> None:
    server, manager, names = running_gang()
    pods = {pod["metadata"]["uid"] for pod in server.all(PODS)}
    lose(server, manager, *names[:3])
    for _ in range(2):
        assert (phase(server, "gang"), endings(server, "gang")) == ("Running", ["open"])
        assert {pod["metadata"]["uid"] for pod in server.all(PODS)} == pods
        assert not any(node["spec"].get("unschedulable") for node in server.all(NODES) if "spec" in node)
        (message,) = held_events(server)
        assert message.startswith("not Ready, together with more than half of the nodes")
        assert "nv-a-00, nv-a-01, nv-a-02" in message
        page = manager.metrics.page().decode()
        assert 'jobtree_held_nodes{flavor="H100-80GB",domain="r/c/nv-a"} 3' in page
        assert manager.logged("too many nodes were lost together")
        assert manager.broken() == []
        manager.is_dead = True
        manager = Manager(server)
        manager.settle()


def test_f2c_pods_run_on_when_the_nodes_return() -> None:
    server, manager, names = running_gang()
    lose(server, manager, *names[:3])
    for name in names[:3]:
        set_ready(server, name, "True")
        manager.settle()
        server.now += MINUTE
    server.now += 10 * MINUTE
    manager.settle()
    assert (phase(server, "gang"), endings(server, "gang")) == ("Running", ["open"])
    assert manager.logged("no node is held any more")
    assert 'domain="r/c/nv-a"} 0' in manager.metrics.page().decode()


def test_f2c_a_pod_that_is_evicted_from_a_held_node_is_not_replaced_elsewhere() -> None:
    server, manager, names = running_gang()
    lose(server, manager, *names[:3])
    pod = next(pod for pod in server.all(PODS) if pod["spec"]["nodeName"] == names[0])
    path = PODS.path("ns", pod["metadata"]["name"])
    server.objects[path] = {**pod, "metadata": {**pod["metadata"], "finalizers": ["kubelet"]}}
    server.delete(path)
    manager.settle()
    assert (phase(server, "gang"), endings(server, "gang")) == ("Running", ["open"])
    assert server.run("gang")["status"]["attempt"] == 1


def test_f2c_a_node_that_is_taken_out_of_service_fails_alone() -> None:
    server, manager, names = running_gang()
    lose(server, manager, *names[:3])
    taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
    server.change(NODES.path(name=names[0]), {"spec": {"taints": [taint]}}, "", merge=True)
    manager.settle()
    assert sorted(endings(server, "gang")) == ["NodeFailure", "open", "open"]
    assert [
        node["metadata"]["name"] for node in server.all(NODES) if node.get("spec", {}).get("unschedulable")
    ] == [names[0]]
