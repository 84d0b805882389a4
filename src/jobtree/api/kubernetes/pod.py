"""What Jobtree reads of a Pod and of a template: what it asks for, what it tolerates, whose it is.

A pod says which Run controls it; whether that is true is for those to find out who know the Runs: the UID
must be that of a Run of its own namespace. Labels and annotations, which anybody can write, say nothing.
"""

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import msgspec

from jobtree.api.documents.struct_decoder import decode_struct
from jobtree.api.kubernetes.node import Taint
from jobtree.api.kubernetes.resource_quantities import Quantity, milli, whole
from jobtree.api.schema.gpu_resources import GPU_RESOURCES
from jobtree.api.schema.object_meta import GROUP, OwnerReference
from jobtree.api.schema.problems import InputError, Problem
from jobtree.api.schema.scalars import Name


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    namespace: str
    name: str
    uid: str
    node: str
    gpus: int
    cpu_milli: int
    memory_bytes: int
    run_uid: str  # of the Run that controls it, as it says; empty: none
    finished: bool


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
    """What one pod needs of its node, apart from GPUs that Jobtree gives it."""

    cpu_milli: int
    memory_bytes: int
    gpus: int
    tolerations: tuple[Toleration, ...]
    node_selector: dict[str, str]


class _Amounts(NamedTuple):
    cpu_milli: int = 0
    memory_bytes: int = 0
    gpus: int = 0

    def plus(self, other: "_Amounts") -> "_Amounts":
        return _Amounts(
            self.cpu_milli + other.cpu_milli, self.memory_bytes + other.memory_bytes, self.gpus + other.gpus
        )

    def at_least(self, other: "_Amounts") -> "_Amounts":
        return _Amounts(*map(max, self, other))


class _Resources(msgspec.Struct):
    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}


class _Container(msgspec.Struct, rename="camel"):
    name: str = ""
    resources: _Resources = msgspec.field(default_factory=_Resources)
    restart_policy: str = ""


class _PodSpec(msgspec.Struct, rename="camel"):
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] = ()
    overhead: dict[str, Quantity] = {}
    node_name: str = ""
    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()


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
    """The Pod of a raw core/v1 document. Raises InputError."""
    return pod_of(decode_struct(document, RawPod, where), where)


def pod_of(raw: RawPod, where: str) -> Pod:
    """The same, of a document that has its shape. Raises InputError for quantities that are none."""
    amounts = _total(raw.spec, where, "spec")
    return Pod(
        namespace=raw.metadata.namespace,
        name=raw.metadata.name,
        uid=raw.metadata.uid,
        node=raw.spec.node_name,
        gpus=amounts.gpus,
        cpu_milli=amounts.cpu_milli,
        memory_bytes=amounts.memory_bytes,
        run_uid=next((owner.uid for owner in raw.metadata.owner_references if _is_run(owner)), ""),
        finished=raw.status.phase in ("Succeeded", "Failed"),
    )


def template_requests(template: dict[str, Any], where: str = "template") -> Requests:
    """What a pod of this PodTemplateSpec needs of its node. Raises InputError."""
    spec = decode_struct(template, _RawTemplate, where).spec
    return Requests(*_total(spec, where, "spec"), spec.tolerations, spec.node_selector)


def tolerates(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> bool:
    """Whether a GPU pod may run there. Taints that only say "this node has GPUs" do not keep it out."""
    given = tuple(tolerations)
    return all(
        taint.effect == "PreferNoSchedule"
        or (taint.effect == "NoSchedule" and taint.key in GPU_RESOURCES)
        or any(toleration.tolerates(taint) for toleration in given)
        for taint in taints
    )


def _is_run(owner: OwnerReference) -> bool:
    group = owner.api_version.partition("/")[0]
    return owner.controller and owner.kind == "Run" and group == GROUP


def _total(spec: _PodSpec, where: str, path: str) -> _Amounts:
    """Kubernetes' own sum: sidecars stay, other init containers come one at a time, before the rest."""
    sidecars, peak = _Amounts(), _Amounts()
    for position, container in enumerate(spec.init_containers):
        asked = _asked(container, where, f"{path}.initContainers[{position}]")
        if container.restart_policy == "Always":
            sidecars = sidecars.plus(asked)
            asked = _Amounts()
        peak = peak.at_least(sidecars.plus(asked))
    running = sidecars
    for position, container in enumerate(spec.containers):
        running = running.plus(_asked(container, where, f"{path}.containers[{position}]"))
    return running.at_least(peak).plus(_amounts(spec.overhead, where, f"{path}.overhead"))


def _asked(container: _Container, where: str, path: str) -> _Amounts:
    """A limit without a request is a request."""
    resources = container.resources
    return _amounts({**resources.limits, **resources.requests}, where, f"{path}.resources")


def _amounts(quantities: dict[str, Quantity], where: str, path: str) -> _Amounts:
    try:
        return _Amounts(
            cpu_milli=milli(quantities.get("cpu", 0)),
            memory_bytes=whole(quantities.get("memory", 0)),
            gpus=sum(whole(quantities.get(name, 0)) for name in GPU_RESOURCES),
        )
    except ValueError as broken:
        raise InputError(where, [Problem(path, quantities, str(broken))]) from None
