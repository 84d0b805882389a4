"""From an object's bytes to the part of it that Jobtree keeps.

The four kinds become their structs, a Node what ``api.nodes`` reads of it, a Pod what ``api.pods`` reads of
it and how it fares. Bytes of other fields are passed over, never built: a fleet's pods fit into memory.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec.structs import fields

from jobtree.api.documents.struct_decoder import decode_struct
from jobtree.api.kinds.budget import Budget
from jobtree.api.kinds.lease import Lease
from jobtree.api.kinds.reservation import Reservation
from jobtree.api.kinds.run import Run
from jobtree.api.kubernetes.node import Node, NodeMetadata, RawNode, node_of
from jobtree.api.kubernetes.pod import Pod, PodMetadata, PodStatus, RawPod, pod_of
from jobtree.api.schema.object_meta import GROUP, ObjectMeta
from jobtree.api.validation.object_parser import Object, parse_object
from jobtree.api.validation.object_rules import problems
from jobtree.kube.http.api_resources import BUDGETS, LEASES, RESERVATIONS, RUNS, Resource
from jobtree.kube.watch.object_store import Change, Encoded, StoredObject

T = TypeVar("T", bound=Object)

# Why a container may wait for ever: its image or its configuration is not there. Others pass by themselves.
STUCK = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
    }
)
RISK = f"{GROUP}/risk"  # annotation: what a job reads in /etc/jobtree/risk

_decode_document = msgspec.json.Decoder(dict[str, Any]).decode


def _reader(resource: Resource, kind: type[T]) -> Callable[[Encoded], StoredObject[T]]:
    """Straight from bytes to the struct; what does not fit is read again, slowly, to say what is wrong."""
    typed = {"apiVersion": resource.api_version, "kind": resource.kind}
    body = msgspec.defstruct(resource.kind, [(one.name, one.type, one.default) for one in fields(kind)])
    decode = msgspec.json.Decoder(body).decode

    def read(encoded: Encoded) -> StoredObject[T]:
        try:
            raw: Any = decode(encoded)
            parsed: Object = kind(metadata=raw.metadata, spec=raw.spec, status=raw.status)
            fits = not problems(parsed)
        except (msgspec.ValidationError, RecursionError):
            fits = False
        if not fits:
            parsed = parse_object(_decode_document(encoded) | typed, "the cluster")
        assert isinstance(parsed, kind)
        metadata = parsed.metadata
        return StoredObject(
            metadata.uid, metadata.name, metadata.namespace, metadata.resource_version, parsed
        )

    return read


class _Stamped(msgspec.Struct):
    metadata: ObjectMeta


_decode_stamp = msgspec.json.Decoder(_Stamped).decode


def restamp(known: T, encoded: Encoded) -> T:
    """An object as it was last read, with the metadata that it has now."""
    return msgspec.structs.replace(known, metadata=_decode_stamp(encoded).metadata)


read_budget: Callable[[Encoded], StoredObject[Budget]] = _reader(BUDGETS, Budget)
read_run: Callable[[Encoded], StoredObject[Run]] = _reader(RUNS, Run)
read_reservation: Callable[[Encoded], StoredObject[Reservation]] = _reader(RESERVATIONS, Reservation)
read_lease: Callable[[Encoded], StoredObject[Lease]] = _reader(LEASES, Lease)


class LiveNode(msgspec.Struct, frozen=True, gc=False):
    node: Node
    annotations: dict[str, str]


class LivePod(msgspec.Struct, frozen=True, gc=False):
    """``deleted``: when it was asked to go; ``stuck``: why a container does not start, if that may last."""

    pod: Pod
    labels: dict[str, str]
    phase: str
    reason: str
    deleted: str | None
    risk: str
    stuck: str = ""

    @property
    def run_uid(self) -> str:
        """The Run that controls it, as it says; empty: none."""
        return self.pod.run_uid


def goes_well(change: Change[LivePod]) -> bool:
    """Whether a Run's own pod has come, or does what it should: nothing has to be done about it."""
    before, after = change
    if after is None or (before is not None and before.value.pod.node != after.value.pod.node):
        return False
    live = after.value
    return bool(live.run_uid) and not (live.pod.finished or live.deleted or live.stuck)


class _NodeMetadata(NodeMetadata, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class _Node(RawNode):
    metadata: _NodeMetadata


class _PodMetadata(PodMetadata, rename="camel"):
    resource_version: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    deletion_timestamp: str | None = None


class _Waiting(msgspec.Struct):
    reason: str = ""
    message: str = ""


class _State(msgspec.Struct):
    waiting: _Waiting | None = None


class _ContainerStatus(msgspec.Struct):
    state: _State = msgspec.field(default_factory=_State)


class _PodStatus(PodStatus, rename="camel"):
    reason: str = ""
    init_container_statuses: tuple[_ContainerStatus, ...] = ()
    container_statuses: tuple[_ContainerStatus, ...] = ()

    @property
    def stuck(self) -> str:
        for one in (*self.init_container_statuses, *self.container_statuses):
            if one.state.waiting is not None and one.state.waiting.reason in STUCK:
                return f"{one.state.waiting.reason}: {one.state.waiting.message}"
        return ""


class _Pod(RawPod):
    metadata: _PodMetadata
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


_decode_node = msgspec.json.Decoder(_Node).decode
_decode_pod = msgspec.json.Decoder(_Pod).decode


def read_live_node(encoded: Encoded) -> StoredObject[LiveNode]:
    try:
        raw = _decode_node(encoded)
    except msgspec.ValidationError:  # say all that is wrong, or pass over nulls
        raw = decode_struct(_decode_document(encoded), _Node, "the cluster")
    node, metadata = node_of(raw, "the cluster"), raw.metadata
    return StoredObject(
        node.uid, node.name, "", metadata.resource_version, LiveNode(node, metadata.annotations)
    )


def read_live_pod(encoded: Encoded) -> StoredObject[LivePod]:
    try:
        raw = _decode_pod(encoded)
    except msgspec.ValidationError:
        raw = decode_struct(_decode_document(encoded), _Pod, "the cluster")
    pod, metadata, status = pod_of(raw, "the cluster"), raw.metadata, raw.status
    live = LivePod(
        pod,
        metadata.labels,
        status.phase,
        status.reason,
        metadata.deletion_timestamp,
        metadata.annotations.get(RISK, ""),
        status.stuck if pod.run_uid else "",
    )
    return StoredObject(pod.uid, pod.name, pod.namespace, metadata.resource_version, live)
