"""Reads the fields of a Pod or pod template that Jobtree needs: requests, tolerations, and the Run.

The owner references of a pod name the Run that controls it. The caller must check that a Run with this UID
exists in the namespace of the pod. Labels and annotations do not count, since any user can write them.
"""

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import msgspec

from jobtree.api.documents.struct_decoder import decode_struct
from jobtree.api.kubernetes.node import Taint
from jobtree.api.kubernetes.node_affinity import NAME_FIELD, NodeTerm
from jobtree.api.kubernetes.node_resources import Resources, added, host_port, larger, other_resources
from jobtree.api.kubernetes.resource_quantities import Quantity, milli, whole
from jobtree.api.schema.gpu_resources import GPU_RESOURCES
from jobtree.api.schema.object_meta import GROUP, OwnerReference
from jobtree.api.schema.problems import InputError, Problem
from jobtree.api.schema.scalars import Name


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    """A Pod. Until the scheduler binds a pod of a Run, ``node`` is the one that Jobtree has chosen for it."""

    namespace: str
    name: str
    uid: str
    node: str
    gpus: int
    cpu_milli: int
    memory_bytes: int
    run_uid: str  # of the Run that controls it, unchecked; empty: none
    others: Resources = ()
    finished: bool
    bound: bool = True  # its kubelet knows it


class Toleration(msgspec.Struct, frozen=True):
    key: str = ""
    operator: Literal["Equal", "Exists"] = "Equal"
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""

    def tolerates(self, taint: Taint) -> bool:
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        if self.operator == "Exists":
            return True
        return bool(self.key) and self.value == taint.value


class Requests(NamedTuple):
    """The requirements of one pod on its node, apart from GPUs that Jobtree gives it."""

    cpu_milli: int
    memory_bytes: int
    gpus: int
    tolerations: tuple[Toleration, ...]
    node_selector: dict[str, str]
    others: Resources = ()  # besides CPU, memory and GPUs
    node_affinity: tuple[NodeTerm, ...] = ()


class _Amounts(NamedTuple):
    cpu_milli: int = 0
    memory_bytes: int = 0
    gpus: int = 0
    others: Resources = ()

    def plus(self, other: "_Amounts") -> "_Amounts":
        return _Amounts(
            self.cpu_milli + other.cpu_milli,
            self.memory_bytes + other.memory_bytes,
            self.gpus + other.gpus,
            added(self.others, other.others),
        )

    def at_least(self, other: "_Amounts") -> "_Amounts":
        return _Amounts(
            max(self.cpu_milli, other.cpu_milli),
            max(self.memory_bytes, other.memory_bytes),
            max(self.gpus, other.gpus),
            larger(self.others, other.others),
        )


class _Resources(msgspec.Struct):
    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}


class _Port(msgspec.Struct, rename="camel"):
    container_port: int = 0
    host_port: int = 0
    protocol: str = ""


class _Container(msgspec.Struct, rename="camel"):
    name: str = ""
    resources: _Resources = msgspec.field(default_factory=_Resources)
    restart_policy: str = ""
    ports: tuple[_Port, ...] = ()


class _NodeTerms(msgspec.Struct, rename="camel"):
    node_selector_terms: tuple[NodeTerm, ...] = ()


class _NodeAffinity(msgspec.Struct, rename="camel"):
    required_during_scheduling_ignored_during_execution: _NodeTerms | None = None


class _Affinity(msgspec.Struct, rename="camel"):
    node_affinity: _NodeAffinity | None = None


class _PodSpec(msgspec.Struct, rename="camel"):
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] = ()
    overhead: dict[str, Quantity] = {}
    node_name: str = ""
    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    affinity: _Affinity | None = None
    host_network: bool = False

    @property
    def node_terms(self) -> tuple[NodeTerm, ...]:
        """The alternatives of its required node affinity; none: any node."""
        affinity = self.affinity.node_affinity if self.affinity is not None else None
        required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
        return required.node_selector_terms if required is not None else ()

    @property
    def only_node(self) -> str:
        """The node to which the scheduler may bind the pod; Jobtree adds it to each term as the last (N1)."""
        rules = self.node_terms[0].match_fields[-1:] if self.node_terms else ()
        named = [rule.values[0] for rule in rules if rule.key == NAME_FIELD and len(rule.values) == 1]
        return named[0] if named else ""


