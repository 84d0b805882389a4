"""Pod and Service documents, made from a Run's template and what was decided for it.

Everything in the template stays: sidecars, volumes, init containers, tolerations, selectors. Jobtree adds
what it alone knows (node, GPUs, names, environment) and what it answers for (who owns the pod, how long it
may take to stop, and that a rank which ends is not started again behind its back: that is the next
attempt's business).

A template may be as large as an object can be, and a gang may have a thousand pods: what does not change is
shared with the template, not copied. Nothing here changes what it was given.
"""

from typing import Any

import msgspec

from jobtree.api.kinds.run import Risk, Run
from jobtree.api.kubernetes.pod_template_rules import DEFAULT_GRACE_SECONDS
from jobtree.api.schema.object_meta import API_VERSION
from jobtree.api.schema.quantities import SECOND
from jobtree.kube import installation
from jobtree.kube.watch.object_decoder import RISK
from jobtree.manager.pods import pod_names
from jobtree.manager.pods.pod_set import PodPlacement, PodSet
from jobtree.manager.pods.rank_environment import environment, needs_service

ObjectBody = dict[str, Any]

STANDBY = ["sh", "-c", "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done"]
RISK_VOLUME = "jobtree-risk"
RISK_DIRECTORY = "/etc/jobtree"


class PodDefaults(msgspec.Struct, frozen=True):
    """What the cluster adds to a Run's own wishes."""

    template: ObjectBody
    gpu_resource: str
    max_grace_ms: int


def pod_document(
    run: Run, pod_set: PodSet, placement: PodPlacement, setting: PodDefaults, risks: tuple[Risk, ...] = ()
) -> ObjectBody:
    """The pod for one placement."""
    metadata, spec = setting.template.get("metadata") or {}, dict(setting.template["spec"])
    for part in ("containers", "initContainers"):
        if spec.get(part):
            spec[part] = [dict(container) for container in spec[part]]
    annotations = {**(metadata.get("annotations") or {}), RISK: risk_text(risks)}
    chosen = (metadata.get("annotations") or {}).get(pod_names.GPU_CONTAINER_ANNOTATION, "")
    if placement.node:
        spec["nodeName"] = placement.node
    spec.pop("schedulingGates", None)
    spec["terminationGracePeriodSeconds"] = grace_seconds(spec, setting.max_grace_ms)
    give_gpus(spec, chosen, setting.gpu_resource, placement.gpus)
    if placement.is_rank:
        become_rank(run, pod_set, placement, spec)
    else:
        become_standby(spec, chosen)
    name = pod_names.pod_name(run.metadata.name, run.metadata.uid, placement.part)
    labels = {**(metadata.get("labels") or {}), **pod_labels(run, pod_set, placement)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**owned(run, name), "labels": labels, "annotations": annotations},
        "spec": spec,
    }


def service_document(run: Run) -> ObjectBody:
    """A headless Service: every rank has a name that survives a swap, from before it is ready."""
    name = pod_names.service_name(run.metadata.name, run.metadata.uid)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {**owned(run, name), "labels": run_labels(run)},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {installation.UID_LABEL: run.metadata.uid, installation.ROLE_LABEL: "rank"},
        },
    }


def owned(run: Run, name: str) -> ObjectBody:
    return {
        "name": name,
        "namespace": run.metadata.namespace,
        "ownerReferences": [
            {
                "apiVersion": API_VERSION,
                "kind": "Run",
                "name": run.metadata.name,
                "uid": run.metadata.uid,
                "controller": True,
            }
        ],
    }


def run_labels(run: Run) -> dict[str, str]:
    return {
        installation.RUN_LABEL: pod_names.label_value(run.metadata.name),
        installation.UID_LABEL: run.metadata.uid,
    }


def pod_labels(run: Run, pod_set: PodSet, placement: PodPlacement) -> dict[str, str]:
    labels = {**run_labels(run), installation.GROUP_LABEL: str(placement.group)}
    if not placement.is_rank:
        return {**labels, installation.ROLE_LABEL: "standby"}
    return {
        **labels,
        installation.ROLE_LABEL: "rank",
        installation.RANK_LABEL: str(placement.rank),
        installation.ATTEMPT_LABEL: str(pod_set.attempt),
    }


def risk_text(risks: tuple[Risk, ...]) -> str:
    """What a job reads in /etc/jobtree/risk: the same as its Run's ``status.risk``, as JSON."""
    return msgspec.json.encode(risks).decode()


def grace_seconds(spec: ObjectBody, max_grace_ms: int) -> int:
    asked = spec.get("terminationGracePeriodSeconds")
    return min(DEFAULT_GRACE_SECONDS if asked is None else int(asked), max_grace_ms // SECOND)


def give_gpus(spec: ObjectBody, chosen: str, resource: str, gpus: int) -> None:
    """One container has the GPUs: the one that an annotation names, else the first."""
    if not gpus:
        return
    container = gpu_container(spec, chosen)
    given = container.get("resources") or {}
    asked = {kind: {**(given.get(kind) or {}), resource: str(gpus)} for kind in ("requests", "limits")}
    container["resources"] = {**given, **asked}


def gpu_container(spec: ObjectBody, chosen: str) -> ObjectBody:
    containers: list[ObjectBody] = spec["containers"]
    return next((one for one in containers if one.get("name") == chosen), containers[0])


def become_rank(run: Run, pod_set: PodSet, placement: PodPlacement, spec: ObjectBody) -> None:
    spec["restartPolicy"] = "Never"
    spec["hostname"] = pod_names.hostname(run.metadata.name, placement.host)
    if needs_service(run, pod_set):
        spec["subdomain"] = pod_names.service_name(run.metadata.name, run.metadata.uid)
    told = environment(run, pod_set, placement)
    risk = {"path": "risk", "fieldRef": {"fieldPath": f"metadata.annotations['{RISK}']"}}
    volumes = [one for one in spec.get("volumes") or () if one.get("name") != RISK_VOLUME]
    spec["volumes"] = [*volumes, {"name": RISK_VOLUME, "downwardAPI": {"items": [risk]}}]
    for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
        own = [one for one in container.get("env") or () if one.get("name") not in told]
        container["env"] = [*({"name": name, "value": value} for name, value in told.items()), *own]
        mounts = [one for one in container.get("volumeMounts") or () if one.get("name") != RISK_VOLUME]
        container["volumeMounts"] = [
            *mounts,
            {"name": RISK_VOLUME, "mountPath": RISK_DIRECTORY, "readOnly": True},
        ]


def become_standby(spec: ObjectBody, chosen: str) -> None:
    """Keeps the image warm and the GPUs in hand; starts nothing of the template's."""
    container = gpu_container(spec, chosen)
    kept = {
        key: container[key] for key in ("name", "image", "imagePullPolicy", "resources") if key in container
    }
    spec["containers"] = [{**kept, "command": STANDBY}]
    spec["restartPolicy"] = "Always"
    for part in ("initContainers", "volumes", "hostname", "subdomain"):
        spec.pop(part, None)
