"""A cluster whose API server asks the manager's webhook, at an address of this machine.

Its API server knows no ValidatingAdmissionPolicy, as before Kubernetes 1.30, and its configurations have no
matchConditions, as before 1.28: the webhook alone holds everybody to the rules.
"""

from base64 import b64decode
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.live.control_plane import ControlPlane
from tests.live.guarding import BUDGETS, HASTY, OLD_CLAIMS, Guarded, await_policies
from tests.live.managing import BASE, NAMESPACE, Manager, built, install, is_webhook, set_policy
from tests.live.manifests import Manifest, budget
from tests.live.ports import free_port
from tests.live.process import wait_until

BEFORE_1_30 = BASE.with_name("before-1.30")
WITHOUT_POLICIES = {
    "enable-admission-plugins": "NamespaceLifecycle",
    "disable-admission-plugins": "TaintNodesByCondition,ValidatingAdmissionPolicy",
}
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/jobtree-webhook-cert"
REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
CONFIGURATIONS = (
    f"{REGISTRATION}/validatingwebhookconfigurations/jobtree-webhook",
    f"{REGISTRATION}/mutatingwebhookconfigurations/jobtree-webhook",
    f"{REGISTRATION}/validatingwebhookconfigurations/jobtree-webhook-rules",
)


class Hook:
    """Where the webhook of a test cluster listens."""

    def __init__(self) -> None:
        self.address = f"127.0.0.1:{free_port()}"

    @property
    def flags(self) -> tuple[str, ...]:
        return (f"--webhook-address={self.address}", "--webhook-names=127.0.0.1")

    def apply(self, plane: ControlPlane, directory: Path, *, conditions: bool = True) -> None:
        """These manifests, with the API server asking here in place of a Service."""
        documents = built(plane, directory)
        for document in filter(is_webhook, documents):
            self._point_here(document["webhooks"], conditions=conditions)
        plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(documents))

    def _point_here(self, webhooks: Iterable[Manifest], *, conditions: bool) -> None:
        for webhook in webhooks:
            webhook["clientConfig"] = {
                "url": f"https://{self.address}{webhook['clientConfig']['service']['path']}"
            }
            if not conditions:
                del webhook["matchConditions"]


@contextmanager
def cluster_without_policies() -> Iterator[Guarded]:
    """The manager, its webhook with all rules, and fake nodes."""
    hook = Hook()
    with ControlPlane({**WITHOUT_POLICIES, **OLD_CLAIMS}) as plane:
        kubeconfig = install(plane)
        hook.apply(plane, BEFORE_1_30, conditions=False)
        set_policy(plane, HASTY)
        plane.start_controllers()
        plane.start_scheduler()
        with Manager(plane, kubeconfig, *hook.flags) as manager:
            fleet = plane.kwok()
            await_webhook(plane)
            await_policies(plane)
            yield Guarded(plane, fleet, manager)


def is_answered(plane: ControlPlane) -> bool:
    """Whether a new Budget is let in, which needs the webhook."""
    return plane.rest.post(f"{BUDGETS}?dryRun=All", budget()).accepted


def await_webhook(plane: ControlPlane) -> None:
    wait_until(lambda: is_answered(plane), "the webhook answers")


def bundles(plane: ControlPlane) -> set[str]:
    """What the configurations trust: one bundle, where all is well."""
    found = [webhook for path in CONFIGURATIONS for webhook in plane.rest.get(path).body.get("webhooks", ())]
    return {b64decode(one["clientConfig"].get("caBundle", "")).decode() for one in found}


def secret(plane: ControlPlane) -> dict[str, Any]:
    """The data of the webhook's Secret."""
    data: dict[str, Any] = plane.rest.get(SECRET).body.get("data", {})
    return data
