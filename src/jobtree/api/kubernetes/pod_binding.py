"""Chooses who binds the pods of a template to their nodes: Jobtree, or kube-scheduler (N1).

Jobtree chooses the node of each pod in either case. A pod that it binds itself starts sooner, but skips the
plugins of the scheduler: nobody binds volumes, allocates claims or counts what Jobtree does not count. So
the scheduler binds pods that need one of these, and may choose only the node that Jobtree has chosen.
"""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from jobtree.api.schema.gpu_resources import GPU_RESOURCES

Binding = Literal["Auto", "Scheduler", "Direct"]

COUNTED_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage", *GPU_RESOURCES})
DEFAULT_SCHEDULER = "default-scheduler"
SCHEDULED_VOLUMES = ("persistentVolumeClaim", "ephemeral")  # they may be bound to a place, or not yet
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class BindingChoice(NamedTuple):
    """Whether the scheduler binds the pods, and what in them needs it; under some policies it does not."""

    by_scheduler: bool
    needs: tuple[str, ...] = ()


def choose_binding(binding: Binding, template: dict[str, Any]) -> BindingChoice:
    """Returns who binds the pods of a PodTemplateSpec under this policy, and why."""
    needs = tuple(dict.fromkeys(scheduler_needs(_mapping(template.get("spec")))))
    return BindingChoice(binding == "Scheduler" or (binding == "Auto" and bool(needs)), needs)


def scheduler_needs(spec: dict[str, Any]) -> Iterator[str]:
    """Yields what in a pod spec only a scheduler can see to."""
    if spec.get("schedulerName") not in (None, "", DEFAULT_SCHEDULER):
        yield f"schedulerName {spec['schedulerName']}"
    if spec.get("resourceClaims"):
        yield "resourceClaims"
    for volume in _mappings(spec.get("volumes")):
        if any(kind in volume for kind in SCHEDULED_VOLUMES):
            yield f"volume {volume.get('name', '')}"
    yield from _rules(spec)
    for container in (*_mappings(spec.get("initContainers")), *_mappings(spec.get("containers"))):
        yield from _container_needs(container, on_host=bool(spec.get("hostNetwork")))
    yield from _resources(spec.get("overhead"))


def _rules(spec: dict[str, Any]) -> Iterator[str]:
    """Yields required affinity and spread. What is only preferred does not matter: the node is chosen."""
    for kind, rules in _mapping(spec.get("affinity")).items():
        if _mapping(rules).get(REQUIRED):
            yield kind
    for rule in _mappings(spec.get("topologySpreadConstraints")):
        if rule.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule":
            yield "topologySpreadConstraints"


def _container_needs(container: dict[str, Any], *, on_host: bool) -> Iterator[str]:
    for port in _mappings(container.get("ports")):
        number = port.get("hostPort") or (port.get("containerPort") if on_host else None)
        if number:
            yield f"hostPort {number}"
    resources = _mapping(container.get("resources"))
    for kind in ("requests", "limits"):
        yield from _resources(resources.get(kind))


def _resources(amounts: object) -> Iterator[str]:
    for name in _mapping(amounts):
        if name not in COUNTED_RESOURCES and not name.startswith("hugepages-"):
            yield f"resource {name}"


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _mappings(value: object) -> Iterator[dict[str, Any]]:
    """Yields the mappings in a list; a template that is no PodTemplateSpec has others."""
    for item in value if isinstance(value, list | tuple) else ():
        if isinstance(item, dict):
            yield item
