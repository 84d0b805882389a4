"""The chart: the same objects as kustomize gives, an effect of every value, refusals of wrong values."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobtree.api.kinds.policy import SIM_API_VERSION, PolicySpec, parse_policy
from jobtree.api.schema.problems import InputError
from tests.live.cluster.control_plane import ControlPlane
from tests.live.cluster.server_process import wait_until
from tests.live.crds.manifests import Manifest
from tests.live.install.helm_chart import (
    CHART,
    NAMESPACE,
    RELEASE,
    SERVER_FLAGS,
    helm,
    render,
    rendered,
    yaml_documents,
)
from tests.live.programs.program_finder import find_program
from tests.shown import REPOSITORY

KUSTOMIZE = REPOSITORY / "deploy" / "kustomize"
MONITORING = "--api-versions=monitoring.coreos.com/v1"
NO_OPERATOR = "on a cluster without the operator of Prometheus"
ARCHIVE = ("archive.enabled=true",)

CHANGED_VALUES: list[tuple[str, object, tuple[str, ...]]] = [
    ("image.repository", "registry.example/jobtree", ()),
    ("image.tag", "v9", ()),
    ("image.digest", f"sha256:{'a' * 64}", ()),
    ("image.pullPolicy", "Always", ()),
    ("image.pullSecrets", [{"name": "registry"}], ()),
    ("replicas", 3, ()),
    ("resources", {"requests": {"cpu": "2"}}, ()),
    ("nodeSelector", {"pool": "system"}, ()),
    ("tolerations", [{"key": "system", "operator": "Exists"}], ()),
    ("affinity", {"nodeAffinity": {}}, ()),
    ("priorityClassName", "system-cluster-critical", ()),
    ("podAnnotations", {"team": "platform"}, ()),
    ("apiServer.host", "api.example", ()),
    ("apiServer.port", 6443, ("apiServer.host=api.example",)),
    ("checkSeconds", 5, ()),
    ("policy", {"maxNotice": "20m"}, ()),
    ("defaultTemplate.enabled", False, ()),
    ("crds.enabled", False, ()),
    ("crds.keep", False, ()),
    ("uninstall.releaseRuns", False, ()),
    ("roles.enabled", False, ()),
    ("admissionPolicies.enabled", False, ()),
    ("webhook.enabled", False, ()),
    ("webhook.clientCA", "api-server-ca", ()),
    ("webhook.clientNames", ["api-server"], ("webhook.clientCA=api-server-ca",)),
    ("podDisruptionBudget.enabled", False, ()),
    ("podDisruptionBudget.maxUnavailable", 2, ()),
    ("networkPolicy.enabled", False, ()),
    ("networkPolicy.metricsFrom", [{"podSelector": {}}], ()),
    ("archive.enabled", True, ()),
    ("archive.existingClaim", "books", ARCHIVE),
    ("archive.size", "20Gi", ARCHIVE),
    ("archive.storageClassName", "slow", ARCHIVE),
    ("archive.accessMode", "ReadWriteOncePod", (*ARCHIVE, "replicas=1")),
    ("monitoring.alerts.enabled", False, ()),
    ("monitoring.alerts.labels", {"release": "prometheus"}, ()),
    ("monitoring.dashboard.enabled", False, ()),
    ("monitoring.dashboard.always", True, (NO_OPERATOR,)),
    ("monitoring.dashboard.labels", {"grafana": "yes"}, ()),
    ("monitoring.serviceMonitor.enabled", False, ()),
    ("monitoring.serviceMonitor.interval", "10s", ()),
    ("monitoring.serviceMonitor.labels", {"release": "prometheus"}, ()),
]
"""Each value of the chart, another value for it, and the settings that it needs to have an effect."""

REFUSED_VALUES = [
    ("replicas=0", "at '/replicas': minimum: got 0, want 1"),
    ("replicas=two", "at '/replicas': got string, want integer"),
    ("replcias=3", "additional properties 'replcias' not allowed"),
    ("image.pullPolicy=Sometimes", "must be one of 'Always', 'IfNotPresent', 'Never'"),
    ("image.digest=latest", "at '/image/digest': 'latest' does not match"),
    ("image.tag=a b", "at '/image/tag': 'a b' does not match"),
    ("resources.limits.memory=2GB", "at '/resources/limits/memory': '2GB' does not match"),
    ("apiServer.port=70000", "at '/apiServer/port': maximum: got 70,000, want 65,535"),
    ("policy.maxNotise=20m", "at '/policy': additional properties 'maxNotise' not allowed"),
    ("crds.keep=perhaps", "at '/crds/keep': got string, want boolean"),
    ("archive.size=lots", "at '/archive/size': 'lots' does not match"),
    ("monitoring.serviceMonitor.interval=often", "'often' does not match"),
]


def kustomized(folder: str) -> list[Manifest]:
    build: list[str | Path] = [find_program("kubectl"), "kustomize", KUSTOMIZE / folder]
    built = subprocess.run(build, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return yaml_documents(built.stdout)


def crds() -> list[Manifest]:
    return [
        crd for path in (REPOSITORY / "config/crd").glob("*.yaml") for crd in yaml_documents(path.read_text())
    ]


def by_name(objects: list[Manifest]) -> dict[str, Manifest]:
    return {f"{document['kind']} {document['metadata']['name']}": document for document in objects}


def without_policy(objects: list[Manifest]) -> dict[str, Manifest]:
    """Returns the objects without the policy, which only the chart has: kustomize cannot set its image."""
    named = by_name([without_hooks(document) for document in objects])
    assert "defaultTemplate" in named.pop("ConfigMap jobtree-policy")["data"]["policy.yaml"]
    return named


def without_hooks(document: Manifest) -> Manifest:
    """Removes the annotations that only helm reads."""
    metadata = dict(document["metadata"])
    rest = {k: v for k, v in metadata.pop("annotations", {}).items() if not k.startswith("helm.sh/")}
    return {**document, "metadata": metadata | ({"annotations": rest} if rest else {})}


def test_chart_and_kustomize_give_the_same_objects() -> None:
    expected = by_name([*kustomized("base"), *kustomized("uninstall"), *crds()])
    del expected[f"Namespace {NAMESPACE}"]
    rendered_objects = without_policy(render())
    assert rendered_objects.keys() == expected.keys()
    for name, document in expected.items():
        assert rendered_objects[name] == document, name


def test_generated_templates_are_up_to_date(tmp_path: Path) -> None:
    generate: list[str | Path] = [sys.executable, REPOSITORY / "deploy/helm/generate.py", tmp_path]
    subprocess.run(generate, check=True)
    committed = {path.name: path.read_text() for path in (CHART / "templates/generated").iterdir()}
    generated = {path.name: path.read_text() for path in (tmp_path / "templates/generated").iterdir()}
    assert generated == committed, "run `make manifests`"
    for path in (tmp_path / "files").iterdir():
        assert (CHART / "files" / path.name).read_text() == path.read_text(), "run `make manifests`"
    schema = "values.schema.json"
    assert (tmp_path / schema).read_text() == (CHART / schema).read_text(), "run `make manifests`"


def leaves(values: dict[str, Any], path: str = "") -> Iterator[str]:
    """Returns the names of all values; a map that is empty or has free keys counts as one value."""
    for key, value in values.items():
        name = f"{path}.{key}" if path else key
        if isinstance(value, dict) and value and name != "resources" and key != "labels":
            yield from leaves(value, name)
        else:
            yield name


def test_every_value_of_the_chart_has_a_test() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert sorted(leaves(values)) == sorted(name for name, _, _ in CHANGED_VALUES)


@pytest.mark.parametrize(("name", "value", "needed"), CHANGED_VALUES)
def test_value_changes_the_rendered_chart(name: str, value: object, needed: tuple[str, ...]) -> None:
    settings = [f"--set={setting}" for setting in needed if setting != NO_OPERATOR]
    if NO_OPERATOR not in needed:
        settings.append(MONITORING)
    assert rendered(*settings) != rendered(*settings, f"--set-json={name}={json.dumps(value)}")


@pytest.mark.parametrize(("setting", "message"), REFUSED_VALUES)
def test_wrong_value_is_refused(setting: str, message: str) -> None:
    result = helm("template", str(CHART), f"--namespace={NAMESPACE}", *SERVER_FLAGS, f"--set={setting}")
    assert (result.returncode, message in result.stderr) == (1, True), result.stderr


@pytest.mark.parametrize("name", [name for name, _, _ in CHANGED_VALUES])
def test_value_of_another_type_is_refused(name: str) -> None:
    result = helm("template", str(CHART), f"--namespace={NAMESPACE}", *SERVER_FLAGS, f"--set-json={name}=[1]")
    assert result.returncode == 1
    assert f"at '/{name.replace('.', '/')}" in result.stderr, result.stderr


POLICIES: list[tuple[str, object, bool]] = [
    ("maxNotice", "20m", True),
    ("maxNotice", "soon", False),
    ("leaseRetention", 30, False),
    ("leaseRetention", "-3d", False),
    ("spareRate", "0.25", True),
    ("spareRate", 0.25, False),
    ("prices", {"H100-80GB": 3, "A100": "2.5"}, True),
    ("prices", {"H100-80GB": -1}, False),
    ("prices", {"H 100": 1}, False),
    ("defaultTemplate", {"spec": {"containers": [{"name": "main", "image": "a"}]}}, True),
    ("defaultTemplate", "image", False),
    ("beacon", {"name": "drand", "period": "30s", "genesis": "2020-07-22T15:00:00Z"}, True),
    ("beacon", {"name": "drand"}, False),
    ("beacon", {"name": "drand", "period": "30s", "genesis": "2020-07-22"}, False),
]
"""A field of the policy, a value for it, and whether the value is valid."""


@pytest.mark.parametrize(("field", "value", "valid"), POLICIES)
def test_chart_and_manager_refuse_the_same_policies(field: str, value: object, *, valid: bool) -> None:
    document = {"apiVersion": SIM_API_VERSION, "kind": "Policy", "spec": {field: value}}
    with nullcontext() if valid else pytest.raises(InputError):
        parse_policy(document, "here")
    settings = f"--set-json=policy.{field}={json.dumps(value)}"
    result = helm("template", str(CHART), f"--namespace={NAMESPACE}", *SERVER_FLAGS, settings)
    assert (result.returncode == 0) == valid, result.stderr
    assert valid or "values don't meet the specifications" in result.stderr


def rendered_policy(*settings: str) -> Any:  # noqa: ANN401  a YAML document
    return yaml.safe_load(by_name(render(*settings))["ConfigMap jobtree-policy"]["data"]["policy.yaml"])


def test_runs_without_a_template_hold_their_gpus_from_the_image_of_the_manager() -> None:
    policy = rendered_policy("--set=image.repository=registry.example/jobtree", "--set=image.tag=v9")
    parsed = parse_policy({"apiVersion": SIM_API_VERSION, "kind": "Policy", "spec": policy}, "the chart")
    assert parsed.default_template is not None
    (container,) = policy["defaultTemplate"]["spec"]["containers"]
    assert container["image"] == "registry.example/jobtree:v9"
    assert container["command"][0] == "python3", "the image has no shell"


def test_template_of_the_policy_comes_before_that_of_the_chart() -> None:
    own = {"spec": {"containers": [{"name": "main", "image": "mine"}]}}
    policy = rendered_policy(
        f"--set-json=policy.defaultTemplate={json.dumps(own)}", "--set=policy.maxNotice=20m"
    )
    assert policy == {"maxNotice": "20m", "defaultTemplate": own}
    disabled = by_name(render("--set=defaultTemplate.enabled=false"))
    assert "ConfigMap jobtree-policy" not in disabled


def test_chart_refuses_what_its_schema_cannot_express() -> None:
    wrong_namespace = helm("template", str(CHART), "--namespace=default", *SERVER_FLAGS)
    assert "add --namespace jobtree-system --create-namespace" in wrong_namespace.stderr
    single_node_volume = [f"--set={ARCHIVE[0]}", "--set=archive.accessMode=ReadWriteOnce"]
    result = helm("template", str(CHART), f"--namespace={NAMESPACE}", *SERVER_FLAGS, *single_node_volume)
    assert "2 replicas on different nodes cannot mount the volume: set replicas to 1" in result.stderr


def test_schema_of_the_chart_has_all_fields_of_the_policy() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert sorted(schema["properties"]["policy"]["properties"]) == sorted(PolicySpec.__struct_encode_fields__)


def test_chart_uses_webhook_rules_on_old_clusters() -> None:
    rendered_objects = without_policy(render(server=SERVER_FLAGS[:1]))
    expected = by_name([*kustomized("before-1.30"), *kustomized("uninstall"), *crds()])
    del expected[f"Namespace {NAMESPACE}"]
    assert rendered_objects == expected
    assert "ValidatingWebhookConfiguration jobtree-webhook-rules" in rendered_objects
    assert not [name for name in rendered_objects if name.startswith("ValidatingAdmissionPolicy")]
    without_webhook = helm(
        "template", str(CHART), f"--namespace={NAMESPACE}", SERVER_FLAGS[0], "--set=webhook.enabled=false"
    )
    assert "webhook.enabled: false: this cluster has no admission policies" in without_webhook.stderr


def test_chart_adds_monitoring_objects_only_with_the_prometheus_operator() -> None:
    assert not [document for document in render() if document["apiVersion"].startswith("monitoring")]
    monitored = by_name(render(MONITORING))
    service = by_name(render())["Service jobtree-controller-manager"]
    monitor = monitored["ServiceMonitor jobtree-controller-manager"]["spec"]
    labels = service["metadata"]["labels"]
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    assert monitor["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]
    alerts = yaml.safe_load((REPOSITORY / "deploy/prometheus/alerts.yaml").read_text())
    assert monitored["PrometheusRule jobtree"]["spec"] == alerts
    dashboard = (REPOSITORY / "deploy/grafana/dashboards/observability.json").read_text()
    assert monitored["ConfigMap jobtree-dashboard"]["data"] == {"observability.json": dashboard}


def minimal_crd(plural: str, kind: str) -> Manifest:
    """Returns a minimal CRD for a kind of the Prometheus operator."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
    names = {"plural": plural, "singular": kind.lower(), "kind": kind}
    group = "monitoring.coreos.com"
    return {
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def test_upgrade_adds_monitoring_objects_after_the_operator_is_installed() -> None:
    """Uses a real API server, because helm asks it which kinds exist."""
    with ControlPlane() as plane:
        root = f"/apis/monitoring.coreos.com/v1/namespaces/{NAMESPACE}"
        install = ("install", RELEASE, str(CHART), f"--namespace={NAMESPACE}", "--create-namespace")
        installed = helm(*install, plane=plane)
        assert installed.returncode == 0, installed.stderr
        assert not plane.rest.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/jobtree-dashboard").accepted
        for plural, kind in (("servicemonitors", "ServiceMonitor"), ("prometheusrules", "PrometheusRule")):
            definitions_of = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            assert plane.rest.post(definitions_of, minimal_crd(plural, kind)).accepted
            wait_until(lambda: plane.rest.get(f"{root}/{plural}").accepted, f"{kind} is served")  # noqa: B023
        upgraded = helm("upgrade", *install[1:4], plane=plane)
        assert upgraded.returncode == 0, upgraded.stderr
        monitor = plane.rest.get(f"{root}/servicemonitors/jobtree-controller-manager").body
        selected = "%2C".join(f"{k}%3D{v}" for k, v in monitor["spec"]["selector"]["matchLabels"].items())
        services = plane.rest.get(f"/api/v1/namespaces/{NAMESPACE}/services?labelSelector={selected}")
        (service,) = services.body["items"]
        assert service["metadata"]["name"] == "jobtree-controller-manager"
        assert plane.rest.get(f"{root}/prometheusrules/jobtree").body["spec"]["groups"]
        assert plane.rest.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/jobtree-dashboard").accepted


def test_packaged_chart_renders_the_same_objects(tmp_path: Path) -> None:
    packed = helm("package", str(CHART), f"--destination={tmp_path}")
    assert packed.returncode == 0, packed.stderr
    indexed = helm("repo", "index", str(tmp_path))
    assert indexed.returncode == 0, indexed.stderr
    (entry,) = yaml.safe_load((tmp_path / "index.yaml").read_text())["entries"]["gpu-fleet"]
    assert entry["urls"] == ["gpu-fleet-0.1.0.tgz"]
    assert render(chart=tmp_path / entry["urls"][0]) == render()
