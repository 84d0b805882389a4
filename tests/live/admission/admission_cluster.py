"""A cluster with Jobtree's admission rules and a running manager, and users with generous RBAC rights.

Admission policies enforce the rules, or the webhook where a test module says so (``CHECKERS``). A policy
takes effect some time after it is applied: ``await_policies`` sends requests, as dry runs, that each policy
must refuse.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import TypeVar

from tests.live.admission.object_manifests import claim_manifest, claims_path, gpu_container, pod_manifest
from tests.live.cluster.control_plane import ControlPlane
from tests.live.cluster.rbac import grant, grant_spend
from tests.live.cluster.rest_client import RestClient
from tests.live.cluster.server_process import wait_until
from tests.live.crds.manifests import API_VERSION, GROUP, LEASES_PATH, Manifest, lease, run
from tests.live.manager.installation import (
    NAMESPACE,
    SHORT_NOTICE_POLICY,
    await_service_account,
    install,
    set_policy,
)
from tests.live.manager.manager_process import Manager
from tests.live.manager.tenant import Tenant
from tests.live.nodes.fake_fleet import FakeFleet

MANAGED_LABEL = f"{GROUP}/managed"
BREAK_GLASS_GROUP = "jobtree:break-glass"
OLD_CLAIM_FLAGS = {"runtime-config": "resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true"}
"""Flags of an API server that also serves the older versions of ResourceClaim."""

BOTH_CHECKERS = ("policies", "webhook")
"""Value of ``CHECKERS`` in a module whose tests run with admission policies, then again with the webhook."""

# More than a careful administrator gives to a researcher: the rules must hold where RBAC is generous.
GENEROUS_RULES = [
    {"apiGroups": [GROUP], "resources": ["runs", "reservations"], "verbs": ["*"]},
    {"apiGroups": [GROUP], "resources": ["runs/status", "reservations/status"], "verbs": ["*"]},
    {"apiGroups": [""], "resources": ["pods", "pods/ephemeralcontainers", "services"], "verbs": ["*"]},
    {"apiGroups": ["apps", "batch"], "resources": ["deployments", "jobs"], "verbs": ["*"]},
    {
        "apiGroups": ["resource.k8s.io"],
        "resources": ["resourceclaims", "resourceclaimtemplates"],
        "verbs": ["*"],
    },
]
GENEROUS_CLUSTER_RULES = [
    {"apiGroups": [GROUP], "resources": ["gpuleases", "gpuleases/status", "budgets/status"], "verbs": ["*"]},
    {"apiGroups": [GROUP], "resources": ["budgets"], "verbs": ["get", "list", "watch"]},
]
PROBE_NAMESPACE = "managed-probe"

Test = TypeVar("Test", bound=Callable[..., None])


def only_with(checker: str) -> Callable[[Test], Test]:
    """Limits a test of a module with several checkers to one of them."""

    def mark(test: Test) -> Test:
        test.__dict__["checkers"] = (checker,)
        return test

    return mark


class AdmissionCluster:
    """The cluster and its manager; creates tenants and users for single tests."""

    def __init__(self, plane: ControlPlane, fleet: FakeFleet, manager: Manager) -> None:
        self.plane = plane
        self.fleet = fleet
        self.manager = manager
        self._numbers = count(1)

    def create_tenant(self, **labels: str) -> Tenant:
        """Creates a tenant. Its namespace is a managed one unless ``labels`` say otherwise."""
        tenant = Tenant(self.plane, self.fleet, f"g{next(self._numbers)}")
        label_namespace(self.plane, tenant.name, {MANAGED_LABEL: "true", **labels})
        return tenant

    def create_user(self, tenant: Tenant, name: str, *teams: str) -> RestClient:
        """Creates a user who may do nearly everything in the namespace, and spend for these teams."""
        user = f"{name}@{tenant.name}"
        grant(self.plane, user, GENEROUS_RULES, namespace=tenant.name)
        grant(self.plane, user, GENEROUS_CLUSTER_RULES)
        if teams:
            grant_spend(self.plane, user, *(tenant.owner(team) for team in teams))
        return self.plane.rest_as(user)

    @property
    def break_glass(self) -> RestClient:
        """Requests as an administrator who breaks the glass: admission lets them write records."""
        return self.plane.rest_as("admin", "system:masters", BREAK_GLASS_GROUP)

    def manager_is_healthy(self) -> bool:
        """Whether the manager runs and has logged no traceback."""
        return not self.manager.has_ended and not self.manager.has_logged("Traceback")

    def logged_failure_with(self, text: str) -> bool:
        """Whether the manager has logged a failure with this text in its reason."""
        return any(text in str(line.get("why", "")) for line in self.manager.log_lines())


@contextmanager
def cluster_with_policies() -> Iterator[AdmissionCluster]:
    """A cluster whose admission policies enforce the rules."""
    with ControlPlane(OLD_CLAIM_FLAGS) as plane:
        kubeconfig = install(plane)
        set_policy(plane, SHORT_NOTICE_POLICY)
        plane.start_controllers()
        plane.start_scheduler()
        with Manager(plane, kubeconfig) as manager:
            fleet = plane.start_fake_fleet()
            await_policies(plane)
            yield AdmissionCluster(plane, fleet, manager)


def label_namespace(plane: ControlPlane, namespace: str, labels: dict[str, str]) -> None:
    answer = plane.rest.merge(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": labels}})
    assert answer.accepted, answer.message


def await_policies(plane: ControlPlane) -> None:
    """Waits until every rule refuses a request that it must refuse."""
    namespace = {"metadata": {"name": PROBE_NAMESPACE, "labels": {MANAGED_LABEL: "true"}}}
    assert plane.rest.post("/api/v1/namespaces", namespace).accepted
    await_service_account(plane, PROBE_NAMESPACE)
    probe_run = run()
    probe_run["metadata"] = {"name": "probe"}
    pods = f"/api/v1/namespaces/{PROBE_NAMESPACE}/pods"
    probes: list[tuple[str, str, Manifest]] = [
        ("jobtree-runs", f"/apis/{API_VERSION}/namespaces/{NAMESPACE}/runs", probe_run),
        ("jobtree-records", LEASES_PATH, lease()),
        ("jobtree-gpu-pods", pods, pod_manifest("probe", containers=[gpu_container()])),
        ("jobtree-gpu-claims", claims_path(PROBE_NAMESPACE), claim_manifest("gpu.nvidia.com")),
        ("jobtree-pods", pods, pod_manifest("probe", labels={f"{GROUP}/role": "rank"})),
    ]
    for policy, path, manifest in probes:
        wait_until(lambda: is_refused_by(plane, policy, path, manifest), policy)  # noqa: B023


def is_refused_by(plane: ControlPlane, policy: str, path: str, manifest: Manifest) -> bool:
    message = plane.rest.post(f"{path}?dryRun=All", manifest).message
    return policy in message and "failed calling webhook" not in message
