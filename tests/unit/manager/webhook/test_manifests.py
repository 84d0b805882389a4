"""The manifests say what the code does: paths, names and bounds cannot drift apart unnoticed."""

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
from jobtree.manager.webhook.write_policies import BREAK_GLASS, CONTROLLERS, MOST_NAME, MOST_OF_METADATA
from tests.unit.manager.webhook.server import FakeServer

DEPLOY = Path(__file__).parents[4] / "deploy" / "kustomize"
POLICIES = ("jobtree-runs", "jobtree-records", "jobtree-gpu-pods", "jobtree-gpu-claims", "jobtree-pods")

Document = dict[str, Any]


def documents(name: str) -> list[Document]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8")))


CONFIGURATIONS = [
    one
    for name in ("base/webhook.yaml", "webhook-rules/webhook-rules.yaml")
    for one in documents(name)
    if one["kind"].endswith("WebhookConfiguration")
]
WEBHOOKS = [webhook for one in CONFIGURATIONS for webhook in one["webhooks"]]


def policies() -> list[Document]:
    files = sorted(DEPLOY.glob("base/admission-*.yaml"))
    found = [one for file in files for one in documents(f"base/{file.name}")]
    return [one for one in found if one["kind"] == "ValidatingAdmissionPolicy"]


def served() -> set[str]:
    view = ClusterView(NAMESPACE, lambda *_: None, lambda: None)
    return set(handlers(view, AsyncClient(FakeServer()), NAMESPACE))


def test_every_path_is_served_and_every_policy_has_its_path() -> None:
    asked = {webhook["clientConfig"]["service"]["path"] for webhook in WEBHOOKS}
    assert asked == served()
    assert {one["metadata"]["name"] for one in policies()} == set(POLICIES)
    assert {f"/rules/{name}" for name in POLICIES} < served()


def test_names_are_those_of_the_code() -> None:
    assert {one["metadata"]["name"] for one in CONFIGURATIONS} == {WEBHOOK_NAME, WEBHOOK_RULES_NAME}
    services = {(one["name"], one["namespace"]) for one in (w["clientConfig"]["service"] for w in WEBHOOKS)}
    assert services == {(WEBHOOK_NAME, NAMESPACE)}
    rbac = (DEPLOY / "base/rbac.yaml").read_text(encoding="utf-8")
    assert f"resourceNames: [{WEBHOOK_SECRET}]" in rbac


@pytest.mark.parametrize("webhook", WEBHOOKS, ids=lambda one: one["name"].partition(".")[0])
def test_each_is_narrow_and_quick(webhook: Document) -> None:
    assert webhook["timeoutSeconds"] <= 5
    assert webhook["sideEffects"] == "None"
    for rule in webhook["rules"]:
        assert "*" not in [*rule["resources"], *rule["operations"], *rule["apiGroups"]]
        if "DELETE" in rule["operations"]:
            assert webhook["failurePolicy"] == "Ignore"
        if rule["apiGroups"] != ["rq.davidlangworthy.io"]:
            managed = {"matchLabels": {"rq.davidlangworthy.io/managed": "true"}}
            assert webhook["namespaceSelector"] == managed, "others' objects in managed namespaces only"


def test_those_who_pass_a_policy_pass_its_webhook_and_no_others() -> None:
    conditions = {
        one["metadata"]["name"]: {each["name"]: each["expression"] for each in one["spec"]["matchConditions"]}
        for one in policies()
    }
    shared = 0
    for webhook, name in product(WEBHOOKS, POLICIES):
        if webhook["clientConfig"]["service"]["path"] != f"/rules/{name}":
            continue
        mine = {each["name"]: each["expression"] for each in webhook["matchConditions"]}
        assert conditions[name].items() <= mine.items()
        assert set(mine) - set(conditions[name]) <= {"asks-for-gpus"}
        shared += 1
    assert shared == 7


def test_the_webhook_is_asked_about_the_gpus_that_the_policy_knows() -> None:
    (policy,) = [one for one in policies() if one["metadata"]["name"] == "jobtree-gpu-pods"]
    (asking,) = [one["expression"] for one in policy["spec"]["variables"] if one["name"] == "asking"]
    (webhook,) = [one for one in WEBHOOKS if one["name"].startswith("jobtree-gpu-pods.")]
    (asked,) = [one["expression"] for one in webhook["matchConditions"] if one["name"] == "asks-for-gpus"]
    rule = asking.partition("has(c.resources)")[2].removesuffix(".map(c, c.name)")
    assert asked.endswith(rule)


def test_the_rules_know_the_same_names_and_bounds() -> None:
    text = {one["metadata"]["name"]: yaml.safe_dump(one, width=10_000) for one in policies()}
    whole = "".join(text.values())
    for word in (*GPU_RESOURCES, *GPU_CLASSES, *GPU_CLAIMS, *CONTROLLERS, account_of(NAMESPACE), BREAK_GLASS):
        assert f"'{word}'" in whole.replace("''", "'"), word
    known = sum("gpu.nvidia.com" in one for one in (*GPU_CLASSES, *GPU_CLAIMS))
    assert whole.count("gpu.nvidia.com") == known
    assert f"> {MOST_OF_METADATA}" in text["jobtree-runs"]
    assert f"<= {MOST_NAME}" in text["jobtree-runs"]
