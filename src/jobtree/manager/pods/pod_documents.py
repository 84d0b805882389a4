"""Builds Pod and Service documents from the template of a Run and the decisions about it.

Everything in the template is kept: sidecars, volumes, init containers, tolerations, selectors. Jobtree adds
what only it knows (node, GPUs, names, environment) and what it is responsible for: the owner of the pod, the
grace period, and that a rank which ends is not restarted by the kubelet, because a restart is a new attempt.

A template may be as large as an object can be, and a gang may have a thousand pods. So parts that do not
change are shared with the template, not copied, and nothing here changes its arguments.
"""

from typing import Any

import msgspec

from jobtree.api.kinds.run import Risk, Run
from jobtree.api.kubernetes.pod_binding import REQUIRED
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
NO_GPUS = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
RISK_VOLUME = "jobtree-risk"
RISK_DIRECTORY = "/etc/jobtree"
KEPT_BY_STANDBY = ("name", "image", "imagePullPolicy", "resources", "securityContext")


class PodDefaults(msgspec.Struct, frozen=True):
    """The template of a Run or of the policy, and what the cluster adds to it."""

    template: ObjectBody
    gpu_resource: str
    max_grace_ms: int
    by_scheduler: bool = False  # who binds the pod (N1)
    priority_class: str = ""  # of templates that name none


def pod_document(
    run: Run, pod_set: PodSet, placement: PodPlacement, defaults: PodDefaults, risks: tuple[Risk, ...] = ()
) -> ObjectBody:
    """Returns the pod of one placement."""
    metadata, spec = defaults.template.get("metadata") or {}, dict(defaults.template["spec"])
    for part in ("containers", "initContainers"):
        if spec.get(part):
            spec[part] = [dict(container) for container in spec[part]]
    annotations = {**(metadata.get("annotations") or {}), RISK: risk_text(risks)}
    chosen = (metadata.get("annotations") or {}).get(pod_names.GPU_CONTAINER_ANNOTATION, "")
    if placement.node:
        bind(spec, placement.node, defaults)
    spec.pop("schedulingGates", None)
    spec["terminationGracePeriodSeconds"] = grace_seconds(spec, defaults.max_grace_ms)
    give_gpus(spec, chosen, defaults.gpu_resource, placement.gpus)
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
    """Returns a headless Service: every rank has a name that stays when it moves, before it is ready too."""
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
    """Returns what a job reads in /etc/jobtree/risk: the ``status.risk`` of its Run, as JSON."""
    return msgspec.json.encode(risks).decode()


def bind(spec: ObjectBody, node: str, defaults: PodDefaults) -> None:
    """Binds the pod to its node, or lets the scheduler bind it to this node and no other (N1)."""
    tolerates_gpus = {"key": defaults.gpu_resource, "operator": "Exists", "effect": "NoSchedule"}
    tolerations = spec.get("tolerations") or ()
    if tolerates_gpus not in tolerations:
        spec["tolerations"] = [*tolerations, tolerates_gpus]
    if defaults.priority_class and not spec.get("priorityClassName"):
        spec["priorityClassName"] = defaults.priority_class
    if defaults.by_scheduler:
        spec["affinity"] = affinity_to(spec.get("affinity") or {}, node)
    else:
        spec["nodeName"] = node


def affinity_to(affinity: ObjectBody, node: str) -> ObjectBody:
    """Returns the affinity with one node added to each of its terms, as a DaemonSet has it."""
    name = {"key": "metadata.name", "operator": "In", "values": [node]}
    on_nodes = affinity.get("nodeAffinity") or {}
    terms = (on_nodes.get(REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    required = {
        "nodeSelectorTerms": [
            {**term, "matchFields": [*(term.get("matchFields") or ()), name]} for term in terms
        ]
    }
    return {**affinity, "nodeAffinity": {**on_nodes, REQUIRED: required}}


def grace_seconds(spec: ObjectBody, max_grace_ms: int) -> int:
    asked = spec.get("terminationGracePeriodSeconds")
    return min(DEFAULT_GRACE_SECONDS if asked is None else int(asked), max_grace_ms // SECOND)


def give_gpus(spec: ObjectBody, chosen: str, resource: str, gpus: int) -> None:
    """Gives the GPUs to one container: the one that an annotation names, else the first."""
    if not gpus:
        return
    container = gpu_container(spec, chosen)
    given = container.get("resources") or {}
    asked = {kind: {**(given.get(kind) or {}), resource: str(gpus)} for kind in ("requests", "limits")}
    container["resources"] = {**given, **asked}


def gpu_container(spec: ObjectBody, chosen: str) -> ObjectBody:
    containers: list[ObjectBody] = spec["containers"]
    return next((container for container in containers if container.get("name") == chosen), containers[0])


def become_rank(run: Run, pod_set: PodSet, placement: PodPlacement, spec: ObjectBody) -> None:
    spec["restartPolicy"] = "Never"
    spec["hostname"] = pod_names.hostname(run.metadata.name, placement.host)
    if needs_service(run, pod_set):
        spec["subdomain"] = pod_names.service_name(run.metadata.name, run.metadata.uid)
    variables = environment(run, pod_set, placement)
    risk = {"path": "risk", "fieldRef": {"fieldPath": f"metadata.annotations['{RISK}']"}}
    volumes = [volume for volume in spec.get("volumes") or () if volume.get("name") != RISK_VOLUME]
    spec["volumes"] = [*volumes, {"name": RISK_VOLUME, "downwardAPI": {"items": [risk]}}]
    for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
        own = [entry for entry in container.get("env") or () if entry.get("name") not in variables]
        container["env"] = [*({"name": name, "value": value} for name, value in variables.items()), *own]
        mounts = [mount for mount in container.get("volumeMounts") or () if mount.get("name") != RISK_VOLUME]
        container["volumeMounts"] = [
            *mounts,
            {"name": RISK_VOLUME, "mountPath": RISK_DIRECTORY, "readOnly": True},
        ]


def become_standby(spec: ObjectBody, chosen: str) -> None:
    """Makes a pod that keeps its image ready, runs nothing of the template, and reaches no GPU.

    The NVIDIA runtime gives all GPUs of the node to an image that asks for them in its environment (F1).
    """
    container = gpu_container(spec, chosen)
    kept = {key: container[key] for key in KEPT_BY_STANDBY if key in container}
    spec["containers"] = [{**kept, "command": STANDBY, "env": NO_GPUS}]
    spec["restartPolicy"] = "Always"
    for part in ("initContainers", "volumes", "hostname", "subdomain"):
        spec.pop(part, None)
