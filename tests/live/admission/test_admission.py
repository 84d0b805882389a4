"""Requests that admission must allow, the message of refusals, and the manager's own rights."""

from typing import Any

import pytest

from tests.live.admission.admission_cluster import (
    BOTH_CHECKERS,
    MANAGED_LABEL,
    AdmissionCluster,
    label_namespace,
    only_with,
)
from tests.live.admission.object_manifests import (
    MAIN_CONTAINER,
    claim_manifest,
    claims_path,
    gpu_container,
    pod_manifest,
    run_manifest,
)
from tests.live.cluster.rbac import grant_spend
from tests.live.cluster.server_process import wait_until
from tests.live.crds.manifests import API_VERSION, BUDGETS_PATH, GROUP, LEASES_PATH, budget, envelope, lease
from tests.live.manager.installation import ACCOUNT, NAMESPACE
from tests.live.manager.tenant import Tenant

CHECKERS = BOTH_CHECKERS
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"


@pytest.fixture
def tenant(admission_cluster: AdmissionCluster) -> Tenant:
    tenant = admission_cluster.create_tenant()
    tenant.add_nodes("nv-a", 2)
    tenant.create_budget("a", 8)
    tenant.create_budget("b", 8)
    return tenant


def is_gone(admission_cluster: AdmissionCluster, path: str) -> bool:
    return admission_cluster.plane.rest.get(path).status == 404


@only_with("policies")
def test_admission_policies_pass_type_checking(admission_cluster: AdmissionCluster) -> None:
    names = [
        policy["metadata"]["name"] for policy in admission_cluster.plane.rest.get(POLICIES).body["items"]
    ]
    assert sorted(names) == [
        "jobtree-gpu-claims",
        "jobtree-gpu-pods",
        "jobtree-pods",
        "jobtree-records",
        "jobtree-runs",
    ]

    def status(name: str) -> Any:  # noqa: ANN401  JSON
        return admission_cluster.plane.rest.get(f"{POLICIES}/{name}").body.get("status", {})

    wait_until(lambda: all("typeChecking" in status(name) for name in names), "all policies are type-checked")
    assert [status(name)["typeChecking"] for name in names] == [{}] * len(names)


def test_user_with_spend_creates_edits_and_cancels_runs(
    admission_cluster: AdmissionCluster, tenant: Tenant
) -> None:
    alice = admission_cluster.create_user(tenant, "alice", "a")
    assert alice.post(tenant.runs_path, run_manifest(tenant, "mine", "a")).accepted
    assert alice.post(tenant.runs_path, run_manifest(tenant, "next", "a")).accepted
    tenant.await_running_pods("mine", 1)
    tenant.await_phase("Reserved", "next")
    edited = alice.merge(f"{tenant.runs_path}/next", {"spec": {"runtime": {"maxDuration": "1h"}}})
    assert edited.accepted, edited.message
    kubeconfig = admission_cluster.plane.kubeconfig(f"alice@{tenant.name}")
    for name in ("mine", "next"):
        admission_cluster.plane.kubectl("delete", "run", name, "-n", tenant.name, kubeconfig=kubeconfig)
    wait_until(lambda: tenant.pods("mine") == [], "its pods are deleted")
    assert tenant.closure_reasons("mine") == ["Cancelled"]
    wait_until(lambda: tenant.reservations() == [], "the garbage collector deletes the Reservation")


def test_spend_without_resource_names_covers_every_owner(
    admission_cluster: AdmissionCluster, tenant: Tenant
) -> None:
    user = admission_cluster.create_user(tenant, "rich")
    grant_spend(admission_cluster.plane, f"rich@{tenant.name}")
    for team in ("a", "b", "nobody"):
        answer = user.post(f"{tenant.runs_path}?dryRun=All", run_manifest(tenant, "r", team))
        assert answer.accepted, answer.message


def test_run_is_refused_with_advice_when_user_may_not_spend(
    admission_cluster: AdmissionCluster, tenant: Tenant
) -> None:
    alice = admission_cluster.create_user(tenant, "alice", "a")
    owner = tenant.owner("b")
    answer = alice.post(tenant.runs_path, run_manifest(tenant, "r", "b"))
    assert answer.status == 403
    assert f"you may not charge {owner}: ask for the verb spend on budgets named {owner}" in answer.message


