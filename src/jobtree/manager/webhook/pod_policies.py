"""The admission policies jobtree-pods, jobtree-gpu-pods and jobtree-gpu-claims, for clusters before 1.30.

They apply in managed namespaces only, because a webhook must not be called for all pods of a cluster.
"""

from collections.abc import Iterator
from typing import Any

from jobtree.api.schema.gpu_resources import GPU_CLAIMS, GPU_CLASSES, GPU_RESOURCES
from jobtree.api.schema.object_meta import GROUP
from jobtree.kube.installation import account_of
from jobtree.kube.watch.object_decoder import RISK
from jobtree.manager.webhook.admission_review import ALLOWED, AdmissionRequest, AdmissionResponse, forbid
from jobtree.manager.webhook.write_policies import ExemptUsers, ObjectBody, owner_runs

PREFIX = f"{GROUP}/"


class GpuPodPolicy:
    """Refuses pods that ask for GPUs in a managed namespace: only Jobtree gives GPUs to pods there."""

    def __init__(self, namespace: str) -> None:
        self._exempt = ExemptUsers(account_of(namespace), controllers=False)

    async def review(self, request: AdmissionRequest) -> AdmissionResponse:
        if self._exempt.includes(request.user_info):
            return ALLOWED
        spec = request.after["spec"]
        for container in [*spec["containers"], *(spec.get("initContainers") or ())]:
            if asks_for_gpus(container):
                return forbid(
                    f"spec.containers: {container['name']} asks for GPUs, and in the managed namespace "
                    f"{request.namespace} only Jobtree gives GPUs to pods: "
                    "submit a Run (kubectl runs submit), whose template is this pod without the GPUs"
                )
        return ALLOWED


def asks_for_gpus(container: dict[str, Any]) -> bool:
    resources = container.get("resources") or {}
    amounts = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return any(name in amounts for name in (*GPU_RESOURCES, *GPU_CLAIMS))


class GpuClaimPolicy:
    """Refuses resource claims for GPUs in a managed namespace."""

    def __init__(self) -> None:
        self._exempt = ExemptUsers("", controllers=False)

    async def review(self, request: AdmissionRequest) -> AdmissionResponse:
        if self._exempt.includes(request.user_info):
            return ALLOWED
        spec = request.after["spec"]
        for device_class in device_classes(spec if request.plural == "resourceclaims" else spec["spec"]):
            if device_class in GPU_CLASSES:
                return forbid(
                    f"spec.devices.requests: {device_class}: in the managed namespace {request.namespace} "
                    "only Jobtree gives GPUs to pods: "
                    "submit a Run (kubectl runs submit) instead of claiming devices"
                )
        return ALLOWED


def device_classes(claim: dict[str, Any]) -> Iterator[str]:
    """Yields the device classes that a claim names, in any version of the API."""
    yield claim.get("resourceClassName") or ""
    for request in (claim.get("devices") or {}).get("requests") or ():
        alternatives = request.get("firstAvailable") or ()
        for device in (request, request.get("exactly") or {}, *alternatives):
            yield device.get("deviceClassName") or ""


class PodPolicy:
    """Allows only Jobtree to make a pod a rank of a Run, to end that, or to write its risk."""

    def __init__(self, namespace: str) -> None:
        self._exempt = ExemptUsers(account_of(namespace))

    async def review(self, request: AdmissionRequest) -> AdmissionResponse:
        if self._exempt.includes(request.user_info):
            return ALLOWED
        after, before = request.after["metadata"], request.before.get("metadata") or {}
        if not has_jobtree_marks(after) and not has_jobtree_marks(before):
            return ALLOWED
        owners, owners_before = owners_of(after), owners_of(before)
        if owners != owners_before:
            return forbid(
                f"metadata.ownerReferences: Run {[*owners, *owners_before][0]}: only Jobtree gives a Run its "
                "pods, or takes them from it: leave references to Runs as they are, "
                "and submit a Run for a pod of your own"
            )
        forged = reserved_values(after, request.operation) ^ (
            reserved_values(before, request.operation) if before else set()
        )
        if forged:
            return forbid(
                f"metadata: {min(forged)}: only Jobtree writes labels of {GROUP} and the risk of a pod: "
                "leave them as they are, and use names of your own"
            )
        return ALLOWED


def has_jobtree_marks(metadata: ObjectBody) -> bool:
    """Whether the metadata has a label of Jobtree, or a Run as an owner."""
    return any(key.startswith(PREFIX) for key in metadata.get("labels") or ()) or any(
        run.get("apiVersion", "").startswith(PREFIX) for run in owner_runs(metadata)
    )


def owners_of(metadata: ObjectBody) -> list[str]:
    """Returns the UIDs of the Runs that own the pod, each with a mark if it is the controller."""
    return [run["uid"] + (" controls" if run.get("controller") else "") for run in owner_runs(metadata)]


def reserved_values(metadata: ObjectBody, operation: str) -> set[str]:
    """Returns the labels of Jobtree and the risk; the risk of a pod that is being created has no effect."""
    labels = metadata.get("labels") or {}
    annotations = {} if operation == "CREATE" else metadata.get("annotations") or {}
    return {f"{key}={value}" for key, value in labels.items() if key.startswith(PREFIX)} | {
        f"{key}={value}" for key, value in annotations.items() if key == RISK
    }
