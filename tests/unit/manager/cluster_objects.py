"""Puts objects on the cluster in memory, and reads them."""

from typing import Any

from jobtree.api.kinds.run import Run
from jobtree.api.validation.object_parser import to_document
from jobtree.kube.http.api_resources import BUDGETS, CONFIG_MAPS, LEASES, NODES, PODS, RESERVATIONS, RUNS
from tests.unit.core.build import H100, budget, envelope, run
from tests.unit.manager.memory_cluster import Body, Server

TEMPLATE = "defaultTemplate: {spec: {containers: [{name: main, image: house:1}]}}\n"
POLICY = f"structuralNotice: 1s\nminNotice: 1s\nmaxNotice: 2s\nminRuntime: 0s\n{TEMPLATE}"


def put_nodes(server: Server, domain: str, count: int, flavor: str = H100) -> list[str]:
    names = [f"{domain}-{number:02}" for number in range(count)]
    for name in names:
        labels = {"region": "r", "cluster": "c", "fabric.domain": domain, "gpu.flavor": flavor}
        capacity = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"}
        server.create(
            NODES.path(),
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": labels},
                "status": {"allocatable": capacity, "conditions": [{"type": "Ready", "status": "True"}]},
            },
        )
    return names


def put_budget(server: Server, name: str, gpus: int, **fields: Any) -> None:  # noqa: ANN401
    server.create(BUDGETS.path(), stripped(to_document(budget(name, envelope(gpus, **fields)))))


def put_run(server: Server, name: str, owner: str, gpus: int, **fields: Any) -> None:  # noqa: ANN401
    new_run: Run = run(name, owner, gpus, **fields)
    server.create(RUNS.path("ns"), stripped(to_document(new_run)))


def put_tree(server: Server, name: str, owner: str) -> None:
    """Puts a job tree: a preparation without GPUs, then training and evaluation together."""
    stages = [
        {"name": "prep", "resources": {"totalGPUs": 0, "pods": 2}},
        {"name": "train", "resources": {"gpuType": H100, "totalGPUs": 16}, "after": ["prep"]},
        {
            "name": "eval",
            "resources": {"gpuType": H100, "totalGPUs": 8},
            "after": ["prep"],
            "with": ["train"],
        },
    ]
    server.create(
        RUNS.path("ns"),
        {
            "apiVersion": RUNS.api_version,
            "kind": "Run",
            "metadata": {"name": name, "namespace": "ns"},
            "spec": {"owner": owner, "stages": stages},
        },
    )


def put_policy(server: Server, text: str = POLICY) -> None:
    server.create(
        CONFIG_MAPS.path("jobtree-system"),
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "jobtree-policy", "namespace": "jobtree-system"},
            "data": {"policy.yaml": text},
        },
    )


def stripped(body: Body) -> Body:
    """Returns the object as a user sends it, with only a name and a namespace."""
    metadata = {key: body["metadata"][key] for key in ("name", "namespace") if key in body["metadata"]}
    return {**body, "metadata": metadata}


def finish_pods(server: Server, run: str, phase: str = "Succeeded", ranks: int = 0) -> None:
    """Ends the running pods of a Run, or only the first ``ranks`` of them."""
    pods = [pod for pod in pods_of(server, run) if pod["status"]["phase"] == "Running"]
    for pod in pods[: ranks or None]:
        path = PODS.path("ns", pod["metadata"]["name"])
        server.change(path, {"status": {"phase": phase}}, "status", merge=True)


def pods_of(server: Server, run: str) -> list[Body]:
    return [pod for pod in server.all(PODS) if pod["metadata"]["labels"]["rq.davidlangworthy.io/run"] == run]


def leases_of(server: Server, run: str) -> list[Body]:
    return [lease for lease in server.all(LEASES) if lease["spec"]["runRef"]["name"] == run]


def endings(server: Server, run: str) -> list[str]:
    """Returns the closure reason of each lease of a Run; ``open`` for an open lease."""
    return [lease.get("status", {}).get("closureReason", "open") for lease in leases_of(server, run)]


def phase(server: Server, run: str) -> str:
    return str(server.run(run).get("status", {}).get("phase", ""))


def states(server: Server) -> dict[str, str]:
    """Returns the state of each Reservation by its name."""
    return {
        reservation["metadata"]["name"]: reservation["status"]["state"]
        for reservation in server.all(RESERVATIONS)
    }
