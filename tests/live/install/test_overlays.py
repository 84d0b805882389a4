"""The kustomize overlays, applied to a control plane."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.live.admission.admission_cluster import MANAGED_LABEL
from tests.live.admission.object_manifests import MAIN_CONTAINER, claim_manifest, gpu_container, pod_manifest
from tests.live.cluster.control_plane import ControlPlane
from tests.live.cluster.server_process import wait_until
from tests.live.crds.installed_crds import apply_crds, await_crds
from tests.live.crds.manifests import API_VERSION, Manifest, run
from tests.live.install.helm_chart import NAMESPACE, yaml_documents
from tests.live.manager.installation import ACCOUNT, await_service_account, is_webhook_configuration
from tests.shown import REPOSITORY

OVERLAYS = REPOSITORY / "deploy" / "kustomize" / "overlays"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{ACCOUNT}"
WEBHOOKS = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
BUDGETS = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane() as running:
        apply_crds(running)
        await_crds(running)
        running.start_controllers()
        yield running


def overlay_documents(plane: ControlPlane, overlay: str) -> list[Manifest]:
    return yaml_documents(plane.kubectl("kustomize", str(OVERLAYS / overlay)).stdout)


def apply_overlay(plane: ControlPlane, overlay: str) -> dict[str, Any]:
    """Applies an overlay, without a warning of the API server; returns its Deployment."""
    result = plane.kubectl("apply", "-k", str(OVERLAYS / overlay))
    assert result.stderr == ""
    body: dict[str, Any] = plane.rest.get(DEPLOYMENT).body
    return body


def test_dev_overlay_has_one_manager_without_a_disruption_budget(plane: ControlPlane) -> None:
    assert apply_overlay(plane, "dev")["spec"]["replicas"] == 1
    assert "PodDisruptionBudget" not in [document["kind"] for document in overlay_documents(plane, "dev")]


def test_prod_overlay_spreads_three_managers_over_zones(plane: ControlPlane) -> None:
    spec = apply_overlay(plane, "prod")["spec"]
    assert spec["replicas"] == 3
    spread = [
        constraint["topologyKey"] for constraint in spec["template"]["spec"]["topologySpreadConstraints"]
    ]
    assert spread == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
    assert spec["template"]["spec"]["priorityClassName"] == "system-cluster-critical"
    assert len(plane.rest.get(BUDGETS).body["items"]) == 1


def test_air_gapped_overlay_uses_only_the_private_registry(plane: ControlPlane) -> None:
    spec = apply_overlay(plane, "air-gapped")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["image"] == "registry.internal/jobtree:0.1.0"
    assert spec["imagePullSecrets"] == [{"name": "registry-internal"}]
    assert "jobtree.invalid" not in str(overlay_documents(plane, "air-gapped"))


def test_strict_overlay_refuses_gpu_pods_everywhere_and_runs_outside_managed_namespaces(
    plane: ControlPlane,
) -> None:
    documents = [
        document for document in overlay_documents(plane, "strict") if not is_webhook_configuration(document)
    ]  # there is no manager to answer
    for name, labels in (("unmanaged", {}), ("managed", {MANAGED_LABEL: "true"})):
        answer = plane.rest.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        assert answer.accepted, answer.message
        await_service_account(plane, name)
    plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(documents))
    plane.kubectl("delete", ",".join(WEBHOOKS), "jobtree-webhook", "--ignore-not-found")
    pods, claims = (
        "/api/v1/namespaces/unmanaged/pods",
        "/apis/resource.k8s.io/v1/namespaces/unmanaged/resourceclaims",
    )
    manifest = {**run(), "metadata": {"name": "manifest"}}

    def message_of(path: str, manifest: Manifest) -> str:
        return plane.rest.post(f"{path}?dryRun=All", manifest).message

    def runs_path(namespace: str) -> str:
        return f"/apis/{API_VERSION}/namespaces/{namespace}/runs"

    gpu_pod = pod_manifest("gpu", containers=[MAIN_CONTAINER, gpu_container()])
    wait_until(lambda: "jobtree-gpu-pods" in message_of(pods, gpu_pod), "GPU pods are refused everywhere")
    wait_until(
        lambda: "jobtree-gpu-claims" in message_of(claims, claim_manifest("gpu.nvidia.com")),
        "claims on GPUs are refused everywhere",
    )
    wait_until(
        lambda: "kubectl label namespace unmanaged" in message_of(runs_path("unmanaged"), manifest),
        "Runs are refused in unmanaged namespaces",
    )
    assert plane.rest.post(f"{pods}?dryRun=All", pod_manifest("plain")).accepted
    wait_until(
        lambda: plane.rest.post(f"{runs_path('managed')}?dryRun=All", manifest).accepted,
        "Runs are accepted in managed namespaces",
    )
    assert plane.rest.delete("/api/v1/namespaces/unmanaged").accepted
    wait_until(
        lambda: plane.rest.get("/api/v1/namespaces/unmanaged").status == 404, "the namespace is deleted"
    )
