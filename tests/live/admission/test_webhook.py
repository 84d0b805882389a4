"""The answers of the webhook to users, and the operations that work while it is down."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.live.admission.admission_cluster import MANAGED_LABEL, label_namespace
from tests.live.admission.object_manifests import MAIN_CONTAINER, gpu_container, pod_manifest, run_manifest
from tests.live.admission.webhook_clients import SlowClients, WebhookClient, resident_bytes
from tests.live.admission.webhook_cluster import (
    BEFORE_1_30,
    CONFIGURATIONS,
    NO_POLICIES_FLAGS,
    WebhookEndpoint,
    await_webhook,
)
from tests.live.cluster.control_plane import ControlPlane
from tests.live.cluster.server_process import wait_until
from tests.live.crds.manifests import API_VERSION, BUDGETS_PATH, Manifest
from tests.live.manager.installation import (
    BASE,
    NAMESPACE,
    SHORT_NOTICE_POLICY,
    install,
    kustomize_documents,
    set_policy,
)
from tests.live.manager.manager_process import Manager
from tests.live.manager.tenant import Tenant
from tests.live.nodes.fake_fleet import FakeFleet
from tests.shown import REPOSITORY

WEBHOOK_FOR_NEW_OBJECTS = "new-runs-and-budgets-need-jobtree.rq.davidlangworthy.io"


class WebhookCluster:
    """An installation without admission policies, whose API server calls a manager of the tests."""

    def __init__(
        self, plane: ControlPlane, fleet: FakeFleet, endpoint: WebhookEndpoint, client: WebhookClient
    ) -> None:
        self.plane = plane
        self.fleet = fleet
        self.endpoint = endpoint
        self.client = client
        self.kubeconfig = install(plane)
        set_policy(plane, SHORT_NOTICE_POLICY)
        self.endpoint.apply(plane, BASE)
        self._shared: Manager | None = None

    def start_manager(self, *flags: str) -> Manager:
        """Stops the shared manager and starts another one, which its test must stop."""
        self.stop_shared_manager()
        return Manager(self.plane, self.kubeconfig, *flags)

    def shared_manager(self) -> Manager:
        """Returns the shared manager once its webhook answers; starts it if need be."""
        if self._shared is None or self._shared.has_ended:
            self._shared = Manager(self.plane, self.kubeconfig, *self.endpoint.flags)
            await_webhook(self.plane)
        return self._shared

    def stop_shared_manager(self) -> None:
        if self._shared is not None:
            self._shared.stop()

    def create_tenant(self, name: str) -> Tenant:
        tenant = Tenant(self.plane, self.fleet, name)
        label_namespace(self.plane, name, {MANAGED_LABEL: "true"})
        tenant.add_nodes("nv-a", 2)
        return tenant


@pytest.fixture(scope="module")
def webhook_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebhookCluster]:
    endpoint = WebhookEndpoint()
    client = WebhookClient(tmp_path_factory.mktemp("webhook-client"))
    with ControlPlane({**NO_POLICIES_FLAGS, **client.api_server_flags}) as plane:
        plane.start_controllers()
        plane.start_scheduler()
        cluster = WebhookCluster(plane, plane.start_fake_fleet(), endpoint, client)
        yield cluster
        cluster.stop_shared_manager()


@pytest.fixture
def answering_manager(webhook_cluster: WebhookCluster) -> Manager:
    return webhook_cluster.shared_manager()


def budget_of(name: str, *parents: str, gpus: int = 8) -> Manifest:
    envelopes = [{"name": "main", "flavor": f"GPU-{name.partition(':')[0]}", "concurrency": gpus}]
    spec = {"owner": name, "parents": list(parents), "envelopes": envelopes}
    metadata = {"name": name.replace(":", "-")}
    return {"apiVersion": API_VERSION, "kind": "Budget", "metadata": metadata, "spec": spec}


def submit(webhook_cluster: WebhookCluster, path: Path) -> str:
    """Returns the output of ``kubectl runs submit``."""
    command = [sys.executable, "-m", "jobtree.cli.main", "submit", "-f", str(path)]
    environment = webhook_cluster.plane.environment() | {"PYTHONPATH": str(REPOSITORY / "src")}
    result = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=180
    )
    return result.stdout + result.stderr


# Answers


@pytest.mark.usefixtures("answering_manager")
def test_cycle_of_parents_is_refused(webhook_cluster: WebhookCluster) -> None:
    admin = webhook_cluster.plane.rest
    answer = admin.post(BUDGETS_PATH, budget_of("cycle:a", "cycle:b"))
    assert answer.accepted
    assert "spec.parents[0]: cycle:b: has no Budget" in answer.warnings[0]
    closing = budget_of("cycle:b", "cycle:a")
    wait_until(
        lambda: not admin.post(f"{BUDGETS_PATH}?dryRun=All", closing).accepted, "the webhook has read cycle:a"
    )
    refusal = admin.post(BUDGETS_PATH, closing)
    assert refusal.status == 422
    assert 'spec.parents[0]: "cycle:a" is not allowed: cycle:b → cycle:a → cycle:b' in refusal.message
    assert admin.post(BUDGETS_PATH, budget_of("cycle:b")).accepted
    closes = {"spec": {"parents": ["cycle:a"]}}
    wait_until(
        lambda: not admin.merge(f"{BUDGETS_PATH}/cycle-b?dryRun=All", closes).accepted,
        "the webhook has read cycle:b",
    )
    edited = admin.merge(f"{BUDGETS_PATH}/cycle-b", closes)
    assert edited.status == 422, "an edit must not close the cycle either"
    assert "is a cycle" in edited.message


@pytest.mark.usefixtures("answering_manager")
def test_cycle_of_followers_is_refused_and_missing_references_give_warnings(
    webhook_cluster: WebhookCluster,
) -> None:
    tenant = webhook_cluster.create_tenant("odd")
    tenant.create_budget("a", 8)
    follow = {"follow": {"after": ["two"]}, "funding": {"allowBorrow": True, "sponsors": ["odd:rich"]}}
    manifest = run_manifest(tenant, "one", "a", **follow)
    shown = webhook_cluster.plane.kubectl("apply", "-f", "-", stdin=json.dumps(manifest)).stderr
    assert "Warning: spec.follow.after[0]: two: does not exist in odd" in shown
    assert "odd:rich: cannot pay: it has no envelope of GPU-odd that lends to odd:a" in shown
    wait_until(lambda: tenant.phase("one") == "Waiting", "the Run waits")
    refusal = webhook_cluster.plane.rest.post(
        tenant.runs_path, run_manifest(tenant, "two", "a", follow={"after": ["one"]})
    )
    assert refusal.status == 422
    assert "two after one after two is a cycle" in refusal.message
    path = webhook_cluster.plane.directory / "four.yaml"
    path.write_text(json.dumps(run_manifest(tenant, "four", "a", follow={"after": ["five"]})))
    output = submit(webhook_cluster, path)
    assert output.count("warning: spec.follow.after[0]: five: does not exist in odd") == 1, output
    without_budget = webhook_cluster.plane.rest.post(
        f"{tenant.runs_path}?dryRun=All", run_manifest(tenant, "three", "none")
    )
    assert "spec.owner: odd:none: has no Budget, nor has any owner above it" in without_budget.warnings[0]


@pytest.mark.usefixtures("answering_manager")
def test_cut_of_an_envelope_below_its_usage_gives_a_warning(webhook_cluster: WebhookCluster) -> None:
    tenant = webhook_cluster.create_tenant("cut")
    tenant.create_budget("a", 16)
    tenant.create_run("r", "a", 16)
    tenant.await_running_pods("r", 2)
    path = f"{BUDGETS_PATH}/cut-a"

    def used() -> object:
        envelopes = webhook_cluster.plane.rest.get(path).body.get("status", {}).get("envelopes", [{}])
        return envelopes[0].get("usedGPUs")

    wait_until(lambda: used() == "16", "the Budget shows its usage")
    envelopes = [{"name": "main", "flavor": tenant.flavor, "concurrency": 8}]
    answer = webhook_cluster.plane.rest.merge(path, {"spec": {"envelopes": envelopes}})
    assert answer.accepted
    assert "spec.envelopes[0].concurrency: 8: is less than what is in use (16 GPUs)" in answer.warnings[0]


@pytest.mark.usefixtures("answering_manager")
def test_spares_per_group_is_stored_as_spares_on_every_apply(webhook_cluster: WebhookCluster) -> None:
    tenant = webhook_cluster.create_tenant("spare")
    tenant.create_budget("a", 8)
    for number in (1, 1, 2):
        manifest = run_manifest(tenant, "r", "a", sparesPerGroup=number, follow={"after": ["none"]})
        webhook_cluster.plane.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
        spec = webhook_cluster.plane.rest.get(tenant.run_path("r")).body["spec"]
        assert (spec["spares"], spec.get("sparesPerGroup")) == (number, None)


def refuse_run(webhook_cluster: WebhookCluster, tenant: Tenant) -> None:
    template = {"spec": {"containers": [MAIN_CONTAINER], "terminationGracePeriodSeconds": 86400}}
    refusal = webhook_cluster.plane.rest.post(
        tenant.runs_path, run_manifest(tenant, "r", "a", template=template)
    )
    assert refusal.status == 422
    assert "spec.template.spec.terminationGracePeriodSeconds" in refusal.message


@pytest.mark.usefixtures("answering_manager")
def test_reviews_are_served_while_150_slow_clients_send_large_bodies(
    webhook_cluster: WebhookCluster, answering_manager: Manager
) -> None:
    """Without credentials, these clients could hold 2.26 GB, more than the limit of the container."""
    tenant = webhook_cluster.create_tenant("slow")
    tenant.create_budget("a", 8)
    before = resident_bytes(answering_manager)
    with SlowClients(webhook_cluster.endpoint.address, 150) as clients:
        for _ in range(5):
            refuse_run(webhook_cluster, tenant)
            assert webhook_cluster.plane.rest.post(f"{BUDGETS_PATH}?dryRun=All", budget_of("slow:b")).accepted
        wait_until(lambda: clients.closed >= 50, "slow clients are closed")
        assert resident_bytes(answering_manager) - before < 512 * 2**20
    assert not answering_manager.has_logged("slow/r"), "a caller can invent that name"


def test_only_the_api_server_is_answered_when_its_certificate_is_required(
    webhook_cluster: WebhookCluster,
) -> None:
    tenant = webhook_cluster.create_tenant("certified")
    tenant.create_budget("a", 8)
    flags = (*webhook_cluster.endpoint.flags, *webhook_cluster.client.flags)
    with webhook_cluster.start_manager(*flags) as manager:
        await_webhook(webhook_cluster.plane)
        refuse_run(webhook_cluster, tenant)
        (line,) = [line for line in manager.log_lines() if line["message"] == "refused"]
        assert (line["part"], line["name"], line["user"]) == ("webhook", "certified/r", "admin")
        with SlowClients(webhook_cluster.endpoint.address, 20) as clients:
            wait_until(lambda: clients.closed == 20, "clients without the certificate are closed")
            assert clients.sent_bytes < 20 * 2**20, "no body was read"
            refuse_run(webhook_cluster, tenant)


def test_standby_answers_webhook_requests_when_the_leader_is_killed(webhook_cluster: WebhookCluster) -> None:
    other_endpoint = WebhookEndpoint()
    with webhook_cluster.start_manager(*other_endpoint.flags) as leader:
        wait_until(lambda: leader.has_logged("the webhook is served"), "the leader serves the webhook")
        wait_until(lambda: leader.has_logged("this process leads"), "the first manager leads")
        with webhook_cluster.start_manager(*webhook_cluster.endpoint.flags) as standby:
            await_webhook(webhook_cluster.plane)
            assert not standby.has_logged("this process leads")
            refusal = webhook_cluster.plane.rest.post(BUDGETS_PATH, budget_of("self:a:b", "self:a:b"))
            assert not refusal.accepted
            leader.kill()
            assert webhook_cluster.plane.rest.post(f"{BUDGETS_PATH}?dryRun=All", budget_of("last")).accepted


# Without the webhook


def test_only_new_runs_and_budgets_are_refused_when_the_webhook_is_down(
    webhook_cluster: WebhookCluster,
) -> None:
    plane = webhook_cluster.plane
    tenant = webhook_cluster.create_tenant("down")
    with webhook_cluster.start_manager(*webhook_cluster.endpoint.flags):
        await_webhook(plane)
        tenant.create_budget("a", 8)
        tenant.create_run("runs", "a", 8)
        tenant.create_run("waits", "a", 8)
        tenant.await_running_pods("runs", 1)
        tenant.await_phase("Reserved", "waits")
    for path, manifest in (
        (tenant.runs_path, run_manifest(tenant, "new", "a")),
        (BUDGETS_PATH, budget_of("down:b")),
    ):
        refusal = plane.rest.post(path, manifest)
        assert refusal.status == 500
        assert f'failed calling webhook "{WEBHOOK_FOR_NEW_OBJECTS}"' in refusal.message
    edits = {"runtime": {"maxDuration": "1h"}}
    assert plane.rest.merge(tenant.run_path("waits"), {"spec": edits}).accepted
    assert plane.rest.merge(f"{BUDGETS_PATH}/down-a", {"spec": {"parents": ["down:b"]}}).accepted
    file = plane.directory / "new.yaml"
    file.write_text(json.dumps(run_manifest(tenant, "new", "a")))
    assert "Runs and Budgets cannot be created now; running Runs continue" in submit(webhook_cluster, file)
    webhook_cluster.endpoint.apply(plane, BEFORE_1_30)  # the rules too, as on an old cluster
    with_gpu = pod_manifest("gpu", containers=[gpu_container()])
    unanswered = 'failed calling webhook "jobtree-gpu-pods'
    wait_until(
        lambda: unanswered in plane.rest.post(tenant.pods_path, with_gpu).message, "the rules are enforced"
    )
    assert plane.rest.merge(tenant.run_path("waits"), {"metadata": {"finalizers": None}}).accepted
    assert plane.rest.post(tenant.pods_path, pod_manifest("plain")).accepted
    assert plane.rest.merge(f"{tenant.pods_path}/plain", {"metadata": {"labels": {"a": "b"}}}).accepted
    labelled = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [MAIN_CONTAINER]}}
    deployment = {"selector": {"matchLabels": {"app": "web"}}, "template": labelled}
    web = {"metadata": {"name": "web"}, "spec": deployment}
    assert plane.rest.post(f"/apis/apps/v1/namespaces/{tenant.name}/deployments", web).accepted
    wait_until(
        lambda: len(tenant.items(f"{tenant.pods_path}?labelSelector=app%3Dweb")) == 1, "its pod is created"
    )
    assert plane.rest.delete(tenant.run_path("waits")).accepted
    wait_until(lambda: tenant.reservations() == [], "the garbage collector deletes its Reservation")


def test_manager_writes_when_its_webhook_is_unreachable(webhook_cluster: WebhookCluster) -> None:
    """Its writes of stages, status, finalizers and leases do not call the webhook."""
    plane, tenant = webhook_cluster.plane, webhook_cluster.create_tenant("unreached")
    stages = [{"name": "s", "resources": {"gpuType": tenant.flavor, "totalGPUs": 8}}]
    with webhook_cluster.start_manager(*webhook_cluster.endpoint.flags):
        await_webhook(plane)
        tenant.create_budget("a", 8)
    webhook_cluster.endpoint.apply(plane, BEFORE_1_30)
    for path in CONFIGURATIONS:
        assert plane.rest.delete(path).accepted

    def run_is_accepted() -> bool:
        tree = {"owner": tenant.owner("a"), "stages": stages}
        manifest = {**run_manifest(tenant, "tree", "a"), "spec": tree}
        return plane.rest.post(tenant.runs_path, manifest).accepted

    wait_until(run_is_accepted, "the webhook is not called any more")
    webhook_cluster.endpoint.apply(plane, BEFORE_1_30)
    wait_until(
        lambda: not plane.rest.post(BUDGETS_PATH, budget_of("unreached:b")).accepted,
        "the webhook is called and does not answer",
    )
    with webhook_cluster.start_manager():
        tenant.await_running_pods("tree-s", 1)
        assert plane.rest.delete(tenant.run_path("tree")).accepted
        wait_until(lambda: tenant.pods("tree-s") == [], "its pods are deleted")
        wait_until(lambda: not plane.rest.get(tenant.run_path("tree")).accepted, "the Run is deleted")


def test_namespaces_and_jobtree_can_be_deleted_when_the_webhook_is_down(
    webhook_cluster: WebhookCluster,
) -> None:
    plane, tenant = webhook_cluster.plane, webhook_cluster.create_tenant("left")
    webhook_cluster.endpoint.apply(plane, BASE)
    with webhook_cluster.start_manager(*webhook_cluster.endpoint.flags):
        await_webhook(plane)
        tenant.create_budget("a", 8)
        tenant.create_run("holds", "a", 8)
        tenant.create_run("waits", "a", 8)
        tenant.await_running_pods("holds", 1)
        tenant.await_phase("Reserved", "waits")
    webhook_cluster.endpoint.apply(plane, BEFORE_1_30)
    wait_until(
        lambda: not plane.rest.post(BUDGETS_PATH, budget_of("left:b")).accepted,
        "the webhook is called and does not answer",
    )
    assert plane.rest.delete(f"/api/v1/namespaces/{tenant.name}").accepted
    wait_until(lambda: tenant.reservations() == [], "its Reservations are deleted")
    path = tenant.run_path("holds")
    wait_until(
        lambda: "deletionTimestamp" in plane.rest.get(path).body["metadata"], "its Run is being deleted"
    )
    # Jobtree keeps a Run until its leases are closed. Without a manager, a user must remove the finalizer.
    freed = plane.rest.merge(path, {"metadata": {"finalizers": None}})
    assert freed.accepted, freed.message
    documents = kustomize_documents(plane, BEFORE_1_30) + kustomize_documents(plane, BASE)
    everything = yaml.safe_dump_all(documents)
    plane.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=everything)
    for namespace in (tenant.name, NAMESPACE):
        path = f"/api/v1/namespaces/{namespace}"
        wait_until(lambda: plane.rest.get(path).status == 404, f"{namespace} is deleted")  # noqa: B023
