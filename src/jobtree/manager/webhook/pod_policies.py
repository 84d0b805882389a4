"""The admission policies jobtree-pods, jobtree-gpu-pods and jobtree-gpu-claims, for clusters before 1.30.

See ``rules``. These hold in managed namespaces only: a webhook must not select all pods.
"""

from collections.abc import Iterator
from typing import Any

from jobtree.api.schema.gpu_resources import GPU_CLAIMS, GPU_CLASSES, GPU_RESOURCES
from jobtree.api.schema.object_meta import GROUP
from jobtree.kube.installation import account_of
from jobtree.kube.watch.object_decoder import RISK
from jobtree.manager.webhook.admission_review import ALLOWED, AdmissionRequest, AdmissionResponse, forbid
from jobtree.manager.webhook.write_policies import ExemptUsers, ObjectBody, runs_that_own

PREFIX = f"{GROUP}/"


class GpuPodPolicy:
    """In a managed namespace GPUs come from Jobtree alone."""

    def __init__(self, namespace: str) -> None:
        self._passing = ExemptUsers(account_of(namespace), controllers=False)

    async def review(self, asked: AdmissionRequest) -> AdmissionResponse:
        if self._passing.lets(asked.user_info):
            return ALLOWED
        spec = asked.after["spec"]
        for container in [*spec["containers"], *(spec.get("initContainers") or ())]:
            if asks_for_gpus(container):
                return forbid(
                    f"spec.containers: {container['name']} asks for GPUs, and in the managed namespace "
                    f"{asked.namespace} only Jobtree gives GPUs to pods: submit a Run (kubectl runs submit), "
                    "whose template is this pod without the GPUs"
                )
        return ALLOWED


def asks_for_gpus(container: dict[str, Any]) -> bool:
    resources = container.get("resources") or {}
    amounts = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return any(name in amounts for name in (*GPU_RESOURCES, *GPU_CLAIMS))


class GpuClaimPolicy:
    """Devices are not claimed around Jobtree either."""

    def __init__(self) -> None:
        self._passing = ExemptUsers("", controllers=False)

    async def review(self, asked: AdmissionRequest) -> AdmissionResponse:
        if self._passing.lets(asked.user_info):
            return ALLOWED
        spec = asked.after["spec"]
        for found in classes_of(spec if asked.plural == "resourceclaims" else spec["spec"]):
            if found in GPU_CLASSES:
                return forbid(
                    f"spec.devices.requests: {found}: in the managed namespace {asked.namespace} only "
                    "Jobtree gives GPUs to pods: "
                    "submit a Run (kubectl runs submit) instead of claiming devices"
                )
        return ALLOWED


def classes_of(claim: dict[str, Any]) -> Iterator[str]:
    """The device classes that a claim names, in every version of the API so far."""
    yield claim.get("resourceClassName") or ""
    for request in (claim.get("devices") or {}).get("requests") or ():
        alternatives = request.get("firstAvailable") or ()
        for one in (request, request.get("exactly") or {}, *alternatives):
            yield one.get("deviceClassName") or ""


class PodPolicy:
    """Nobody but Jobtree makes a pod a rank, takes one from its Run, or tells it its risk."""

    def __init__(self, namespace: str) -> None:
        self._passing = ExemptUsers(account_of(namespace))

    async def review(self, asked: AdmissionRequest) -> AdmissionResponse:
        if self._passing.lets(asked.user_info):
            return ALLOWED
        after, before = asked.after["metadata"], asked.before.get("metadata") or {}
        if not is_as_if_of_jobtree(after) and not is_as_if_of_jobtree(before):
            return ALLOWED
        owners, owners_before = owners_of(after), owners_of(before)
        if owners != owners_before:
            return forbid(
                f"metadata.ownerReferences: Run {[*owners, *owners_before][0]}: only Jobtree gives a Run its "
                "pods, or takes them from it: leave references to Runs as they are, "
                "and submit a Run for a pod of your own"
            )
        forged = words_of(after, asked.operation) ^ (words_of(before, asked.operation) if before else set())
        if forged:
            return forbid(
                f"metadata: {min(forged)}: only Jobtree writes labels of {GROUP} and the risk of a pod: "
                "leave them as they are, and use names of your own"
            )
        return ALLOWED


def is_as_if_of_jobtree(metadata: ObjectBody) -> bool:
    return any(key.startswith(PREFIX) for key in metadata.get("labels") or ()) or any(
        one.get("apiVersion", "").startswith(PREFIX) for one in runs_that_own(metadata)
    )


def owners_of(metadata: ObjectBody) -> list[str]:
    return [one["uid"] + (" controls" if one.get("controller") else "") for one in runs_that_own(metadata)]


def words_of(metadata: ObjectBody, operation: str) -> set[str]:
    """What is Jobtree's to say of a pod; nobody reads a risk before a pod is there."""
    labels = metadata.get("labels") or {}
    risk = {} if operation == "CREATE" else metadata.get("annotations") or {}
    return {f"{key}={value}" for key, value in labels.items() if key.startswith(PREFIX)} | {
        f"{key}={value}" for key, value in risk.items() if key == RISK
    }
