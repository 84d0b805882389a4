"""The admission policies let everything pass that is nobody's attack, and say why they refuse the rest."""

from typing import Any

import pytest

from tests.live.guarding import (
    BOTH_PATHS,
    BUDGETS,
    GROUP,
    LEASES,
    MAIN,
    MANAGED,
    Guarded,
    claim,
    claims_of,
    gpu_container,
    grant_spend,
    label,
    only_with,
    pod,
    pods_of,
    run_of,
    runs_of,
)
from tests.live.managing import ACCOUNT, NAMESPACE, Scene
from tests.live.manifests import API_VERSION, budget, envelope, lease
from tests.live.process import wait_until

PATHS = BOTH_PATHS
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"


@pytest.fixture
def scene(guarded: Guarded) -> Scene:
    scene = guarded.scene()
    scene.nodes("nv-a", 2)
    scene.budget("a", 8)
    scene.budget("b", 8)
    return scene


def is_gone(guarded: Guarded, path: str) -> bool:
    return guarded.plane.rest.get(path).status == 404


@only_with("policies")
def test_the_server_has_nothing_against_any_expression(guarded: Guarded) -> None:
    names = [one["metadata"]["name"] for one in guarded.plane.rest.get(POLICIES).body["items"]]
    assert sorted(names) == [
        "jobtree-gpu-claims",
        "jobtree-gpu-pods",
        "jobtree-pods",
        "jobtree-records",
        "jobtree-runs",
    ]

    def status(name: str) -> Any:  # noqa: ANN401  JSON
        return guarded.plane.rest.get(f"{POLICIES}/{name}").body.get("status", {})

    wait_until(lambda: all("typeChecking" in status(name) for name in names), "all were looked at")
    assert [status(name)["typeChecking"] for name in names] == [{}] * len(names)


def test_whoever_may_spend_runs_edits_and_cancels(guarded: Guarded, scene: Scene) -> None:
    alice = guarded.person(scene, "alice", "a")
    assert alice.post(runs_of(scene), run_of(scene, "mine", "a")).accepted
    assert alice.post(runs_of(scene), run_of(scene, "next", "a")).accepted
    scene.await_running("mine", 1)
    scene.await_phase("Reserved", "next")
    edited = alice.merge(f"{runs_of(scene)}/next", {"spec": {"runtime": {"maxDuration": "1h"}}})
    assert edited.accepted, edited.message
    kubeconfig = guarded.plane.kubeconfig(f"alice@{scene.name}")
    for name in ("mine", "next"):
        guarded.plane.kubectl("delete", "run", name, "-n", scene.name, kubeconfig=kubeconfig)
    wait_until(lambda: scene.pods("mine") == [], "its pods are gone")
    assert scene.endings("mine") == ["Cancelled"]
    wait_until(lambda: scene.reservations() == [], "the garbage collector took the Reservation")


def test_a_right_to_spend_without_names_covers_every_owner(guarded: Guarded, scene: Scene) -> None:
    rich = guarded.person(scene, "rich")
    grant_spend(guarded.plane, f"rich@{scene.name}")
    for team in ("a", "b", "nobody"):
        answer = rich.post(f"{runs_of(scene)}?dryRun=All", run_of(scene, "r", team))
        assert answer.accepted, answer.message


def test_whoever_may_not_spend_is_told_what_to_ask_for(guarded: Guarded, scene: Scene) -> None:
    alice = guarded.person(scene, "alice", "a")
    owner = scene.owner("b")
    answer = alice.post(runs_of(scene), run_of(scene, "r", "b"))
    assert answer.status == 403
    assert f"you may not charge {owner}: ask for the verb spend on budgets named {owner}" in answer.message


