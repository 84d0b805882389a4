"""Attacks with pods that must fail: forged ranks, ranks without a Run, and GPUs that Jobtree did not give."""

from typing import Any

import pytest

from tests.live.admission.admission_cluster import BOTH_CHECKERS, AdmissionCluster
from tests.live.admission.object_manifests import (
    MAIN_CONTAINER,
    assert_refused,
    claim_manifest,
    claims_path,
    gpu_container,
    owner_reference,
    pod_manifest,
    run_manifest,
)
from tests.live.cluster.rest_client import RestClient
from tests.live.cluster.server_process import wait_until
from tests.live.crds.manifests import GROUP
from tests.live.manager.tenant import Tenant

CHECKERS = BOTH_CHECKERS

# Owners of pods


def test_forged_ranks_are_refused(
    tenant: Tenant, attacker: RestClient, admission_cluster: AdmissionCluster
) -> None:
    tenant.create_run("r", "theirs", 8)
    tenant.await_running_pods("r", 1)
    theirs = owner_reference(tenant, "r")
    (rank,) = tenant.pods("r")
    forged_pods = [pod_manifest(rank["metadata"]["name"] + "x", ownerReferences=[theirs])]
    forged_pods.append(pod_manifest("by-uid", ownerReferences=[{**theirs, "controller": False}]))
    for forged in forged_pods:
        assert_refused(
            attacker.post(tenant.pods_path, forged), "ownerReferences", "only Jobtree gives a Run its pods"
        )
    labels = {f"{GROUP}/run-uid": theirs["uid"], f"{GROUP}/role": "rank"}
    assert_refused(
        attacker.post(tenant.pods_path, pod_manifest("by-label", labels=labels)), "only Jobtree writes labels"
    )
    # From another namespace, in which there is no such Run.
    other_tenant = admission_cluster.create_tenant()
    other_user = admission_cluster.create_user(other_tenant, "eve")
    twin = pod_manifest(rank["metadata"]["name"], ownerReferences=[theirs])
    assert_refused(other_user.post(other_tenant.pods_path, twin), "only Jobtree gives a Run its pods")
    # A plain pod that is edited.
    assert attacker.post(tenant.pods_path, pod_manifest("plain")).accepted
    plain = f"{tenant.pods_path}/plain"
    assert_refused(attacker.merge(plain, {"metadata": {"ownerReferences": [theirs]}}), "ownerReferences")
    assert_refused(attacker.merge(plain, {"metadata": {"labels": labels}}), "only Jobtree writes labels")


def test_ranks_end_with_their_run_when_user_tries_to_keep_them(tenant: Tenant, attacker: RestClient) -> None:
    assert attacker.post(tenant.runs_path, run_manifest(tenant, "r", "mine")).accepted
    tenant.await_running_pods("r", 1)
    (rank,) = tenant.pods("r")
    path = f"{tenant.pods_path}/{rank['metadata']['name']}"
    assert_refused(
        attacker.merge(path, {"metadata": {"ownerReferences": None}}), "only Jobtree gives a Run its pods"
    )
    assert_refused(
        attacker.merge(path, {"metadata": {"labels": {f"{GROUP}/run": None}}}), "only Jobtree writes"
    )
    risk = {f"{GROUP}/risk": "[]x"}
    assert_refused(attacker.merge(path, {"metadata": {"annotations": risk}}), "only Jobtree writes")
    assert_refused(
        attacker.delete(f"{tenant.run_path('r')}?propagationPolicy=Orphan"), "propagationPolicy: Orphan"
    )
    assert_refused(
        attacker.delete(f"{tenant.runs_path}?propagationPolicy=Orphan"), "propagationPolicy: Orphan"
    )
    assert_refused(
        attacker.merge(tenant.run_path("r"), {"metadata": {"finalizers": ["orphan"]}}), "finalizer orphan"
    )
    # Without Jobtree's finalizer the Run is deleted at once. Its lease must end and its pods must be deleted.
    assert attacker.merge(tenant.run_path("r"), {"metadata": {"finalizers": None}}).accepted
    assert attacker.delete(tenant.run_path("r")).accepted
    wait_until(lambda: tenant.closure_reasons("r") == ["Cancelled"], "its lease is closed")
    wait_until(lambda: tenant.pods("r") == [], "its pods are deleted")


def test_forged_stages_are_refused(tenant: Tenant, attacker: RestClient) -> None:
    resources = {"gpuType": tenant.flavor, "totalGPUs": 8}
    stages = [{"name": "a", "resources": resources}, {"name": "b", "resources": resources, "after": ["a"]}]
    tenant.create("Run", "tree", {"owner": tenant.owner("theirs"), "stages": stages})
    forged = run_manifest(tenant, "tree-c", "mine")
    forged["metadata"]["ownerReferences"] = [owner_reference(tenant, "tree")]
    assert_refused(attacker.post(tenant.runs_path, forged), "only Jobtree makes a Run the stage of another")
    wait_until(lambda: tenant.plane.rest.get(tenant.run_path("tree-a")).accepted, "its stage is created")
    freed = {"metadata": {"ownerReferences": None}}
    assert_refused(
        attacker.merge(tenant.run_path("tree-a"), freed), "only Jobtree makes a Run the stage of another"
    )


