"""A cluster whose API server calls the manager's webhook at an address of this machine.

Its API server has no ValidatingAdmissionPolicy, as before Kubernetes 1.30, and the webhook configurations
have no matchConditions, as before 1.28: the webhook alone enforces all rules.
"""

from base64 import b64decode
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.live.admission.admission_cluster import OLD_CLAIM_FLAGS, AdmissionCluster, await_policies
from tests.live.cluster.control_plane import ControlPlane
from tests.live.cluster.free_ports import free_port
from tests.live.cluster.server_process import wait_until
from tests.live.crds.manifests import BUDGETS_PATH, Manifest, budget
from tests.live.manager.installation import (
    BASE,
    NAMESPACE,
    SHORT_NOTICE_POLICY,
    install,
    is_webhook_configuration,
    kustomize_documents,
    set_policy,
)
from tests.live.manager.manager_process import Manager

BEFORE_1_30 = BASE.with_name("before-1.30")
NO_POLICIES_FLAGS = {
    "enable-admission-plugins": "NamespaceLifecycle",
    "disable-admission-plugins": "TaintNodesByCondition,ValidatingAdmissionPolicy",
}
CERTIFICATE_SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/jobtree-webhook-cert"
REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
CONFIGURATIONS = (
    f"{REGISTRATION}/validatingwebhookconfigurations/jobtree-webhook",
    f"{REGISTRATION}/mutatingwebhookconfigurations/jobtree-webhook",
    f"{REGISTRATION}/validatingwebhookconfigurations/jobtree-webhook-rules",
)


class WebhookEndpoint:
    """The address at which a manager of the tests serves its webhook."""

    def __init__(self) -> None:
        self.address = f"127.0.0.1:{free_port()}"

    @property
    def flags(self) -> tuple[str, ...]:
        return (f"--webhook-address={self.address}", "--webhook-names=127.0.0.1")

    def apply(self, plane: ControlPlane, directory: Path, *, conditions: bool = True) -> None:
        """Applies kustomize manifests with this address in place of the webhook's Service."""
        documents = kustomize_documents(plane, directory)
        for document in filter(is_webhook_configuration, documents):
            self._use_address(document["webhooks"], conditions=conditions)
        plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(documents))

    def _use_address(self, webhooks: Iterable[Manifest], *, conditions: bool) -> None:
        for webhook in webhooks:
            webhook["clientConfig"] = {
                "url": f"https://{self.address}{webhook['clientConfig']['service']['path']}"
            }
            if not conditions:
                del webhook["matchConditions"]


@contextmanager
def cluster_with_webhook() -> Iterator[AdmissionCluster]:
    """A cluster without admission policies, whose webhook enforces the rules."""
    endpoint = WebhookEndpoint()
    with ControlPlane({**NO_POLICIES_FLAGS, **OLD_CLAIM_FLAGS}) as plane:
        kubeconfig = install(plane)
        endpoint.apply(plane, BEFORE_1_30, conditions=False)
        set_policy(plane, SHORT_NOTICE_POLICY)
        plane.start_controllers()
        plane.start_scheduler()
        with Manager(plane, kubeconfig, *endpoint.flags) as manager:
            fleet = plane.start_fake_fleet()
            await_webhook(plane)
            await_policies(plane)
            yield AdmissionCluster(plane, fleet, manager)


def webhook_answers(plane: ControlPlane) -> bool:
    """Whether the API server accepts a new Budget, for which it must call the webhook."""
    return plane.rest.post(f"{BUDGETS_PATH}?dryRun=All", budget()).accepted


def await_webhook(plane: ControlPlane) -> None:
    wait_until(lambda: webhook_answers(plane), "the webhook answers")


def ca_bundles(plane: ControlPlane) -> set[str]:
    """The distinct CA bundles of the webhook configurations: one, after the manager has written all."""
    webhooks = [
        webhook for path in CONFIGURATIONS for webhook in plane.rest.get(path).body.get("webhooks", ())
    ]
    return {b64decode(webhook["clientConfig"].get("caBundle", "")).decode() for webhook in webhooks}


def certificate_secret(plane: ControlPlane) -> dict[str, Any]:
    """The data of the Secret that holds the webhook's certificate."""
    data: dict[str, Any] = plane.rest.get(CERTIFICATE_SECRET).body.get("data", {})
    return data
