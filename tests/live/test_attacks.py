"""Attacks on money and records that must fail, each with the credentials of a real user."""

from tests.live.guarding import (
    BOTH_PATHS,
    BUDGETS,
    GROUP,
    LEASES,
    RBAC,
    Guarded,
    grant,
    grant_spend,
    refused,
    run_of,
    runs_of,
)
from tests.live.managing import Scene
from tests.live.manifests import API_VERSION, budget, lease, reservation
from tests.live.process import wait_until
from tests.live.rest import Rest

PATHS = BOTH_PATHS

# Money


def test_charging_another_team_by_editing_its_waiting_run(attacked: Scene, mallory: Rest) -> None:
    attacked.run("holds", "theirs", 16)
    attacked.await_running("holds", 2)
    attacked.run("waits", "theirs", 16)
    attacked.await_phase("Reserved", "waits")
    evil = {"spec": {"containers": [{"name": "evil", "image": "example.com/evil:1"}]}}
    answer = mallory.merge(attacked.path("waits"), {"spec": {"template": evil}})
    refused(answer, f"you may not charge {attacked.owner('theirs')}")


def test_a_namespaces_administrator_cannot_give_himself_the_right_to_spend(
    guarded: Guarded, attacked: Scene, mallory: Rest
) -> None:
    user = f"mallory@{attacked.name}"
    rbac = {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"]}
    grant(guarded.plane, user, [{**rbac, "verbs": ["create", "update", "get"]}], namespace=attacked.name)
    spend = {"apiGroups": [GROUP], "resources": ["budgets"], "verbs": ["spend"]}
    role = {"metadata": {"name": "rich"}, "rules": [spend]}
    refused(mallory.post(f"{RBAC}/namespaces/{attacked.name}/roles", role), "attempting to grant RBAC")
    # Even where somebody gives it to him, a right in a namespace is not a right to a Budget of the cluster.
    rule = {**spend, "resourceNames": [attacked.owner("theirs")]}
    grant(guarded.plane, user, [rule], namespace=attacked.name)
    refused(mallory.post(runs_of(attacked), run_of(attacked, "r", "theirs")), "you may not charge")


def test_spending_ends_with_the_right_to_it(guarded: Guarded, attacked: Scene, mallory: Rest) -> None:
    grant_spend(guarded.plane, f"mallory@{attacked.name}", attacked.owner("theirs"))
    assert mallory.post(f"{runs_of(attacked)}?dryRun=All", run_of(attacked, "r", "theirs")).accepted
    bindings = guarded.plane.rest.get(f"{RBAC}/clusterrolebindings").body["items"]
    mine = [one for one in bindings if f"mallory-{attacked.name}" in one["metadata"]["name"]]
    for binding in mine:
        assert guarded.plane.rest.delete(f"{RBAC}/clusterrolebindings/{binding['metadata']['name']}").accepted

    def denied() -> bool:
        answer = mallory.post(f"{runs_of(attacked)}?dryRun=All", run_of(attacked, "r", "theirs"))
        return "you may not charge" in answer.message

    wait_until(denied, "the right is gone")


def test_another_owner_or_other_sponsors_after_admission(attacked: Scene, mallory: Rest) -> None:
    assert mallory.post(runs_of(attacked), run_of(attacked, "r", "mine")).accepted
    attacked.await_running("r", 1)
    sponsors = {"allowBorrow": True, "sponsors": [attacked.owner("theirs")]}
    refused(mallory.merge(attacked.path("r"), {"spec": {"funding": sponsors}}), "only", "may change")
    refused(mallory.merge(attacked.path("r"), {"spec": {"owner": attacked.owner("theirs")}}))
    body = attacked.plane.rest.get(attacked.path("r")).body
    assert body["spec"]["owner"] == attacked.owner("mine")
    assert "sponsors" not in body["spec"].get("funding", {})


def test_the_owner_never_changes_not_even_to_one_that_may_be_charged(
    guarded: Guarded, attacked: Scene, mallory: Rest
) -> None:
    attacked.run("r", "theirs", 16)
    grant_spend(guarded.plane, f"mallory@{attacked.name}", attacked.owner("theirs"))
    refused(
        mallory.merge(attacked.path("r"), {"spec": {"owner": attacked.owner("mine")}}), "owner never changes"
    )


def test_a_budget_of_his_own(attacked: Scene, mallory: Rest) -> None:
    mine = budget(owner=attacked.owner("mine"))
    refused(mallory.post(BUDGETS, mine), "cannot create resource")
    refused(
        mallory.merge(f"{BUDGETS}/{attacked.name}-mine", {"spec": {"envelopes": []}}), "cannot patch resource"
    )


# Records


def test_leases_by_hand(attacked: Scene, mallory: Rest) -> None:
    attacked.run("r", "mine", 8)
    attacked.await_running("r", 1)
    (mine,) = attacked.leases("r")
    path = f"{LEASES}/{mine['metadata']['name']}"
    forged = lease(owner=attacked.owner("theirs"))
    refused(mallory.post(LEASES, forged), "gpuleases", "only Jobtree writes")
    refused(mallory.merge(path, {"metadata": {"labels": {"a": "b"}}}), "only Jobtree writes")
    refused(mallory.delete(path), mine["metadata"]["name"], "only Jobtree writes")
    refused(mallory.delete(LEASES), "only Jobtree writes")
    ended = {"end": mine["spec"]["start"], "closureReason": "Completed"}
    refused(mallory.merge(f"{path}/status", {"status": ended}), "gpuleases/status", "only Jobtree writes")
    assert attacked.leases("r") == [mine]


def test_reservations_by_hand(attacked: Scene, mallory: Rest) -> None:
    attacked.run("holds", "theirs", 16)
    attacked.await_running("holds", 2)
    attacked.run("waits", "theirs", 16)
    wait_until(lambda: bool(attacked.reservations()), "there is a Reservation")
    collection = f"/apis/{API_VERSION}/namespaces/{attacked.name}/reservations"
    path = f"{collection}/{attacked.reservations()[0]['metadata']['name']}"
    forged = reservation()
    forged["metadata"] = {"name": "waits-7"}
    refused(mallory.post(collection, forged), "only Jobtree writes")
    refused(mallory.merge(path, {"spec": {"earliestStart": "2099-01-01T00:00:00Z"}}), "only Jobtree writes")
    refused(mallory.merge(f"{path}/status", {"status": {"state": "Cancelled"}}), "only Jobtree writes")
    refused(mallory.delete(path), "only Jobtree writes")


def test_status_by_hand(attacked: Scene, mallory: Rest) -> None:
    attacked.run("r", "mine", 8)
    attacked.await_running("r", 1)
    for path in (attacked.path("r"), f"{BUDGETS}/{attacked.name}-theirs"):
        refused(mallory.merge(f"{path}/status", {"status": {}}), "/status", "only Jobtree writes")
    # With the object itself the server takes no status at all.
    born = {**run_of(attacked, "born", "mine"), "status": {"phase": "Completed", "attempt": 99}}
    assert mallory.post(f"{runs_of(attacked)}?dryRun=All", born).body.get("status", {}).get("attempt") != 99
    changed = mallory.merge(attacked.path("r"), {"status": {"phase": "Completed"}})
    assert changed.body["status"]["phase"] == "Running"
