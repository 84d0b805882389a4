"""Decodes the part of an object that Jobtree keeps.

The four kinds become their structs, a Node a ``LiveNode`` and a Pod a ``LivePod``. Other fields are skipped
without being built, so that the pods of a fleet fit into memory.
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
from jobtree.api.schema.packed_template import pack
from jobtree.api.validation.object_parser import Object, parse_object
from jobtree.api.validation.object_rules import problems
from jobtree.kube.http.api_resources import BUDGETS, LEASES, RESERVATIONS, RUNS, Resource
from jobtree.kube.installation import UID_LABEL
from jobtree.kube.watch.object_store import Change, Encoded, StoredObject

T = TypeVar("T", bound=Object)

# Reasons for which a container may wait for ever: its image or its configuration is missing.
STUCK_REASONS = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
    }
)
RISK = f"{GROUP}/risk"  # annotation: the contents of /etc/jobtree/risk in the pod

_decode_document = msgspec.json.Decoder(dict[str, Any]).decode


def _reader(resource: Resource, kind: type[T]) -> Callable[[Encoded], StoredObject[T]]:
    """Returns a fast decoder of this kind. A document that does not fit is decoded again to say why."""
    typed = {"apiVersion": resource.api_version, "kind": resource.kind}
    defaults = [(field.name, field.type, field.default) for field in fields(kind)]
    decode = msgspec.json.Decoder(msgspec.defstruct(resource.kind, defaults), dec_hook=pack).decode

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


def restamp(stored: T, encoded: Encoded) -> T:
    """Returns the object as it was last decoded, with the metadata that it has now."""
    return msgspec.structs.replace(stored, metadata=_decode_stamp(encoded).metadata)


read_budget: Callable[[Encoded], StoredObject[Budget]] = _reader(BUDGETS, Budget)
read_run: Callable[[Encoded], StoredObject[Run]] = _reader(RUNS, Run)
read_reservation: Callable[[Encoded], StoredObject[Reservation]] = _reader(RESERVATIONS, Reservation)
read_lease: Callable[[Encoded], StoredObject[Lease]] = _reader(LEASES, Lease)


class LiveNode(msgspec.Struct, frozen=True, gc=False):
    node: Node
    annotations: dict[str, str]


class LivePod(msgspec.Struct, frozen=True, gc=False):
    """A pod with what its Run needs to know.

    ``deleted`` is the deletionTimestamp. ``stuck`` says why a container may wait for ever. ``rejected`` says
    why a kubelet refused the pod before anything ran. ``unscheduled`` says why the scheduler finds no node.
    ``waits_since`` is since when the pod waits for a scheduler, or for its volumes and network.
    """

    pod: Pod
    labels: dict[str, str]
    phase: str
    reason: str
    deleted: str | None
    risk: str
    stuck: str = ""
    rejected: str = ""
    unscheduled: str = ""
    waits_since: str = ""
    disrupted: bool = False  # somebody else ends it: a taint, a drain, the scheduler

    @property
    def refused(self) -> str:
        """Why it does not run, in the words of the component that refuses it; empty: none."""
        return self.rejected or self.stuck or self.unscheduled

    @property
    def run_uid(self) -> str:
        """The UID of the Run that controls it, as its owner references say; empty: none."""
        return self.pod.run_uid


def needs_no_action(change: Change[LivePod]) -> bool:
    """Whether a pod of a Run was created or is running as intended, so that there is nothing to do."""
    before, after = change
    if after is None or (before is not None and is_moved_or_refused(before.value, after.value)):
        return False
    pod = after.value
    return bool(pod.run_uid) and not (pod.pod.finished or pod.deleted or pod.refused)


def is_moved_or_refused(before: LivePod, after: LivePod) -> bool:
    """Whether a pod is on another node now, or was refused before."""
    return before.pod.node != after.pod.node or bool(before.refused)


class _NodeMetadata(NodeMetadata, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class _Node(RawNode):
    metadata: _NodeMetadata


class _PodMetadata(PodMetadata, rename="camel"):
    resource_version: str = ""
    creation_timestamp: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    deletion_timestamp: str | None = None


class _Waiting(msgspec.Struct):
    reason: str = ""
    message: str = ""


class _State(msgspec.Struct):
    waiting: _Waiting | None = None
    running: dict[str, Any] | None = None
    terminated: dict[str, Any] | None = None


class _ContainerStatus(msgspec.Struct):
    state: _State = msgspec.field(default_factory=_State)


class _PodCondition(msgspec.Struct, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class _PodStatus(PodStatus, rename="camel"):
    reason: str = ""
    message: str = ""
    conditions: tuple[_PodCondition, ...] = ()
    init_container_statuses: tuple[_ContainerStatus, ...] = ()
    container_statuses: tuple[_ContainerStatus, ...] = ()

    @property
    def containers(self) -> tuple[_ContainerStatus, ...]:
        return (*self.init_container_statuses, *self.container_statuses)

    @property
    def rejected(self) -> str:
        """Why a kubelet refused the pod: it is Failed for a reason of the node, and no container has run."""
        has_run = any(container.state.running or container.state.terminated for container in self.containers)
        if self.phase != "Failed" or not self.reason or has_run:
            return ""
        return f"{self.reason}: {self.message}" if self.message else self.reason

    @property
    def unscheduled(self) -> str:
        condition = self._condition("PodScheduled")
        if condition is None or condition.status != "False" or condition.reason == "SchedulingGated":
            return ""
        return f"{condition.reason}: {condition.message}"

    def waits_since(self, created: str, node: str) -> str:
        """Since when the pod waits for a scheduler, or for its volumes and network; empty: it does not."""
        if self.phase not in ("", "Pending"):
            return ""
        if not node:
            return created
        condition = self._condition("PodReadyToStartContainers")
        if condition is None or condition.status != "False":
            return ""
        return condition.last_transition_time or created

    @property
    def disrupted(self) -> bool:
        condition = self._condition("DisruptionTarget")
        return condition is not None and condition.status == "True"

    def _condition(self, kind: str) -> _PodCondition | None:
        return next((condition for condition in self.conditions if condition.type == kind), None)

    @property
    def stuck(self) -> str:
        for container in self.containers:
            waiting = container.state.waiting
            if waiting is not None and waiting.reason in STUCK_REASONS:
                return f"{waiting.reason}: {waiting.message}"
        return ""


class _Pod(RawPod):
    metadata: _PodMetadata
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


_decode_node = msgspec.json.Decoder(_Node).decode
_decode_pod = msgspec.json.Decoder(_Pod).decode


def read_live_node(encoded: Encoded) -> StoredObject[LiveNode]:
    try:
        raw = _decode_node(encoded)
    except msgspec.ValidationError:  # report every problem, or skip nulls
        raw = decode_struct(_decode_document(encoded), _Node, "the cluster")
    node, metadata = node_of(raw, "the cluster"), raw.metadata
    return StoredObject(
        node.uid, node.name, "", metadata.resource_version, LiveNode(node, metadata.annotations)
    )


class _Labelled(msgspec.Struct, rename="camel"):
    uid: str
    name: str
    namespace: str
    resource_version: str
    labels: dict[str, str] = {}


class _Service(msgspec.Struct):
    metadata: _Labelled


_decode_service = msgspec.json.Decoder(_Service).decode


def read_service(encoded: Encoded) -> StoredObject[str]:
    """Reads which Run a Service is of: its UID, as a label says."""
    metadata = _decode_service(encoded).metadata
    run_uid = metadata.labels.get(UID_LABEL, "")
    return StoredObject(metadata.uid, metadata.name, metadata.namespace, metadata.resource_version, run_uid)


def refusal_of(raw: _Pod) -> tuple[str, str, str, str, bool]:
    """Returns why the pod of a Run does not run: the last fields of a ``LivePod``."""
    status = raw.status
    waits_since = status.waits_since(raw.metadata.creation_timestamp, raw.spec.node_name)
    return status.stuck, status.rejected, status.unscheduled, waits_since, status.disrupted


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
        *(refusal_of(raw) if pod.run_uid else ()),
    )
    return StoredObject(pod.uid, pod.name, pod.namespace, metadata.resource_version, live)