def test_jobtree_makes_the_stages_of_a_tree(guarded: Guarded, scene: Scene) -> None:
    alice = guarded.person(scene, "alice", "a")
    stages = [{"name": "train", "resources": {"gpuType": scene.flavor, "totalGPUs": 8}}]
    tree = run_of(scene, "tree", "a", resources=None, stages=stages)
    del tree["spec"]["resources"]
    answer = alice.post(runs_of(scene), tree)
    assert answer.accepted, answer.message
    scene.await_running("tree-train", 1)
    assert alice.delete(f"{runs_of(scene)}/tree").accepted
    wait_until(lambda: is_gone(guarded, scene.path("tree-train")), "its stage is gone")
    wait_until(lambda: scene.pods("tree-train") == [], "its pods are gone")


def test_a_namespace_goes_with_all_that_is_in_it(guarded: Guarded, scene: Scene) -> None:
    # The namespace controller comes back when it believes that the grace period is over.
    template = {"spec": {"containers": [MAIN], "terminationGracePeriodSeconds": 1}}
    scene.run("holds", "a", 8, template=template)
    scene.run("waits", "a", 8)
    scene.await_running("holds", 1)
    scene.await_phase("Reserved", "waits")
    wait_until(lambda: len(scene.reservations()) == 1, "there is a Reservation")
    path = f"/api/v1/namespaces/{scene.name}"
    assert guarded.plane.rest.delete(path).accepted
    wait_until(lambda: is_gone(guarded, path), "the namespace is gone")
    assert scene.endings("holds") == ["Cancelled"]


def test_the_garbage_collector_takes_what_a_run_left_behind(guarded: Guarded, scene: Scene) -> None:
    gone = {"apiVersion": API_VERSION, "kind": "Run", "name": "gone", "controller": True}
    left = pod("left", ownerReferences=[{**gone, "uid": "5f0c9a3e-0000-4000-8000-000000000009"}])
    assert guarded.break_glass.post(pods_of(scene), left).accepted
    wait_until(lambda: is_gone(guarded, f"{pods_of(scene)}/left"), "it is gone")


def test_administrators_write_budgets(guarded: Guarded, scene: Scene) -> None:
    admin, mine = guarded.plane.rest, budget(owner=scene.owner("c"))
    mine["metadata"]["name"] = f"{scene.name}-c"
    path = f"{BUDGETS}/{mine['metadata']['name']}"
    assert admin.post(BUDGETS, mine).accepted
    assert admin.merge(path, {"spec": {"envelopes": [envelope(concurrency=16)]}}).accepted
    assert admin.delete(path).accepted


def test_an_administrator_breaks_the_glass_by_impersonation(guarded: Guarded) -> None:
    record = lease()
    record["metadata"]["name"] = "by-hand"
    refused = guarded.plane.rest.post(f"{LEASES}?dryRun=All", record)
    assert "only Jobtree writes these, and admin is not Jobtree" in refused.message
    assert guarded.break_glass.post(f"{LEASES}?dryRun=All", record).accepted
    assert guarded.break_glass.post(LEASES, record).accepted
    groups = ("--as-group=system:masters", "--as-group=jobtree:break-glass")
    guarded.plane.kubectl("delete", "gpulease", "by-hand", "--as=admin", *groups)


def test_pods_that_are_nobody_elses_business(guarded: Guarded, scene: Scene) -> None:
    alice = guarded.person(scene, "alice")
    plain = pod("plain", labels={"app": "web"}, annotations={f"{GROUP}/note": "mine"})
    assert alice.post(pods_of(scene), plain).accepted
    assert alice.merge(f"{pods_of(scene)}/plain", {"metadata": {"labels": {"app": "other"}}}).accepted
    assert alice.post(f"{claims_of(scene.name)}?dryRun=All", claim("nic.example.com")).accepted
    label(guarded.plane, scene.name, {MANAGED: "false"})
    with_gpu = pod("gpu", containers=[gpu_container()])
    wait_until(
        lambda: alice.post(f"{pods_of(scene)}?dryRun=All", with_gpu).accepted,
        "where Jobtree does not manage the namespace, GPU pods are free",
    )


