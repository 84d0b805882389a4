"""Installs what the manager needs: the CRDs, its service account with its rights, and the policy.

The account has the rights that ``deploy/kustomize/base`` gives it, and no others.
"""

import json
from pathlib import Path

import yaml

from tests.live.cluster.control_plane import ControlPlane
from tests.live.cluster.server_process import wait_until
from tests.live.crds.installed_crds import apply_crds, await_crds
from tests.live.crds.manifests import Manifest
from tests.shown import REPOSITORY

BASE = REPOSITORY / "deploy" / "kustomize" / "base"
NAMESPACE = "jobtree-system"
ACCOUNT = "jobtree-controller-manager"
SHORT_NOTICE_POLICY = "structuralNotice: 1s\nminNotice: 1s\nmaxNotice: 2s\nminRuntime: 0s\nnodeGrace: 1s\n"
"""A policy under which lotteries are held, and lost nodes are replaced, within seconds."""
DEFAULT_TEMPLATE = "defaultTemplate: {spec: {containers: [{name: main, image: train:1}]}}\n"


def install(plane: ControlPlane) -> Path:
    """Installs everything that the manager needs; returns the kubeconfig of its account."""
    apply_crds(plane)
    await_crds(plane)
    apply_base(plane)
    set_policy(plane)
    return manager_kubeconfig(plane)


def apply_base(plane: ControlPlane) -> None:
    """Applies the base manifests without the webhook configurations.

    A Service of this cluster leads nowhere, because its nodes and their network are not real. For tests with
    the webhook see ``admission.webhook_cluster``.
    """
    documents = [
        document for document in kustomize_documents(plane, BASE) if not is_webhook_configuration(document)
    ]
    plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(documents))


def kustomize_documents(plane: ControlPlane, directory: Path) -> list[Manifest]:
    """The documents that kustomize builds, without the Deployment: tests start the manager as a process."""
    documents = yaml.safe_load_all(plane.kubectl("kustomize", str(directory)).stdout)
    return [document for document in documents if document["kind"] != "Deployment"]


def is_webhook_configuration(document: Manifest) -> bool:
    return str(document["kind"]).endswith("WebhookConfiguration")


def manager_kubeconfig(plane: ControlPlane) -> Path:
    """Writes a kubeconfig with a token of the manager's service account."""
    answer = plane.rest.post(
        f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token",
        {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 36000},
        },
    )
    assert answer.accepted, answer.message
    config = yaml.safe_load(plane.admin_kubeconfig.read_text())
    config["users"][0]["user"] = {"token": answer.body["status"]["token"]}
    path = plane.directory / "manager.kubeconfig"
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config))
    return path


def set_policy(plane: ControlPlane, text: str = "") -> None:
    """Writes the administrator's policy, with a template for Runs that have none.

    Jobtree binds all pods unless the text says otherwise: fake nodes have no volumes, and not every test has
    a scheduler.
    """
    binding = "" if "binding:" in text else "binding: Direct\n"
    policy = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "jobtree-policy", "namespace": NAMESPACE},
        "data": {"policy.yaml": text + binding + DEFAULT_TEMPLATE},
    }
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(policy))


def await_service_account(plane: ControlPlane, namespace: str = "default") -> None:
    """Waits until the controllers have given the namespace its default account; before, pods are refused."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    wait_until(lambda: plane.rest.get(path).accepted, f"{namespace} has its default account")