def test_manager_creates_and_deletes_stages_of_a_job_tree(
    admission_cluster: AdmissionCluster, tenant: Tenant
) -> None:
    alice = admission_cluster.create_user(tenant, "alice", "a")
    stages = [{"name": "train", "resources": {"gpuType": tenant.flavor, "totalGPUs": 8}}]
    tree = run_manifest(tenant, "tree", "a", resources=None, stages=stages)
    del tree["spec"]["resources"]
    answer = alice.post(tenant.runs_path, tree)
    assert answer.accepted, answer.message
    tenant.await_running_pods("tree-train", 1)
    assert alice.delete(f"{tenant.runs_path}/tree").accepted
    wait_until(lambda: is_gone(admission_cluster, tenant.run_path("tree-train")), "its stage is deleted")
    wait_until(lambda: tenant.pods("tree-train") == [], "its pods are deleted")


def test_namespace_deletion_removes_runs_and_closes_leases(
    admission_cluster: AdmissionCluster, tenant: Tenant
) -> None:
    # The namespace controller tries again after the grace period, so it is short.
    template = {"spec": {"containers": [MAIN_CONTAINER], "terminationGracePeriodSeconds": 1}}
    tenant.create_run("holds", "a", 8, template=template)
    tenant.create_run("waits", "a", 8)
    tenant.await_running_pods("holds", 1)
    tenant.await_phase("Reserved", "waits")
    wait_until(lambda: len(tenant.reservations()) == 1, "there is a Reservation")
    path = f"/api/v1/namespaces/{tenant.name}"
    assert admission_cluster.plane.rest.delete(path).accepted
    wait_until(lambda: is_gone(admission_cluster, path), "the namespace is deleted")
    assert tenant.closure_reasons("holds") == ["Cancelled"]


def test_garbage_collector_deletes_pods_of_a_deleted_run(
    admission_cluster: AdmissionCluster, tenant: Tenant
) -> None:
    deleted_run = {"apiVersion": API_VERSION, "kind": "Run", "name": "gone", "controller": True}
    left = pod_manifest(
        "left", ownerReferences=[{**deleted_run, "uid": "5f0c9a3e-0000-4000-8000-000000000009"}]
    )
    assert admission_cluster.break_glass.post(tenant.pods_path, left).accepted
    wait_until(lambda: is_gone(admission_cluster, f"{tenant.pods_path}/left"), "the pod is deleted")


def test_administrator_creates_edits_and_deletes_budgets(
    admission_cluster: AdmissionCluster, tenant: Tenant
) -> None:
    admin, manifest = admission_cluster.plane.rest, budget(owner=tenant.owner("c"))
    manifest["metadata"]["name"] = f"{tenant.name}-c"
    path = f"{BUDGETS_PATH}/{manifest['metadata']['name']}"
    assert admin.post(BUDGETS_PATH, manifest).accepted
    assert admin.merge(path, {"spec": {"envelopes": [envelope(concurrency=16)]}}).accepted
    assert admin.delete(path).accepted


def test_administrator_writes_leases_as_member_of_the_break_glass_group(
    admission_cluster: AdmissionCluster,
) -> None:
    record = lease()
    record["metadata"]["name"] = "by-hand"
    refusal = admission_cluster.plane.rest.post(f"{LEASES_PATH}?dryRun=All", record)
    assert "only Jobtree writes these, and admin is not Jobtree" in refusal.message
    assert admission_cluster.break_glass.post(f"{LEASES_PATH}?dryRun=All", record).accepted
    assert admission_cluster.break_glass.post(LEASES_PATH, record).accepted
    groups = ("--as-group=system:masters", "--as-group=jobtree:break-glass")
    admission_cluster.plane.kubectl("delete", "gpulease", "by-hand", "--as=admin", *groups)


def test_pods_without_gpus_or_in_unmanaged_namespaces_are_allowed(
    admission_cluster: AdmissionCluster, tenant: Tenant
) -> None:
    alice = admission_cluster.create_user(tenant, "alice")
    plain = pod_manifest("plain", labels={"app": "web"}, annotations={f"{GROUP}/note": "mine"})
    assert alice.post(tenant.pods_path, plain).accepted
    assert alice.merge(f"{tenant.pods_path}/plain", {"metadata": {"labels": {"app": "other"}}}).accepted
    assert alice.post(f"{claims_path(tenant.name)}?dryRun=All", claim_manifest("nic.example.com")).accepted
    label_namespace(admission_cluster.plane, tenant.name, {MANAGED_LABEL: "false"})
    with_gpu = pod_manifest("gpu", containers=[gpu_container()])
    wait_until(
        lambda: alice.post(f"{tenant.pods_path}?dryRun=All", with_gpu).accepted,
        "GPU pods are allowed in a namespace that is not managed",
    )


