"""Manifests that the admission tests send, and the check that one was refused."""

from tests.live.cluster.rest_client import Answer
from tests.live.crds.manifests import API_VERSION, Manifest
from tests.live.manager.tenant import Tenant

MAIN_CONTAINER = {"name": "main", "image": "example.com/work:1"}


def pod_manifest(name: str, **fields: object) -> Manifest:
    """A pod without resource requests. ``fields`` are fields of its spec or of its metadata."""
    spec_fields = ("containers", "initContainers", "nodeName", "tolerations")
    spec = {"containers": [MAIN_CONTAINER], **{key: fields.pop(key) for key in spec_fields if key in fields}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **fields}, "spec": spec}


def gpu_container(kind: str = "limits", resource: str = "nvidia.com/gpu") -> Manifest:
    """A container that asks for one GPU, by its limits alone or by limits and requests."""
    amounts = {resource: "1"}
    # The API server refuses a request for an extended resource without the same limit.
    resources = {"limits": amounts, **({"requests": amounts} if kind == "requests" else {})}
    return {**MAIN_CONTAINER, "name": "gpu", "resources": resources}


def claim_manifest(device_class: str) -> Manifest:
    """A ResourceClaim for one device of a class."""
    requests = [{"name": "gpu", "exactly": {"deviceClassName": device_class}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "gpu"},
        "spec": {"devices": {"requests": requests}},
    }


def claims_path(namespace: str) -> str:
    return f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"


def run_manifest(tenant: Tenant, name: str, team: str, **fields: object) -> Manifest:
    """A Run of 8 GPUs for a team of this tenant."""
    spec = {
        "owner": tenant.owner(team),
        "resources": {"gpuType": tenant.flavor, "totalGPUs": 8},
        **fields,
    }
    metadata = {"name": name, "namespace": tenant.name}
    return {"apiVersion": API_VERSION, "kind": "Run", "metadata": metadata, "spec": spec}


def owner_reference(tenant: Tenant, run: str) -> Manifest:
    """The owner reference by which Jobtree finds the pods and stages of a Run."""
    uid = tenant.plane.rest.get(tenant.run_path(run)).body["metadata"]["uid"]
    return {"apiVersion": API_VERSION, "kind": "Run", "name": run, "uid": uid, "controller": True}


def assert_refused(answer: Answer, *texts: str) -> None:
    """Asserts that admission or the CRD refused a request, with a message that contains all texts."""
    assert answer.status in (403, 422), f"{answer.status}: {answer.body}"
    for text in texts:
        assert text in answer.message, answer.message
