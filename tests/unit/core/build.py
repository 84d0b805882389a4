"""Short spellings of nodes, budgets and Runs, through the same parsers that users' documents go through."""

from typing import Any

from jobtree.api.kinds.budget import Budget
from jobtree.api.kinds.run import Run
from jobtree.api.kubernetes.node import OUT_OF_SERVICE, Node, read_node
from jobtree.api.kubernetes.pod import Pod, read_pod
from jobtree.api.schema.object_meta import API_VERSION
from jobtree.api.schema.quantities import format_time, parse_time
from jobtree.api.validation.object_parser import parse_object

T0 = parse_time("2026-01-05T09:00:00Z")
H100 = "H100-80GB"
NAMESPACE = "ns"


def node(
    name: str,
    domain: str = "nv-a",
    gpus: int = 8,
    *,
    flavor: str = H100,
    cpu: str | None = None,
    memory: str | None = None,
    taint: str | None = None,
    cordoned: bool = False,
    ready: bool = True,
    failed: bool = False,
    labels: dict[str, str] | None = None,
) -> Node:
    taints = [{"key": taint, "effect": "NoSchedule"}] if taint else []
    if failed:
        taints.append({"key": OUT_OF_SERVICE, "effect": "NoExecute"})
    capacity = {"nvidia.com/gpu": str(gpus), "cpu": cpu, "memory": memory}
    document = {
        "metadata": {
            "name": name,
            "labels": {
                "region": "us",
                "cluster": "a",
                "fabric.domain": domain,
                "gpu.flavor": flavor,
                **(labels or {}),
            },
        },
        "spec": {"taints": taints, "unschedulable": cordoned},
        "status": {
            "capacity": {key: value for key, value in capacity.items() if value is not None},
            "conditions": [{"type": "Ready", "status": str(ready)}],
        },
    }
    return read_node(document, "test")


def nodes(domain: str, count: int, gpus: int = 8, **fields: Any) -> list[Node]:  # noqa: ANN401  node's own fields
    """That many nodes of one domain, named after it: ``nv-a-00``, ``nv-a-01``, …."""
    return [node(f"{domain}-{number:02d}", domain, gpus, **fields) for number in range(count)]


def envelope(gpus: int, name: str = "main", *, flavor: str = H100, **fields: object) -> dict[str, object]:
    """An envelope as it is written. ``start`` and ``end`` may be milliseconds since T0."""
    for window in ("start", "end"):
        offset = fields.get(window)
        if isinstance(offset, int):
            fields[window] = format_time(T0 + offset)
    return {"name": name, "flavor": flavor, "concurrency": gpus, **fields}


def cap(name: str, *envelopes: str, **limits: object) -> dict[str, object]:
    return {"name": name, "envelopes": list(envelopes), **limits}


def budget(
    owner: str,
    *envelopes: int | dict[str, object],
    name: str | None = None,
    parents: list[str] | None = None,
    caps: list[dict[str, object]] | None = None,
) -> Budget:
    """A budget named after its owner; a plain number stands for one envelope ``main`` of so many GPUs."""
    spec: dict[str, object] = {
        "owner": owner,
        "envelopes": [envelope(one) if isinstance(one, int) else one for one in envelopes],
    }
    if parents is not None:
        spec["parents"] = parents
    if caps:
        spec["aggregateCaps"] = caps
    metadata = {"name": name or owner.replace(":", "-")}
    document = {"apiVersion": API_VERSION, "kind": "Budget", "metadata": metadata, "spec": spec}
    found = parse_object(document, "test")
    assert isinstance(found, Budget)
    return found


def run(
    name: str,
    owner: str,
    gpus: int,
    *,
    at: int = 0,
    flavor: str = H100,
    per_pod: int | None = None,
    group: int | None = None,
    spread: bool = True,
    spares: int = 0,
    malleable: tuple[int, int, int] | None = None,
    checkpoint: str | None = None,
    max_duration: str | None = None,
    on_notice: str = "Ignore",
    sponsors: list[str] | None = None,
    max_borrow: int | None = None,
    opportunistic: bool = False,
    rendezvous: bool = False,
    max_restarts: int = 3,
    requeue: bool = True,
    after: list[str] | None = None,
    template: dict[str, object] | None = None,
) -> Run:
    """A Run created ``at`` milliseconds after T0. Naming ``sponsors`` allows it to borrow."""
    least, most, step = malleable or (0, 0, 0)
    spec = {
        "owner": owner,
        "resources": {"gpuType": flavor, "totalGPUs": gpus, "gpusPerPod": per_pod},
        "locality": {"groupGPUs": group, "allowCrossGroupSpread": spread},
        "runtime": {
            "checkpoint": checkpoint,
            "maxDuration": max_duration,
            "onNotice": on_notice,
            "onResize": "Rendezvous" if rendezvous else "Restart",
            "maxRestarts": max_restarts,
            "requeue": requeue,
        },
        "follow": {"after": after} if after else None,
        "spares": spares,
        "malleable": {"minTotalGPUs": least, "maxTotalGPUs": most, "stepGPUs": step} if malleable else None,
        "funding": {
            "allowBorrow": sponsors is not None,
            "sponsors": sponsors or [],
            "maxBorrowGPUs": max_borrow,
            "allowOpportunistic": opportunistic,
        },
        "template": template,
    }
    return parsed_run(name, spec, at)


def tree(
    name: str, owner: str, stages: list[dict[str, Any]], *, quota: dict[str, int] | None = None, at: int = 0
) -> Run:
    """A job tree with these stages, as a manifest has them."""
    return parsed_run(name, {"owner": owner, "stages": stages, "quota": quota}, at)


def parsed_run(name: str, spec: dict[str, Any], at: int) -> Run:
    metadata = {
        "name": name,
        "namespace": NAMESPACE,
        "uid": f"{name}-uid",
        "creationTimestamp": format_time(T0 + at),
    }
    document = {"apiVersion": API_VERSION, "kind": "Run", "metadata": metadata, "spec": spec}
    found = parse_object(document, "test")
    assert isinstance(found, Run)
    return found


def template(
    *, cpu: str = "0", memory: str = "0", tolerates: str | None = None, selector: dict[str, str] | None = None
) -> dict[str, object]:
    """A pod template that asks for so much beside its GPUs."""
    container = {"name": "main", "image": "train", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    tolerations = [{"key": tolerates, "operator": "Exists"}] if tolerates else []
    return {"spec": {"containers": [container], "tolerations": tolerations, "nodeSelector": selector or {}}}


def foreign_pod(on: str, gpus: int = 0, *, name: str = "other", cpu: str = "0", memory: str = "0") -> Pod:
    """A pod that is not Jobtree's."""
    requests = {"nvidia.com/gpu": str(gpus), "cpu": cpu, "memory": memory}
    document = {
        "metadata": {"name": name, "namespace": "kube-system", "uid": f"{name}-{on}"},
        "spec": {"nodeName": on, "containers": [{"resources": {"requests": requests}}]},
        "status": {"phase": "Running"},
    }
    return read_pod(document, "test")