def test_labels_of_their_own_may_be_put_on_ranks(guarded: Guarded, scene: Scene) -> None:
    alice = guarded.person(scene, "alice", "a")
    assert alice.post(runs_of(scene), run_of(scene, "mine", "a")).accepted
    scene.await_running("mine", 1)
    path = f"{pods_of(scene)}/{scene.pods('mine')[0]['metadata']['name']}"
    answer = alice.merge(path, {"metadata": {"labels": {"mine": "yes"}, "annotations": {"note": "x"}}})
    assert answer.accepted, answer.message


WATCHED = ("get", "list", "watch")
RIGHTS = {
    "budgets": WATCHED,
    "runs": (*WATCHED, "create", "patch"),
    "reservations": (*WATCHED, "create", "patch", "delete"),
    "gpuleases": (*WATCHED, "create", "delete"),  # it deletes what stands in the archive
    "budgets/status": ("update",),
    "runs/status": ("update",),
    "reservations/status": ("update",),
    "gpuleases/status": ("patch",),
    "runs/finalizers": ("update",),
    "nodes": (*WATCHED, "patch"),
    "pods": (*WATCHED, "create", "patch", "delete"),
    "services": ("get", "create"),
    "events": ("create",),
    "validatingwebhookconfigurations jobtree-webhook": ("get", "patch"),
    "validatingwebhookconfigurations jobtree-webhook-rules": ("get", "patch"),
    "mutatingwebhookconfigurations jobtree-webhook": ("get", "patch"),
}
"""What the manager may do in the whole cluster."""
RIGHTS_AT_HOME = {
    "leases": ("create",),
    "leases jobtree-controller-manager": ("get", "update"),
    "secrets": ("create",),
    "secrets jobtree-lottery-key": ("get",),
    "secrets jobtree-webhook-cert": ("get", "update"),
    "configmaps jobtree-policy": WATCHED,
}
"""What it may do besides in its own namespace."""
RIGHTS_BEFORE_1_30 = {"subjectaccessreviews": ("create",)}
"""What it may do besides where the webhook holds everybody to the rules: ask what others may do."""


def test_the_managers_rights_are_these_and_no_others(
    guarded: Guarded, request: pytest.FixtureRequest
) -> None:
    before = RIGHTS_BEFORE_1_30 if "webhook" in request.node.name else {}
    expected = {"": RIGHTS | before, NAMESPACE: RIGHTS_AT_HOME}
    found = [
        (where, f"{resource} {name}".strip(), verb)
        for where, rules in rules_of_the_manager(guarded)
        for rule in rules
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    ]
    assert sorted(found) == sorted(
        (where, resource, verb)
        for where, rights in expected.items()
        for resource, verbs in rights.items()
        for verb in verbs
    )
    groups = [rule["apiGroups"] for _, rules in rules_of_the_manager(guarded) for rule in rules]
    assert not [group for group in groups if "*" in group], "a wildcard"


def rules_of_the_manager(guarded: Guarded) -> list[tuple[str, Any]]:
    """All roles that are bound to its account, with the namespace where they hold."""
    found, rest, rbac = [], guarded.plane.rest, "/apis/rbac.authorization.k8s.io/v1"
    for plural in ("clusterrolebindings", "rolebindings"):
        for binding in rest.get(f"{rbac}/{plural}").body["items"]:
            subjects = [(one["name"], one.get("namespace")) for one in binding.get("subjects", ())]
            if (ACCOUNT, NAMESPACE) in subjects:
                where, role = binding["metadata"].get("namespace", ""), binding["roleRef"]
                scope = f"namespaces/{where}/" if role["kind"] == "Role" else ""
                path = f"{rbac}/{scope}{role['kind'].lower()}s/{role['name']}"
                found.append((where, rest.get(path).body["rules"]))
    return found
