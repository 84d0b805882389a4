"""Converts pod templates of Kueue's jobs: removes the fields that Jobtree sets itself."""

import copy
from typing import Any, Final

from jobtree.api.kubernetes.pod import template_requests
from jobtree.api.kubernetes.pod_template_rules import DEFAULT_GRACE_SECONDS
from jobtree.api.schema.gpu_resources import GPU_RESOURCES
from jobtree.importers.conversion import Converted
from jobtree.importers.kueue.kueue_kinds import KUEUE_GROUP, Template

MAX_GRACE_SECONDS: Final = 300  # the policy's maxGrace, unless an administrator has changed it
DECIDED_HERE: Final = (
    "nodeName",
    "schedulerName",
    "schedulingGates",
    "priorityClassName",
    "priority",
    "preemptionPolicy",
)


def template_gpus(template: Template, where: str) -> int:
    """GPUs of one pod. Raises InputError."""
    return template_requests(template, where).gpus


def node_selector(template: Template, where: str) -> dict[str, str]:
    return template_requests(template, where).node_selector


def annotations_of(template: Template) -> dict[str, str]:
    annotations = _part(_part(template, "metadata"), "annotations")
    return {key: value for key, value in annotations.items() if isinstance(value, str)}


def clean(
    template: Template, tolerations: tuple[dict[str, Any], ...], where: str, out: Converted
) -> Template:
    """The template for a Run. The GPUs of its pods must have been read before."""
    cleaned = copy.deepcopy(template)
    metadata, spec = _part(cleaned, "metadata"), _part(cleaned, "spec")
    metadata.pop("finalizers", None)
    for part in ("labels", "annotations"):
        kept = {key: value for key, value in _part(metadata, part).items() if not key.startswith(KUEUE_GROUP)}
        metadata.pop(part, None)
        if kept:
            metadata[part] = kept
    if spec.get("priorityClassName"):
        instead = "Jobtree has no priorities: the oldest funded Run starts first"
        out.remark(where, f"priorityClassName: {spec['priorityClassName']}", instead)
    for field in DECIDED_HERE:
        spec.pop(field, None)
    for kind in ("containers", "initContainers"):
        for container in spec.get(kind) or ():
            _remove_gpus(container, where, out)
    _limit_grace(spec, where, out)
    if tolerations:
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *tolerations]
    cleaned.pop("metadata", None)
    return {**({"metadata": metadata} if metadata else {}), **cleaned}


def _remove_gpus(container: dict[str, Any], where: str, out: Converted) -> None:
    """Removes the GPUs of a container, which Jobtree sets (gpusPerPod)."""
    resources = _part(container, "resources")
    for kind in ("requests", "limits"):
        amounts = _part(resources, kind)
        for name in GPU_RESOURCES:
            amounts.pop(name, None)
        for name in amounts:
            if "/mig-" in name or name.endswith(".shared"):
                out.remark(
                    where,
                    name,
                    "Jobtree schedules whole GPUs: the cluster's own scheduler places parts of GPUs",
                )
        if kind in resources and not amounts:
            del resources[kind]
    if "resources" in container and not resources:
        del container["resources"]


def _limit_grace(spec: dict[str, Any], where: str, out: Converted) -> None:
    seconds = spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS)
    if isinstance(seconds, int) and seconds > MAX_GRACE_SECONDS:
        spec["terminationGracePeriodSeconds"] = MAX_GRACE_SECONDS
        instead = f"a pod has at most {MAX_GRACE_SECONDS} seconds (maxGrace of the policy)"
        out.remark(where, f"terminationGracePeriodSeconds: {seconds}", instead)


def _part(parent: dict[str, Any], key: str) -> dict[str, Any]:
    value = parent.get(key)
    return value if isinstance(value, dict) else {}
