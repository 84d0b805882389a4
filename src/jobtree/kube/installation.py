"""The names that an installation of Jobtree uses on a cluster: its namespace, its policy, labels of its pods.

A Run that has leases has the finalizer ``FINALIZER``, so that it is not deleted before its leases are closed.
A user may submit a Run with the finalizer, which saves the manager a write.
"""

from collections.abc import Mapping
from typing import Any

from jobtree.api.documents.document_stream import read_documents
from jobtree.api.schema.object_meta import GROUP

NAMESPACE = "jobtree-system"
SERVICE_PORT = "jobtree-controller-manager:http"  # of the manager's HTTP server
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
    """Returns the user name of Jobtree on the API server."""
    return f"system:serviceaccount:{namespace}:{ACCOUNT}"


def policy_spec(data: Mapping[str, str], namespace: str) -> tuple[dict[str, Any], str]:
    """Returns the policy in the data of its ConfigMap (empty: all defaults), and its place for messages.

    Raises InputError.
    """
    where = f"ConfigMap {namespace}/{POLICY_NAME}, {POLICY_KEY}"
    documents = read_documents(data.get(POLICY_KEY, ""), where)
    return (documents[0].body if documents else {}), where