class PodMetadata(msgspec.Struct, rename="camel"):
    name: Name
    namespace: str = ""
    uid: str = ""
    owner_references: tuple[OwnerReference, ...] = ()


class PodStatus(msgspec.Struct):
    phase: str = ""


class RawPod(msgspec.Struct):
    """The fields that ``pod_of`` needs."""

    metadata: PodMetadata
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class _RawTemplate(msgspec.Struct):
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)


def read_pod(document: dict[str, Any], where: str) -> Pod:
    """Returns the Pod in a core/v1 document. Raises InputError."""
    return pod_of(decode_struct(document, RawPod, where), where)


def pod_of(raw: RawPod, where: str) -> Pod:
    """Converts a decoded Pod. Raises InputError for an invalid quantity."""
    amounts = _total(raw.spec, where, "spec")
    run_uid = next((owner.uid for owner in raw.metadata.owner_references if _is_run(owner)), "")
    return Pod(
        namespace=raw.metadata.namespace,
        name=raw.metadata.name,
        uid=raw.metadata.uid,
        node=raw.spec.node_name or (raw.spec.only_node if run_uid else ""),
        gpus=amounts.gpus,
        cpu_milli=amounts.cpu_milli,
        memory_bytes=amounts.memory_bytes,
        run_uid=run_uid,
        others=amounts.others,
        finished=raw.status.phase in ("Succeeded", "Failed"),
        bound=bool(raw.spec.node_name),
    )


def template_requests(template: dict[str, Any], where: str = "template") -> Requests:
    """Returns the requirements of a pod of this PodTemplateSpec on its node. Raises InputError."""
    spec = decode_struct(template, _RawTemplate, where).spec
    amounts = _total(spec, where, "spec")
    return Requests(
        cpu_milli=amounts.cpu_milli,
        memory_bytes=amounts.memory_bytes,
        gpus=amounts.gpus,
        tolerations=spec.tolerations,
        node_selector=spec.node_selector,
        others=amounts.others,
        node_affinity=spec.node_terms,
    )


def tolerates(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> bool:
    """Whether a GPU pod may run on a node with these taints. NoSchedule taints for GPUs are ignored."""
    all_tolerations = tuple(tolerations)
    return all(
        taint.effect == "PreferNoSchedule"
        or (taint.effect == "NoSchedule" and taint.key in GPU_RESOURCES)
        or any(toleration.tolerates(taint) for toleration in all_tolerations)
        for taint in taints
    )


def _is_run(owner: OwnerReference) -> bool:
    group = owner.api_version.partition("/")[0]
    return owner.controller and owner.kind == "Run" and group == GROUP


def _total(spec: _PodSpec, where: str, path: str) -> _Amounts:
    """Adds up requests as Kubernetes does: init containers run one at a time before the others.

    Sidecars, which are init containers that stay, run beside all containers after them.
    """
    sidecars, peak, on_host = _Amounts(), _Amounts(), spec.host_network
    for position, container in enumerate(spec.init_containers):
        requests = _requests(container, where, f"{path}.initContainers[{position}]", on_host=on_host)
        if container.restart_policy == "Always":
            sidecars = sidecars.plus(requests)
            requests = _Amounts()
        peak = peak.at_least(sidecars.plus(requests))
    running = sidecars
    for position, container in enumerate(spec.containers):
        running = running.plus(_requests(container, where, f"{path}.containers[{position}]", on_host=on_host))
    return running.at_least(peak).plus(_amounts(spec.overhead, where, f"{path}.overhead"))


def _requests(container: _Container, where: str, path: str, *, on_host: bool) -> _Amounts:
    """Returns the requests of a container. A limit without a request counts as a request."""
    resources = container.resources
    amounts = _amounts({**resources.limits, **resources.requests}, where, f"{path}.resources")
    ports = {
        host_port(number, port.protocol)
        for port in container.ports
        if (number := port.host_port or (port.container_port if on_host else 0))
    }
    return amounts.plus(_Amounts(others=tuple((name, 1) for name in sorted(ports))))


def _amounts(quantities: dict[str, Quantity], where: str, path: str) -> _Amounts:
    try:
        return _Amounts(
            cpu_milli=milli(quantities.get("cpu", 0)),
            memory_bytes=whole(quantities.get("memory", 0)),
            gpus=sum(whole(quantities.get(name, 0)) for name in GPU_RESOURCES),
            others=other_resources(quantities),
        )
    except ValueError as error:
        raise InputError(where, [Problem(path, quantities, str(error))]) from None
