"""The kustomize overlays, each applied: what it changes, and that the strict one is strict."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.live.control_plane import ControlPlane
from tests.live.definitions import apply_definitions, await_definitions
from tests.live.guarding import MAIN, MANAGED, claim, gpu_container, pod
from tests.live.helm import NAMESPACE, documents
from tests.live.managing import ACCOUNT, REPOSITORY, await_account, is_webhook
from tests.live.manifests import API_VERSION, Manifest, run
from tests.live.process import wait_until

OVERLAYS = REPOSITORY / "deploy" / "kustomize" / "overlays"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{ACCOUNT}"
WEBHOOKS = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
BUDGETS = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane() as running:
        apply_definitions(running)
        await_definitions(running)
        running.start_controllers()
        yield running


def built(plane: ControlPlane, overlay: str) -> list[Manifest]:
    return documents(plane.kubectl("kustomize", str(OVERLAYS / overlay)).stdout)


def applied(plane: ControlPlane, overlay: str) -> dict[str, Any]:
    """The Deployment as the overlay has it, once the server has taken all of it without a warning."""
    done = plane.kubectl("apply", "-k", str(OVERLAYS / overlay))
    assert done.stderr == ""
    body: dict[str, Any] = plane.rest.get(DEPLOYMENT).body
    return body


def test_dev_has_one_small_manager_that_a_drain_may_stop(plane: ControlPlane) -> None:
    assert applied(plane, "dev")["spec"]["replicas"] == 1
    assert "PodDisruptionBudget" not in [one["kind"] for one in built(plane, "dev")]


def test_prod_has_three_over_zones(plane: ControlPlane) -> None:
    spec = applied(plane, "prod")["spec"]
    assert spec["replicas"] == 3
    spread = [one["topologyKey"] for one in spec["template"]["spec"]["topologySpreadConstraints"]]
    assert spread == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
    assert spec["template"]["spec"]["priorityClassName"] == "system-cluster-critical"
    assert len(plane.rest.get(BUDGETS).body["items"]) == 1


def test_air_gapped_names_no_image_but_that_of_the_private_registry(plane: ControlPlane) -> None:
    spec = applied(plane, "air-gapped")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["image"] == "registry.internal/jobtree:0.1.0"
    assert spec["imagePullSecrets"] == [{"name": "registry-internal"}]
    assert "jobtree.invalid" not in str(built(plane, "air-gapped"))


def test_strict_lets_gpus_and_runs_come_from_jobtree_alone(plane: ControlPlane) -> None:
    wanted = [one for one in built(plane, "strict") if not is_webhook(one)]  # no manager is here to answer
    for name, labels in (("wild", {}), ("tame", {MANAGED: "true"})):
        answer = plane.rest.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        assert answer.accepted, answer.message
        await_account(plane, name)
    plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(wanted))
    plane.kubectl("delete", ",".join(WEBHOOKS), "jobtree-webhook", "--ignore-not-found")
    pods, claims = "/api/v1/namespaces/wild/pods", "/apis/resource.k8s.io/v1/namespaces/wild/resourceclaims"
    mine = {**run(), "metadata": {"name": "mine"}}

    def says(path: str, manifest: Manifest) -> str:
        return plane.rest.post(f"{path}?dryRun=All", manifest).message

    def runs(namespace: str) -> str:
        return f"/apis/{API_VERSION}/namespaces/{namespace}/runs"

    gpus = pod("gpu", containers=[MAIN, gpu_container()])
    wait_until(lambda: "jobtree-gpu-pods" in says(pods, gpus), "GPU pods are refused everywhere")
    wait_until(lambda: "jobtree-gpu-claims" in says(claims, claim("gpu.nvidia.com")), "and claims on GPUs")
    wait_until(lambda: "kubectl label namespace wild" in says(runs("wild"), mine), "and Runs in wild places")
    assert plane.rest.post(f"{pods}?dryRun=All", pod("plain")).accepted
    wait_until(lambda: plane.rest.post(f"{runs('tame')}?dryRun=All", mine).accepted, "tame Runs are let in")
    assert plane.rest.delete("/api/v1/namespaces/wild").accepted
    wait_until(lambda: plane.rest.get("/api/v1/namespaces/wild").status == 404, "a namespace can go")
