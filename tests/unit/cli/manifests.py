"""Manifests of nodes, Budgets and Runs, in few words."""

from typing import Any

API = "rq.davidlangworthy.io/v1"
SIM = "sim.rq.davidlangworthy.io/v1"
T0 = "2026-01-05T09:00:00Z"
FLAVOR = "H100-80GB"

Body = dict[str, Any]


def node(name: str, domain: str = "nv-a", flavor: str = FLAVOR, **labels: str) -> Body:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"fabric.domain": domain, "gpu.flavor": flavor, **labels}},
        "status": {"allocatable": {"nvidia.com/gpu": 8}},
    }


def nodes(count: int, stem: str = "a") -> list[Body]:
    """Returns the nodes ``a01``, ``a02``, …, all in the domain ``nv-a``."""
    return [node(f"{stem}{number:02}", f"nv-{stem}") for number in range(1, count + 1)]


def envelope(concurrency: int = 8, name: str = "own", **fields: object) -> Body:
    return {"name": name, "flavor": FLAVOR, "concurrency": concurrency, **fields}


def budget(name: str, *envelopes: Body, owner: str | None = None, **fields: object) -> Body:
    """Returns a Budget of the owner ``org:NAME``, unless another owner is given."""
    spec = {"owner": owner or f"org:{name}", "envelopes": list(envelopes), **fields}
    return {"apiVersion": API, "kind": "Budget", "metadata": {"name": name}, "spec": spec}


def run(name: str, gpus: int = 8, owner: str = "org:lab", namespace: str = "", **fields: object) -> Body:
    metadata: Body = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    spec = {"owner": owner, "resources": {"gpuType": FLAVOR, "totalGPUs": gpus}, **fields}
    return {"apiVersion": API, "kind": "Run", "metadata": metadata, "spec": spec}


def lasting(body: Body, duration: str) -> Body:
    """Returns the Run with an annotation that says how long its work takes in a simulation."""
    body["metadata"]["annotations"] = {"sim.rq.davidlangworthy.io/duration": duration}
    return body
