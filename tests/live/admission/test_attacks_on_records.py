"""Attacks on budgets and records that must fail, with the credentials of a user."""

from tests.live.admission.admission_cluster import BOTH_CHECKERS, AdmissionCluster
from tests.live.admission.object_manifests import assert_refused, run_manifest
from tests.live.cluster.rbac import RBAC, grant, grant_spend
from tests.live.cluster.rest_client import RestClient
from tests.live.cluster.server_process import wait_until
from tests.live.crds.manifests import (
    API_VERSION,
    BUDGETS_PATH,
    GROUP,
    LEASES_PATH,
    budget,
    lease,
    reservation,
)
from tests.live.manager.tenant import Tenant

CHECKERS = BOTH_CHECKERS

# Budgets


def test_edit_of_another_teams_waiting_run_is_refused(tenant: Tenant, attacker: RestClient) -> None:
    tenant.create_run("holds", "theirs", 16)
    tenant.await_running_pods("holds", 2)
    tenant.create_run("waits", "theirs", 16)
    tenant.await_phase("Reserved", "waits")
    template = {"spec": {"containers": [{"name": "evil", "image": "example.com/evil:1"}]}}
    answer = attacker.merge(tenant.run_path("waits"), {"spec": {"template": template}})
    assert_refused(answer, f"you may not charge {tenant.owner('theirs')}")


