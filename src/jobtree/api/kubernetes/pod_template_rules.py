"""Checks the rules of a pod template, which is a PodTemplateSpec.

Jobtree gives a pod its node and its GPUs, so a template may not request them. A pod must be gone when its
grace period is over: a finalizer or a longer grace period would delay the next Run on its slots (F6).
"""

from collections.abc import Iterator
from typing import Any

from jobtree.api.kubernetes.pod import template_requests
from jobtree.api.schema.gpu_resources import GPU_CLAIMS, GPU_RESOURCES
from jobtree.api.schema.problems import ABSENT, InputError, Problem
from jobtree.api.schema.quantities import SECOND, format_duration

DEFAULT_GRACE_SECONDS = 30


def template_problems(path: str, template: dict[str, Any]) -> Iterator[Problem]:
    """Yields the rules that a template breaks under any policy."""
    try:
        template_requests(template)
    except InputError as error:
        for problem in error.problems:
            yield _below(path, problem)
        return
    metadata, spec = _mapping(template, "metadata"), _mapping(template, "spec")
    if template.get("metadata") is not None and template["metadata"] is not metadata:
        yield Problem(f"{path}.metadata", template["metadata"], "must be a mapping")
    if metadata.get("finalizers"):
        yield Problem(f"{path}.metadata.finalizers", metadata["finalizers"], "pods may not have finalizers")
    if spec.get("nodeName"):
        yield Problem(f"{path}.spec.nodeName", spec["nodeName"], "Jobtree chooses the node")
    if not spec.get("containers"):
        yield Problem(f"{path}.spec.containers", ABSENT, "must name at least one container")
    for kind in ("initContainers", "containers"):
        for position, container in enumerate(spec.get(kind) or ()):
            yield from _gpu_problems(f"{path}.spec.{kind}[{position}].resources", container)


def grace_problems(path: str, template: dict[str, Any], max_grace_ms: int) -> Iterator[Problem]:
    """Yields the rules that a template breaks under this policy (F6)."""
    field = f"{path}.spec.terminationGracePeriodSeconds"
    seconds = _mapping(template, "spec").get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS)
    if not isinstance(seconds, int) or isinstance(seconds, bool) or seconds < 0:
        yield Problem(field, seconds, "must be a whole number of seconds")
    elif seconds * SECOND > max_grace_ms:
        limit = format_duration(max_grace_ms)
        yield Problem(field, seconds, f"must be at most the policy's maxGrace ({limit})")


def _gpu_problems(path: str, container: dict[str, Any]) -> Iterator[Problem]:
    resources = _mapping(container, "resources")
    for kind in ("requests", "limits"):
        for name in (*GPU_RESOURCES, *GPU_CLAIMS):
            amount = _mapping(resources, kind).get(name)
            if amount is not None:
                yield Problem(f"{path}.{kind}[{name!r}]", amount, "Jobtree gives a pod its GPUs (gpusPerPod)")


def _below(path: str, problem: Problem | str) -> Problem:
    if isinstance(problem, str):
        return Problem(path, ABSENT, problem)
    return problem._replace(field=f"{path}.{problem.field}" if problem.field else path)


def _mapping(parent: dict[str, Any], key: str) -> dict[str, Any]:
    value = parent.get(key)
    return value if isinstance(value, dict) else {}
