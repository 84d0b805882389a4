"""Reads the fields of a Node that Jobtree needs: its GPUs, its domain, and whether pods may be placed there.

A hand-written Node may omit fields: without conditions it is ready, and absent CPU or memory is unlimited.
"""

from typing import Any, Literal, NamedTuple

import msgspec

from jobtree.api.documents.struct_decoder import decode_struct
from jobtree.api.kubernetes.node_resources import Resources, other_resources
from jobtree.api.kubernetes.resource_quantities import EXAMPLES, Quantity, milli, whole
from jobtree.api.schema.gpu_resources import GPU_RESOURCES
from jobtree.api.schema.object_meta import GROUP
from jobtree.api.schema.problems import InputError, Problem
from jobtree.api.schema.quantities import parse_time
from jobtree.api.schema.scalars import Name, Time

FLAVOR_LABEL = "gpu.flavor"
DOMAIN_LABELS = ("region", "cluster", "fabric.domain")
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
CORDONED = f"{GROUP}/cordoned"  # annotation: why Jobtree cordoned the node; absent if Jobtree did not
DEFAULT_MAX_PODS = 110


class DomainName(NamedTuple):
    """The name of a domain, written ``us-west/gpu-a/nv-a``, with ``-`` for an absent label."""

    region: str
    cluster: str
    fabric: str

    def __str__(self) -> str:
        return "/".join(part or "-" for part in self)


class Taint(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A Node. ``cpu_milli`` and ``memory_bytes`` are None if absent; ``failed`` is the taint of F2."""

    name: str
    uid: str
    labels: dict[str, str]
    flavor: str
    domain: DomainName
    gpus: int
    gpu_resource: str
    cpu_milli: int | None
    memory_bytes: int | None
    max_pods: int
    taints: tuple[Taint, ...]
    cordoned: bool
    ready: bool
    not_ready_since_ms: int | None
    failed: bool
    ready_since_ms: int | None = None
    others: Resources = ()  # besides CPU, memory and GPUs


class NodeMetadata(msgspec.Struct):
    name: Name
    uid: str = ""
    labels: dict[str, str] = {}


class _Spec(msgspec.Struct):
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


class _Condition(msgspec.Struct, rename="camel"):
    type: str
    status: str
    last_transition_time: Time | None = None


class _NodeStatus(msgspec.Struct):
    allocatable: dict[str, Quantity] = {}
    capacity: dict[str, Quantity] = {}
    conditions: tuple[_Condition, ...] = ()


class RawNode(msgspec.Struct):
    """The fields that ``node_of`` needs."""

    metadata: NodeMetadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _NodeStatus = msgspec.field(default_factory=_NodeStatus)


def read_node(document: dict[str, Any], where: str) -> Node:
    """Returns the Node in a core/v1 document. Raises InputError."""
    return node_of(decode_struct(document, RawNode, where), where)


def node_of(raw: RawNode, where: str) -> Node:
    """Converts a decoded Node. Raises InputError for an invalid quantity."""
    labels, resources = raw.metadata.labels, _resources(raw, where)
    gpu_resource = next((name for name in GPU_RESOURCES if resources.get(name)), GPU_RESOURCES[0])
    ready = next((condition for condition in raw.status.conditions if condition.type == "Ready"), None)
    is_ready = ready is None or ready.status == "True"
    transition = ready.last_transition_time if ready else None
    since = parse_time(transition) if transition else None
    return Node(
        name=raw.metadata.name,
        uid=raw.metadata.uid,
        labels=labels,
        flavor=labels.get(FLAVOR_LABEL, ""),
        domain=DomainName(*(labels.get(label, "") for label in DOMAIN_LABELS)),
        gpus=resources.get(gpu_resource, 0),
        gpu_resource=gpu_resource,
        cpu_milli=resources.get("cpu"),
        memory_bytes=resources.get("memory"),
        max_pods=resources.get("pods", DEFAULT_MAX_PODS),
        taints=raw.spec.taints,
        cordoned=raw.spec.unschedulable,
        ready=is_ready,
        not_ready_since_ms=None if is_ready else since,
        ready_since_ms=since if is_ready else None,
        failed=any(taint.key == OUT_OF_SERVICE for taint in raw.spec.taints),
        others=_others(raw, where),
    )


def _others(raw: RawNode, where: str) -> Resources:
    quantities = raw.status.allocatable or raw.status.capacity
    try:
        return other_resources(quantities)
    except ValueError as error:
        raise InputError(where, [Problem("status.allocatable", quantities, str(error))]) from None


def _resources(raw: RawNode, where: str) -> dict[str, int]:
    """Returns what is allocatable, else the capacity: CPU in thousandths, everything else in units."""
    field = "allocatable" if raw.status.allocatable else "capacity"
    quantities = raw.status.allocatable or raw.status.capacity
    resources: dict[str, int] = {}
    for name in ("cpu", "memory", "pods", *GPU_RESOURCES):
        if name in quantities:
            try:
                resources[name] = (milli if name == "cpu" else whole)(quantities[name])
            except ValueError:
                problem = Problem(f"status.{field}[{name!r}]", quantities[name], f"must be {EXAMPLES}")
                raise InputError(where, [problem]) from None
    return resources
