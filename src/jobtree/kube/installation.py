"""What an installation of Jobtree is called on a cluster: its namespace, its policy, the labels of its pods.

A Run that holds leases carries ``FINALIZER``, so that it is not gone before they are ended. Whoever submits a
Run may send it along: the manager then has one write less to do.

Whoever writes them and whoever looks for them reads the names here.
"""

from collections.abc import Mapping
from typing import Any

from jobtree.api.documents.document_stream import read_documents
from jobtree.api.schema.object_meta import GROUP

NAMESPACE = "jobtree-system"
SERVICE_PORT = "jobtree-controller-manager:http"  # where the manager answers what it is asked
ARCHIVE_PATH = "archive"
ARCHIVE_ELSEWHERE = "this manager does not lead, and another one has the archive"
POLICY_NAME = "jobtree-policy"
POLICY_KEY = "policy.yaml"
ACCOUNT = "jobtree-controller-manager"
WEBHOOK_NAME = "jobtree-webhook"  # of the Service and of both configurations
WEBHOOK_RULES_NAME = "jobtree-webhook-rules"  # of the configuration for clusters without policies
WEBHOOK_SECRET = "jobtree-webhook-cert"  # noqa: S105  a name, not a secret

FINALIZER = f"{GROUP}/leases"

RUN_LABEL = f"{GROUP}/run"
UID_LABEL = f"{GROUP}/run-uid"
RANK_LABEL = f"{GROUP}/rank"
GROUP_LABEL = f"{GROUP}/group"
ATTEMPT_LABEL = f"{GROUP}/attempt"
ROLE_LABEL = f"{GROUP}/role"


def account_of(namespace: str) -> str:
    """Jobtree as the API server knows it."""
    return f"system:serviceaccount:{namespace}:{ACCOUNT}"


def policy_written(data: Mapping[str, str], namespace: str) -> tuple[dict[str, Any], str]:
    """What the policy's ConfigMap says (nothing: all defaults), and how to call it. Raises InputError."""
    where = f"ConfigMap {namespace}/{POLICY_NAME}, {POLICY_KEY}"
    found = [document.body for document in read_documents(data.get(POLICY_KEY, ""), where)]
    return (found[0] if found else {}), where
