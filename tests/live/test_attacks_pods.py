"""Attacks with pods that must fail: forged ranks, ranks that stay, and GPUs around Jobtree."""

from typing import Any

import pytest

from tests.live.guarding import (
    BOTH_PATHS,
    GROUP,
    MAIN,
    Guarded,
    claim,
    claims_of,
    gpu_container,
    pod,
    pods_of,
    reference,
    refused,
    run_of,
    runs_of,
)
from tests.live.managing import Scene
from tests.live.process import wait_until
from tests.live.rest import Rest

PATHS = BOTH_PATHS

# Whose pod is it


def test_pods_that_pretend_to_be_ranks(attacked: Scene, mallory: Rest, guarded: Guarded) -> None:
    attacked.run("r", "theirs", 8)
    attacked.await_running("r", 1)
    theirs = reference(attacked, "r")
    (rank,) = attacked.pods("r")
    names = [pod(rank["metadata"]["name"] + "x", ownerReferences=[theirs])]
    names.append(pod("by-uid", ownerReferences=[{**theirs, "controller": False}]))
    for forged in names:
        refused(
            mallory.post(pods_of(attacked), forged), "ownerReferences", "only Jobtree gives a Run its pods"
        )
    labels = {f"{GROUP}/run-uid": theirs["uid"], f"{GROUP}/role": "rank"}
    refused(mallory.post(pods_of(attacked), pod("by-label", labels=labels)), "only Jobtree writes labels")
    # From another namespace, where the Run is not even to be seen.
    elsewhere = guarded.scene()
    eve = guarded.person(elsewhere, "eve")
    twin = pod(rank["metadata"]["name"], ownerReferences=[theirs])
    refused(eve.post(pods_of(elsewhere), twin), "only Jobtree gives a Run its pods")
    # A plain pod that becomes one.
    assert mallory.post(pods_of(attacked), pod("plain")).accepted
    plain = f"{pods_of(attacked)}/plain"
    refused(mallory.merge(plain, {"metadata": {"ownerReferences": [theirs]}}), "ownerReferences")
    refused(mallory.merge(plain, {"metadata": {"labels": labels}}), "only Jobtree writes labels")


def test_ranks_that_would_stay_when_their_run_is_gone(attacked: Scene, mallory: Rest) -> None:
    assert mallory.post(runs_of(attacked), run_of(attacked, "r", "mine")).accepted
    attacked.await_running("r", 1)
    (rank,) = attacked.pods("r")
    path = f"{pods_of(attacked)}/{rank['metadata']['name']}"
    refused(mallory.merge(path, {"metadata": {"ownerReferences": None}}), "only Jobtree gives a Run its pods")
    refused(mallory.merge(path, {"metadata": {"labels": {f"{GROUP}/run": None}}}), "only Jobtree writes")
    risk = {f"{GROUP}/risk": "[]x"}
    refused(mallory.merge(path, {"metadata": {"annotations": risk}}), "only Jobtree writes")
    refused(mallory.delete(f"{attacked.path('r')}?propagationPolicy=Orphan"), "propagationPolicy: Orphan")
    refused(mallory.delete(f"{runs_of(attacked)}?propagationPolicy=Orphan"), "propagationPolicy: Orphan")
    refused(mallory.merge(attacked.path("r"), {"metadata": {"finalizers": ["orphan"]}}), "finalizer orphan")
    # Without Jobtree's finalizer the Run is gone at once: its lease ends and its pods go all the same.
    assert mallory.merge(attacked.path("r"), {"metadata": {"finalizers": None}}).accepted
    assert mallory.delete(attacked.path("r")).accepted
    wait_until(lambda: attacked.endings("r") == ["Cancelled"], "its lease is ended")
    wait_until(lambda: attacked.pods("r") == [], "its pods are gone")


def test_a_run_that_pretends_to_be_a_stage(attacked: Scene, mallory: Rest) -> None:
    resources = {"gpuType": attacked.flavor, "totalGPUs": 8}
    stages = [{"name": "a", "resources": resources}, {"name": "b", "resources": resources, "after": ["a"]}]
    attacked.create("Run", "tree", {"owner": attacked.owner("theirs"), "stages": stages})
    forged = run_of(attacked, "tree-c", "mine")
    forged["metadata"]["ownerReferences"] = [reference(attacked, "tree")]
    refused(mallory.post(runs_of(attacked), forged), "only Jobtree makes a Run the stage of another")
    wait_until(lambda: attacked.plane.rest.get(attacked.path("tree-a")).accepted, "its stage is made")
    freed = {"metadata": {"ownerReferences": None}}
    refused(mallory.merge(attacked.path("tree-a"), freed), "only Jobtree makes a Run the stage of another")