def test_template_cannot_choose_node_gpus_or_identity_of_its_pods(
    tenant: Tenant, attacker: RestClient
) -> None:
    claimed = gpu_container(resource="deviceclass.resource.kubernetes.io/gpu.nvidia.com")
    for field, value in (
        ("nodeName", f"{tenant.name}-nv-a-01"),
        ("containers", [gpu_container()]),
        ("initContainers", [claimed]),
    ):
        forged = run_manifest(
            tenant, "r", "mine", template={"spec": {"containers": [MAIN_CONTAINER], field: value}}
        )
        assert_refused(attacker.post(tenant.runs_path, forged), "Jobtree")
    tenant.create_run("other", "theirs", 8)
    other = owner_reference(tenant, "other")
    labels = {f"{GROUP}/run": "other", f"{GROUP}/run-uid": other["uid"], f"{GROUP}/rank": "0"}
    metadata = {"labels": labels, "ownerReferences": [other], "name": "other", "namespace": "kube-system"}
    template = {"metadata": metadata, "spec": {"containers": [MAIN_CONTAINER]}}
    assert attacker.post(tenant.runs_path, run_manifest(tenant, "r", "mine", template=template)).accepted
    tenant.await_running_pods("r", 1)
    (rank,) = tenant.pods("r")
    own_reference = owner_reference(tenant, "r")
    assert [reference["uid"] for reference in rank["metadata"]["ownerReferences"]] == [own_reference["uid"]]
    assert rank["metadata"]["labels"][f"{GROUP}/run-uid"] == own_reference["uid"]
    assert len(tenant.pods("other")) <= 1


# GPUs that Jobtree did not give


@pytest.mark.parametrize(
    "fields",
    [
        {"containers": [gpu_container()]},
        {"containers": [gpu_container("requests")]},
        {"containers": [MAIN_CONTAINER, gpu_container(resource="amd.com/gpu")]},
        {"containers": [gpu_container(resource="deviceclass.resource.kubernetes.io/gpu.nvidia.com")]},
        {"containers": [MAIN_CONTAINER], "initContainers": [gpu_container()]},
        {"containers": [gpu_container()], "nodeName": "anywhere"},
        {"containers": [gpu_container()], "annotations": {f"{GROUP}/risk": "[]"}},
    ],
    ids=["limits", "requests", "amd", "claimed", "init", "node", "annotated"],
)
def test_gpu_pods_are_refused_in_a_managed_namespace(
    tenant: Tenant, attacker: RestClient, fields: dict[str, Any]
) -> None:
    answer = attacker.post(tenant.pods_path, pod_manifest("thief", **fields))
    assert_refused(answer, "gpu asks for GPUs", f"managed namespace {tenant.name}", "kubectl runs submit")


def test_ephemeral_containers_and_claims_with_gpus_are_refused_in_a_managed_namespace(
    tenant: Tenant, attacker: RestClient
) -> None:
    assert attacker.post(tenant.pods_path, pod_manifest("plain")).accepted
    path = f"{tenant.pods_path}/plain"
    late = {"spec": {"ephemeralContainers": [gpu_container()]}}
    assert_refused(attacker.merge(f"{path}/ephemeralcontainers", late), "ephemeralContainers")
    gpu_claim = claim_manifest("gpu.nvidia.com")
    assert_refused(attacker.post(claims_path(tenant.name), gpu_claim), "gpu.nvidia.com", "submit a Run")
    either = [{"name": "gpu", "firstAvailable": [{"name": "a", "deviceClassName": "gpu.amd.com"}]}]
    template = {
        **gpu_claim,
        "kind": "ResourceClaimTemplate",
        "spec": {"spec": {"devices": {"requests": either}}},
    }
    templates = claims_path(tenant.name).replace("resourceclaims", "resourceclaimtemplates")
    assert_refused(attacker.post(templates, template), "gpu.amd.com", "submit a Run")


def test_claims_of_older_api_versions_are_refused(tenant: Tenant, attacker: RestClient) -> None:
    device_class = {"deviceClassName": "gpu.nvidia.com"}
    for version, request in (("v1beta1", device_class), ("v1beta2", {"exactly": device_class})):
        old_claim = {**claim_manifest("gpu.nvidia.com"), "apiVersion": f"resource.k8s.io/{version}"}
        old_claim["spec"] = {"devices": {"requests": [{"name": "gpu", **request}]}}
        path = claims_path(tenant.name).replace("/v1/", f"/{version}/")
        assert_refused(attacker.post(path, old_claim), "gpu.nvidia.com", "submit a Run")


def test_deployment_and_job_get_no_gpu_pods(tenant: Tenant, attacker: RestClient) -> None:
    spec = {"containers": [gpu_container()]}
    labelled = {"metadata": {"labels": {"app": "thief"}}, "spec": spec}
    deployment = {"selector": {"matchLabels": {"app": "thief"}}, "template": labelled}
    job = {"template": {"spec": {**spec, "restartPolicy": "Never"}}}
    for group, plural, wanted in (("apps", "deployments", deployment), ("batch", "jobs", job)):
        collection = f"/apis/{group}/v1/namespaces/{tenant.name}/{plural}"
        answer = attacker.post(collection, {"metadata": {"name": "thief"}, "spec": wanted})
        assert answer.accepted, answer.message

    def kinds_with_events() -> set[str]:
        events = tenant.items(f"/api/v1/namespaces/{tenant.name}/events")
        return {
            event["involvedObject"]["kind"] for event in events if "only Jobtree gives" in event["message"]
        }

    wait_until(
        lambda: kinds_with_events() == {"ReplicaSet", "Job"},
        "both have events that say why they have no pods",
    )
    assert [pod["metadata"]["name"] for pod in tenant.items(tenant.pods_path)] == []