def test_user_may_add_own_labels_and_annotations_to_ranks(
    admission_cluster: AdmissionCluster, tenant: Tenant
) -> None:
    alice = admission_cluster.create_user(tenant, "alice", "a")
    assert alice.post(tenant.runs_path, run_manifest(tenant, "mine", "a")).accepted
    tenant.await_running_pods("mine", 1)
    path = f"{tenant.pods_path}/{tenant.pods('mine')[0]['metadata']['name']}"
    answer = alice.merge(path, {"metadata": {"labels": {"mine": "yes"}, "annotations": {"note": "x"}}})
    assert answer.accepted, answer.message


READ_VERBS = ("get", "list", "watch")
RIGHTS = {
    "budgets": READ_VERBS,
    "runs": (*READ_VERBS, "create", "patch"),
    "reservations": (*READ_VERBS, "create", "patch", "delete"),
    "gpuleases": (*READ_VERBS, "create", "delete"),  # it deletes archived leases
    "budgets/status": ("update",),
    "runs/status": ("update", "patch"),
    "reservations/status": ("update",),
    "gpuleases/status": ("patch",),
    "runs/finalizers": ("update",),
    "nodes": (*READ_VERBS, "patch"),
    "pods": (*READ_VERBS, "create", "patch", "delete"),
    "services": (*READ_VERBS, "create"),
    "events": ("create",),
    "validatingwebhookconfigurations jobtree-webhook": ("get", "patch"),
    "validatingwebhookconfigurations jobtree-webhook-rules": ("get", "patch"),
    "mutatingwebhookconfigurations jobtree-webhook": ("get", "patch"),
}
"""The rights of the manager in the whole cluster."""
RIGHTS_IN_OWN_NAMESPACE = {
    "leases": ("create",),
    "leases jobtree-controller-manager": ("get", "update"),
    "secrets": ("create",),
    "secrets jobtree-lottery-key": ("get",),
    "secrets jobtree-webhook-cert": ("get", "update"),
    "configmaps jobtree-policy": READ_VERBS,
}
"""Further rights in its own namespace."""
RIGHTS_BEFORE_1_30 = {"subjectaccessreviews": ("create",)}
"""Further rights where the webhook enforces the rules: it asks what users may do."""


def test_manager_has_exactly_the_listed_rights(
    admission_cluster: AdmissionCluster, request: pytest.FixtureRequest
) -> None:
    extra = RIGHTS_BEFORE_1_30 if "webhook" in request.node.name else {}
    expected = {"": RIGHTS | extra, NAMESPACE: RIGHTS_IN_OWN_NAMESPACE}
    actual = [
        (namespace, f"{resource} {name}".strip(), verb)
        for namespace, rules in manager_rules(admission_cluster)
        for rule in rules
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    ]
    assert sorted(actual) == sorted(
        (namespace, resource, verb)
        for namespace, rights in expected.items()
        for resource, verbs in rights.items()
        for verb in verbs
    )
    groups = [rule["apiGroups"] for _, rules in manager_rules(admission_cluster) for rule in rules]
    assert not [group for group in groups if "*" in group], "a rule has a wildcard"


def manager_rules(admission_cluster: AdmissionCluster) -> list[tuple[str, Any]]:
    """Returns the rules of all roles that are bound to the manager's account, with their namespaces."""
    rules, rest, rbac = [], admission_cluster.plane.rest, "/apis/rbac.authorization.k8s.io/v1"
    for plural in ("clusterrolebindings", "rolebindings"):
        for binding in rest.get(f"{rbac}/{plural}").body["items"]:
            subjects = [
                (subject["name"], subject.get("namespace")) for subject in binding.get("subjects", ())
            ]
            if (ACCOUNT, NAMESPACE) in subjects:
                namespace, role = binding["metadata"].get("namespace", ""), binding["roleRef"]
                scope = f"namespaces/{namespace}/" if role["kind"] == "Role" else ""
                path = f"{rbac}/{scope}{role['kind'].lower()}s/{role['name']}"
                rules.append((namespace, rest.get(path).body["rules"]))
    return rules