def test_namespace_administrator_cannot_grant_spend(
    admission_cluster: AdmissionCluster, tenant: Tenant, attacker: RestClient
) -> None:
    user = f"attacker@{tenant.name}"
    rbac = {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"]}
    grant(
        admission_cluster.plane, user, [{**rbac, "verbs": ["create", "update", "get"]}], namespace=tenant.name
    )
    spend = {"apiGroups": [GROUP], "resources": ["budgets"], "verbs": ["spend"]}
    role = {"metadata": {"name": "rich"}, "rules": [spend]}
    assert_refused(attacker.post(f"{RBAC}/namespaces/{tenant.name}/roles", role), "attempting to grant RBAC")
    # Budgets are cluster-scoped, so a right that holds in one namespace does not count.
    rule = {**spend, "resourceNames": [tenant.owner("theirs")]}
    grant(admission_cluster.plane, user, [rule], namespace=tenant.name)
    assert_refused(attacker.post(tenant.runs_path, run_manifest(tenant, "r", "theirs")), "you may not charge")


def test_run_is_refused_after_spend_is_revoked(
    admission_cluster: AdmissionCluster, tenant: Tenant, attacker: RestClient
) -> None:
    grant_spend(admission_cluster.plane, f"attacker@{tenant.name}", tenant.owner("theirs"))
    assert attacker.post(f"{tenant.runs_path}?dryRun=All", run_manifest(tenant, "r", "theirs")).accepted
    bindings = admission_cluster.plane.rest.get(f"{RBAC}/clusterrolebindings").body["items"]
    own = [binding for binding in bindings if f"attacker-{tenant.name}" in binding["metadata"]["name"]]
    for binding in own:
        assert admission_cluster.plane.rest.delete(
            f"{RBAC}/clusterrolebindings/{binding['metadata']['name']}"
        ).accepted

    def denied() -> bool:
        answer = attacker.post(f"{tenant.runs_path}?dryRun=All", run_manifest(tenant, "r", "theirs"))
        return "you may not charge" in answer.message

    wait_until(denied, "the right is revoked")


def test_owner_and_sponsors_of_an_admitted_run_cannot_change(tenant: Tenant, attacker: RestClient) -> None:
    assert attacker.post(tenant.runs_path, run_manifest(tenant, "r", "mine")).accepted
    tenant.await_running_pods("r", 1)
    sponsors = {"allowBorrow": True, "sponsors": [tenant.owner("theirs")]}
    assert_refused(
        attacker.merge(tenant.run_path("r"), {"spec": {"funding": sponsors}}), "only", "may change"
    )
    assert_refused(attacker.merge(tenant.run_path("r"), {"spec": {"owner": tenant.owner("theirs")}}))
    body = tenant.plane.rest.get(tenant.run_path("r")).body
    assert body["spec"]["owner"] == tenant.owner("mine")
    assert "sponsors" not in body["spec"].get("funding", {})


def test_owner_of_a_run_cannot_change_when_user_may_spend_for_both(
    admission_cluster: AdmissionCluster, tenant: Tenant, attacker: RestClient
) -> None:
    tenant.create_run("r", "theirs", 16)
    grant_spend(admission_cluster.plane, f"attacker@{tenant.name}", tenant.owner("theirs"))
    assert_refused(
        attacker.merge(tenant.run_path("r"), {"spec": {"owner": tenant.owner("mine")}}), "owner never changes"
    )


def test_user_cannot_write_budgets(tenant: Tenant, attacker: RestClient) -> None:
    manifest = budget(owner=tenant.owner("mine"))
    assert_refused(attacker.post(BUDGETS_PATH, manifest), "cannot create resource")
    assert_refused(
        attacker.merge(f"{BUDGETS_PATH}/{tenant.name}-mine", {"spec": {"envelopes": []}}),
        "cannot patch resource",
    )


# Records


def test_user_cannot_write_leases(tenant: Tenant, attacker: RestClient) -> None:
    tenant.create_run("r", "mine", 8)
    tenant.await_running_pods("r", 1)
    (own_lease,) = tenant.leases("r")
    path = f"{LEASES_PATH}/{own_lease['metadata']['name']}"
    forged = lease(owner=tenant.owner("theirs"))
    assert_refused(attacker.post(LEASES_PATH, forged), "gpuleases", "only Jobtree writes")
    assert_refused(attacker.merge(path, {"metadata": {"labels": {"a": "b"}}}), "only Jobtree writes")
    assert_refused(attacker.delete(path), own_lease["metadata"]["name"], "only Jobtree writes")
    assert_refused(attacker.delete(LEASES_PATH), "only Jobtree writes")
    ended = {"end": own_lease["spec"]["start"], "closureReason": "Completed"}
    assert_refused(
        attacker.merge(f"{path}/status", {"status": ended}), "gpuleases/status", "only Jobtree writes"
    )
    assert tenant.leases("r") == [own_lease]


def test_user_cannot_write_reservations(tenant: Tenant, attacker: RestClient) -> None:
    tenant.create_run("holds", "theirs", 16)
    tenant.await_running_pods("holds", 2)
    tenant.create_run("waits", "theirs", 16)
    wait_until(lambda: bool(tenant.reservations()), "there is a Reservation")
    collection = f"/apis/{API_VERSION}/namespaces/{tenant.name}/reservations"
    path = f"{collection}/{tenant.reservations()[0]['metadata']['name']}"
    forged = reservation()
    forged["metadata"] = {"name": "waits-7"}
    assert_refused(attacker.post(collection, forged), "only Jobtree writes")
    assert_refused(
        attacker.merge(path, {"spec": {"earliestStart": "2099-01-01T00:00:00Z"}}), "only Jobtree writes"
    )
    assert_refused(
        attacker.merge(f"{path}/status", {"status": {"state": "Cancelled"}}), "only Jobtree writes"
    )
    assert_refused(attacker.delete(path), "only Jobtree writes")


def test_user_cannot_write_status(tenant: Tenant, attacker: RestClient) -> None:
    tenant.create_run("r", "mine", 8)
    tenant.await_running_pods("r", 1)
    for path in (tenant.run_path("r"), f"{BUDGETS_PATH}/{tenant.name}-theirs"):
        assert_refused(attacker.merge(f"{path}/status", {"status": {}}), "/status", "only Jobtree writes")
    # The API server ignores a status in a request for the object itself.
    manifest = {**run_manifest(tenant, "new", "mine"), "status": {"phase": "Completed", "attempt": 99}}
    assert (
        attacker.post(f"{tenant.runs_path}?dryRun=All", manifest).body.get("status", {}).get("attempt") != 99
    )
    changed = attacker.merge(tenant.run_path("r"), {"status": {"phase": "Completed"}})
    assert changed.body["status"]["phase"] == "Running"