def test_a_template_that_says_who_and_where_it_is(attacked: Scene, mallory: Rest) -> None:
    claimed = gpu_container(resource="deviceclass.resource.kubernetes.io/gpu.nvidia.com")
    for field, value in (
        ("nodeName", f"{attacked.name}-nv-a-01"),
        ("containers", [gpu_container()]),
        ("initContainers", [claimed]),
    ):
        forged = run_of(attacked, "r", "mine", template={"spec": {"containers": [MAIN], field: value}})
        refused(mallory.post(runs_of(attacked), forged), "Jobtree")
    attacked.run("other", "theirs", 8)
    other = reference(attacked, "other")
    labels = {f"{GROUP}/run": "other", f"{GROUP}/run-uid": other["uid"], f"{GROUP}/rank": "0"}
    metadata = {"labels": labels, "ownerReferences": [other], "name": "other", "namespace": "kube-system"}
    template = {"metadata": metadata, "spec": {"containers": [MAIN]}}
    assert mallory.post(runs_of(attacked), run_of(attacked, "r", "mine", template=template)).accepted
    attacked.await_running("r", 1)
    (rank,) = attacked.pods("r")
    mine = reference(attacked, "r")
    assert [one["uid"] for one in rank["metadata"]["ownerReferences"]] == [mine["uid"]]
    assert rank["metadata"]["labels"][f"{GROUP}/run-uid"] == mine["uid"]
    assert len(attacked.pods("other")) <= 1


# GPUs around Jobtree


@pytest.mark.parametrize(
    "fields",
    [
        {"containers": [gpu_container()]},
        {"containers": [gpu_container("requests")]},
        {"containers": [MAIN, gpu_container(resource="amd.com/gpu")]},
        {"containers": [gpu_container(resource="deviceclass.resource.kubernetes.io/gpu.nvidia.com")]},
        {"containers": [MAIN], "initContainers": [gpu_container()]},
        {"containers": [gpu_container()], "nodeName": "anywhere"},
        {"containers": [gpu_container()], "annotations": {f"{GROUP}/risk": "[]"}},
    ],
    ids=["limits", "requests", "amd", "claimed", "init", "node", "annotated"],
)
def test_gpu_pods_in_a_managed_namespace(attacked: Scene, mallory: Rest, fields: dict[str, Any]) -> None:
    answer = mallory.post(pods_of(attacked), pod("thief", **fields))
    refused(answer, "gpu asks for GPUs", f"managed namespace {attacked.name}", "kubectl runs submit")


def test_gpus_by_other_ways_in_a_managed_namespace(attacked: Scene, mallory: Rest) -> None:
    assert mallory.post(pods_of(attacked), pod("plain")).accepted
    path = f"{pods_of(attacked)}/plain"
    late = {"spec": {"ephemeralContainers": [gpu_container()]}}
    refused(mallory.merge(f"{path}/ephemeralcontainers", late), "ephemeralContainers")
    mine = claim("gpu.nvidia.com")
    refused(mallory.post(claims_of(attacked.name), mine), "gpu.nvidia.com", "submit a Run")
    either = [{"name": "gpu", "firstAvailable": [{"name": "a", "deviceClassName": "gpu.amd.com"}]}]
    template = {**mine, "kind": "ResourceClaimTemplate", "spec": {"spec": {"devices": {"requests": either}}}}
    templates = claims_of(attacked.name).replace("resourceclaims", "resourceclaimtemplates")
    refused(mallory.post(templates, template), "gpu.amd.com", "submit a Run")


def test_claims_in_the_words_of_older_clusters(attacked: Scene, mallory: Rest) -> None:
    a_class = {"deviceClassName": "gpu.nvidia.com"}
    for version, asked in (("v1beta1", a_class), ("v1beta2", {"exactly": a_class})):
        mine = {**claim("gpu.nvidia.com"), "apiVersion": f"resource.k8s.io/{version}"}
        mine["spec"] = {"devices": {"requests": [{"name": "gpu", **asked}]}}
        path = claims_of(attacked.name).replace("/v1/", f"/{version}/")
        refused(mallory.post(path, mine), "gpu.nvidia.com", "submit a Run")


def test_a_deployment_and_a_job_get_no_gpus_either(attacked: Scene, mallory: Rest) -> None:
    spec = {"containers": [gpu_container()]}
    labelled = {"metadata": {"labels": {"app": "thief"}}, "spec": spec}
    deployment = {"selector": {"matchLabels": {"app": "thief"}}, "template": labelled}
    job = {"template": {"spec": {**spec, "restartPolicy": "Never"}}}
    for group, plural, wanted in (("apps", "deployments", deployment), ("batch", "jobs", job)):
        collection = f"/apis/{group}/v1/namespaces/{attacked.name}/{plural}"
        answer = mallory.post(collection, {"metadata": {"name": "thief"}, "spec": wanted})
        assert answer.accepted, answer.message

    def told() -> set[str]:
        events = attacked.items(f"/api/v1/namespaces/{attacked.name}/events")
        return {
            event["involvedObject"]["kind"] for event in events if "only Jobtree gives" in event["message"]
        }

    wait_until(lambda: told() == {"ReplicaSet", "Job"}, "both say why they have no pods")
    assert [one["metadata"]["name"] for one in attacked.items(pods_of(attacked))] == []
