"""The manifests agree with the code: paths, names and limits."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobtree.api.schema.gpu_resources import GPU_CLAIMS, GPU_CLASSES, GPU_RESOURCES
from jobtree.kube.http.async_client import AsyncClient
from jobtree.kube.installation import NAMESPACE, WEBHOOK_NAME, WEBHOOK_RULES_NAME, WEBHOOK_SECRET, account_of
from jobtree.manager.cluster_view import ClusterView
from jobtree.manager.webhook.admission_handlers import handlers
from jobtree.manager.webhook.write_policies import (
    BREAK_GLASS,
    CONTROLLERS,
    MAX_METADATA_ENTRIES,
    MAX_NAME_LENGTH,
)
from tests.unit.manager.webhook.fake_server import FakeServer

DEPLOY = Path(__file__).parents[4] / "deploy" / "kustomize"
POLICIES = ("jobtree-runs", "jobtree-records", "jobtree-gpu-pods", "jobtree-gpu-claims", "jobtree-pods")

Document = dict[str, Any]


def documents(name: str) -> list[Document]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8")))


CONFIGURATIONS = [
    document
    for name in ("base/webhook.yaml", "webhook-rules/webhook-rules.yaml")
    for document in documents(name)
    if document["kind"].endswith("WebhookConfiguration")
]
WEBHOOKS = [webhook for configuration in CONFIGURATIONS for webhook in configuration["webhooks"]]


def policies() -> list[Document]:
    files = sorted(DEPLOY.glob("base/admission-*.yaml"))
    objects = [document for file in files for document in documents(f"base/{file.name}")]
    return [document for document in objects if document["kind"] == "ValidatingAdmissionPolicy"]


def served_paths() -> set[str]:
    view = ClusterView(NAMESPACE, lambda *_: None, lambda: None)
    return set(handlers(view, AsyncClient(FakeServer()), NAMESPACE))


def test_webhook_serves_each_path_and_each_policy_has_one() -> None:
    paths = {webhook["clientConfig"]["service"]["path"] for webhook in WEBHOOKS}
    assert paths == served_paths()
    assert {policy["metadata"]["name"] for policy in policies()} == set(POLICIES)
    assert {f"/rules/{name}" for name in POLICIES} < served_paths()


def test_names_of_configurations_services_and_the_secret_are_those_of_the_code() -> None:
    assert {document["metadata"]["name"] for document in CONFIGURATIONS} == {WEBHOOK_NAME, WEBHOOK_RULES_NAME}
    services = [webhook["clientConfig"]["service"] for webhook in WEBHOOKS]
    assert {(service["name"], service["namespace"]) for service in services} == {(WEBHOOK_NAME, NAMESPACE)}
    rbac = (DEPLOY / "base/rbac.yaml").read_text(encoding="utf-8")
    assert f"resourceNames: [{WEBHOOK_SECRET}]" in rbac


@pytest.mark.parametrize("webhook", WEBHOOKS, ids=lambda webhook: webhook["name"].partition(".")[0])
def test_webhook_is_narrow_and_quick(webhook: Document) -> None:
    assert webhook["timeoutSeconds"] <= 5
    assert webhook["sideEffects"] == "None"
    for rule in webhook["rules"]:
        assert "*" not in [*rule["resources"], *rule["operations"], *rule["apiGroups"]]
        if "DELETE" in rule["operations"]:
            assert webhook["failurePolicy"] == "Ignore"
        if rule["apiGroups"] != ["rq.davidlangworthy.io"]:
            managed = {"matchLabels": {"rq.davidlangworthy.io/managed": "true"}}
            assert webhook["namespaceSelector"] == managed, (
                "objects of other groups are checked in managed namespaces only"
            )


def test_webhook_and_its_policy_have_the_same_match_conditions() -> None:
    conditions = {
        policy["metadata"]["name"]: expressions(policy["spec"]["matchConditions"]) for policy in policies()
    }
    pairs = 0
    for webhook, name in product(WEBHOOKS, POLICIES):
        if webhook["clientConfig"]["service"]["path"] != f"/rules/{name}":
            continue
        own = expressions(webhook["matchConditions"])
        assert conditions[name].items() <= own.items()
        assert set(own) - set(conditions[name]) <= {"asks-for-gpus"}
        pairs += 1
    assert pairs == 7


def expressions(conditions: list[Document]) -> dict[str, str]:
    return {condition["name"]: condition["expression"] for condition in conditions}


def test_webhook_is_called_for_the_gpus_that_the_policy_checks() -> None:
    (policy,) = [policy for policy in policies() if policy["metadata"]["name"] == "jobtree-gpu-pods"]
    (webhook,) = [webhook for webhook in WEBHOOKS if webhook["name"].startswith("jobtree-gpu-pods.")]
    variable = expressions(policy["spec"]["variables"])["asking"]
    rule = variable.partition("has(c.resources)")[2].removesuffix(".map(c, c.name)")
    assert expressions(webhook["matchConditions"])["asks-for-gpus"].endswith(rule)


def test_policies_have_the_names_and_limits_of_the_code() -> None:
    text = {policy["metadata"]["name"]: yaml.safe_dump(policy, width=10_000) for policy in policies()}
    all_text = "".join(text.values())
    for word in (*GPU_RESOURCES, *GPU_CLASSES, *GPU_CLAIMS, *CONTROLLERS, account_of(NAMESPACE), BREAK_GLASS):
        assert f"'{word}'" in all_text.replace("''", "'"), word
    expected = sum("gpu.nvidia.com" in name for name in (*GPU_CLASSES, *GPU_CLAIMS))
    assert all_text.count("gpu.nvidia.com") == expected
    assert f"> {MAX_METADATA_ENTRIES}" in text["jobtree-runs"]
    assert f"<= {MAX_NAME_LENGTH}" in text["jobtree-runs"]
