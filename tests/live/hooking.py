"""A cluster whose API server asks the manager's webhook, at an address of this machine."""

import socket
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.live.control_plane import ControlPlane
from tests.live.guarding import BUDGETS, HASTY, Guarded
from tests.live.managing import NAMESPACE, Manager, apply_base, install, set_policy
from tests.live.manifests import budget
from tests.live.process import wait_until

SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/jobtree-webhook-cert"
REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
VALIDATING = f"{REGISTRATION}/validatingwebhookconfigurations/jobtree-webhook"
MUTATING = f"{REGISTRATION}/mutatingwebhookconfigurations/jobtree-webhook"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def webhook_flags(port: int, *more: str) -> tuple[str, ...]:
    return (f"--webhook-address=127.0.0.1:{port}", "--webhook-names=127.0.0.1", *more)


@contextmanager
def hooked_cluster() -> Iterator[Guarded]:
    """The manager, its webhook and fake nodes."""
    port = free_port()
    with ControlPlane() as plane:
        kubeconfig = install(plane)
        apply_base(plane, f"https://127.0.0.1:{port}")
        set_policy(plane, HASTY)
        plane.start_controllers()
        plane.start_scheduler()
        with Manager(plane, kubeconfig, *webhook_flags(port)) as manager:
            fleet = plane.kwok()
            await_webhook(plane)
            yield Guarded(plane, fleet, manager)


def is_answered(plane: ControlPlane) -> bool:
    """Whether a new Budget is let in, which needs the webhook."""
    return plane.rest.post(f"{BUDGETS}?dryRun=All", budget()).accepted


def await_webhook(plane: ControlPlane) -> None:
    wait_until(lambda: is_answered(plane), "the webhook answers")


def bundles(plane: ControlPlane) -> set[str]:
    """What the configurations trust: one bundle, where all is well."""
    found = [webhook for path in (VALIDATING, MUTATING) for webhook in plane.rest.get(path).body["webhooks"]]
    return {b64decode(one["clientConfig"].get("caBundle", "")).decode() for one in found}


def secret(plane: ControlPlane) -> dict[str, Any]:
    """The data of the webhook's Secret."""
    data: dict[str, Any] = plane.rest.get(SECRET).body.get("data", {})
    return data
