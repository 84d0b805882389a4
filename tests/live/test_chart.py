"""The chart and the kustomizations: the same objects, every value read, wrong values refused."""

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
from tests.live.binaries import find
from tests.live.control_plane import ControlPlane
from tests.live.helm import CHART, NAMESPACE, RELEASE, REPOSITORY, SERVER, documents, helm, render, rendered
from tests.live.manifests import Manifest
from tests.live.process import wait_until

KUSTOMIZE = REPOSITORY / "deploy" / "kustomize"
MONITORING = "--api-versions=monitoring.coreos.com/v1"
NO_OPERATOR = "on a cluster without the operator of Prometheus"
ARCHIVE = ("archive.enabled=true",)

CHANGED: list[tuple[str, object, tuple[str, ...]]] = [
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
    ("crds.enabled", False, ()),
    ("crds.keep", False, ()),
    ("uninstall.releaseRuns", False, ()),
    ("roles.enabled", False, ()),
    ("admissionPolicies.enabled", False, ()),
    ("webhook.enabled", False, ()),
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
"""Each value of the chart, another value for it, and what must be set for it to matter."""

REFUSED = [
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
    build: list[str | Path] = [find("kubectl"), "kustomize", KUSTOMIZE / folder]
    built = subprocess.run(build, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return documents(built.stdout)


def definitions() -> list[Manifest]:
    return [one for path in (REPOSITORY / "config/crd").glob("*.yaml") for one in documents(path.read_text())]


def by_name(found: list[Manifest]) -> dict[str, Manifest]:
    return {f"{one['kind']} {one['metadata']['name']}": one for one in found}


def without_hooks(document: Manifest) -> Manifest:
    """As it is without helm: its annotations tell helm what to do with it, and nobody else anything."""
    metadata = dict(document["metadata"])
    rest = {k: v for k, v in metadata.pop("annotations", {}).items() if not k.startswith("helm.sh/")}
    return {**document, "metadata": metadata | ({"annotations": rest} if rest else {})}


def test_the_chart_and_the_kustomizations_give_the_same_objects() -> None:
    plain = by_name([*kustomized("base"), *kustomized("uninstall"), *definitions()])
    del plain[f"Namespace {NAMESPACE}"]
    charted = by_name([without_hooks(document) for document in render()])
    assert charted.keys() == plain.keys()
    for name, document in plain.items():
        assert charted[name] == document, name


def test_the_templates_are_those_of_the_manifests(tmp_path: Path) -> None:
    generate: list[str | Path] = [sys.executable, REPOSITORY / "deploy/helm/generate.py", tmp_path]
    subprocess.run(generate, check=True)
    written = {path.name: path.read_text() for path in (CHART / "templates/generated").iterdir()}
    made = {path.name: path.read_text() for path in (tmp_path / "templates/generated").iterdir()}
    assert made == written, "run `make manifests`"
    for path in (tmp_path / "files").iterdir():
        assert (CHART / "files" / path.name).read_text() == path.read_text(), "run `make manifests`"
    schema = "values.schema.json"
    assert (tmp_path / schema).read_text() == (CHART / schema).read_text(), "run `make manifests`"


def leaves(values: dict[str, Any], path: str = "") -> Iterator[str]:
    """The names of all values; what is empty or free in form is one value."""
    for key, value in values.items():
        name = f"{path}.{key}" if path else key
        if isinstance(value, dict) and value and name != "resources" and key != "labels":
            yield from leaves(value, name)
        else:
            yield name


def test_every_value_is_tried() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert sorted(leaves(values)) == sorted(name for name, _, _ in CHANGED)


@pytest.mark.parametrize(("name", "value", "given"), CHANGED)
def test_every_value_is_read_by_something(name: str, value: object, given: tuple[str, ...]) -> None:
    settings = [f"--set={one}" for one in given if one != NO_OPERATOR]
    if NO_OPERATOR not in given:
        settings.append(MONITORING)
    assert rendered(*settings) != rendered(*settings, f"--set-json={name}={json.dumps(value)}")


@pytest.mark.parametrize(("wrong", "said"), REFUSED)
def test_a_wrong_value_is_refused(wrong: str, said: str) -> None:
    done = helm("template", str(CHART), f"--namespace={NAMESPACE}", *SERVER, f"--set={wrong}")
    assert (done.returncode, said in done.stderr) == (1, True), done.stderr


@pytest.mark.parametrize("name", [name for name, _, _ in CHANGED])
def test_every_value_is_held_to_its_kind(name: str) -> None:
    done = helm("template", str(CHART), f"--namespace={NAMESPACE}", *SERVER, f"--set-json={name}=[1]")
    assert done.returncode == 1
    assert f"at '/{name.replace('.', '/')}" in done.stderr, done.stderr


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
"""A field of the policy, what somebody writes into it, and whether that can be meant."""


@pytest.mark.parametrize(("field", "value", "right"), POLICIES)
def test_a_policy_is_refused_by_the_chart_where_the_manager_would(
    field: str, value: object, *, right: bool
) -> None:
    document = {"apiVersion": SIM_API_VERSION, "kind": "Policy", "spec": {field: value}}
    with nullcontext() if right else pytest.raises(InputError):
        parse_policy(document, "here")
    settings = f"--set-json=policy.{field}={json.dumps(value)}"
    done = helm("template", str(CHART), f"--namespace={NAMESPACE}", *SERVER, settings)
    assert (done.returncode == 0) == right, done.stderr
    assert right or "values don't meet the specifications" in done.stderr


def test_what_no_schema_can_say_is_refused_too() -> None:
    elsewhere = helm("template", str(CHART), "--namespace=default", *SERVER)
    assert "add --namespace jobtree-system --create-namespace" in elsewhere.stderr
    alone = [f"--set={ARCHIVE[0]}", "--set=archive.accessMode=ReadWriteOnce"]
    done = helm("template", str(CHART), f"--namespace={NAMESPACE}", *SERVER, *alone)
    assert "2 replicas on different nodes cannot mount the volume: set replicas to 1" in done.stderr


def test_the_schema_knows_the_fields_of_the_policy() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert sorted(schema["properties"]["policy"]["properties"]) == sorted(PolicySpec.__struct_encode_fields__)


def test_old_clusters_get_the_rules_by_the_webhook() -> None:
    old = by_name([without_hooks(one) for one in render(server=SERVER[:1])])
    plain = by_name([*kustomized("before-1.30"), *kustomized("uninstall"), *definitions()])
    del plain[f"Namespace {NAMESPACE}"]
    assert old == plain
    assert "ValidatingWebhookConfiguration jobtree-webhook-rules" in old
    assert not [name for name in old if name.startswith("ValidatingAdmissionPolicy")]
    neither = helm(
        "template", str(CHART), f"--namespace={NAMESPACE}", SERVER[0], "--set=webhook.enabled=false"
    )
    assert "webhook.enabled: false: this cluster has no admission policies" in neither.stderr


def test_monitoring_comes_only_where_it_is() -> None:
    assert not [one for one in render() if one["apiVersion"].startswith("monitoring")]
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


def stub(plural: str, kind: str) -> Manifest:
    """A kind of Prometheus' operator, as far as the API server has to know it."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
    names = {"plural": plural, "singular": kind.lower(), "kind": kind}
    group = "monitoring.coreos.com"
    return {
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def test_where_the_operator_is_the_chart_brings_what_it_reads() -> None:
    """On a real API server, which helm asks what there is."""
    with ControlPlane() as plane:
        root = f"/apis/monitoring.coreos.com/v1/namespaces/{NAMESPACE}"
        install = ("install", RELEASE, str(CHART), f"--namespace={NAMESPACE}", "--create-namespace")
        without = helm(*install, plane=plane)
        assert without.returncode == 0, without.stderr
        assert not plane.rest.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/jobtree-dashboard").accepted
        for plural, kind in (("servicemonitors", "ServiceMonitor"), ("prometheusrules", "PrometheusRule")):
            definitions_of = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            assert plane.rest.post(definitions_of, stub(plural, kind)).accepted
            wait_until(lambda: plane.rest.get(f"{root}/{plural}").accepted, f"there is a {kind}")  # noqa: B023
        upgraded = helm("upgrade", *install[1:4], plane=plane)
        assert upgraded.returncode == 0, upgraded.stderr
        monitor = plane.rest.get(f"{root}/servicemonitors/jobtree-controller-manager").body
        selected = "%2C".join(f"{k}%3D{v}" for k, v in monitor["spec"]["selector"]["matchLabels"].items())
        services = plane.rest.get(f"/api/v1/namespaces/{NAMESPACE}/services?labelSelector={selected}")
        (service,) = services.body["items"]
        assert service["metadata"]["name"] == "jobtree-controller-manager"
        assert plane.rest.get(f"{root}/prometheusrules/jobtree").body["spec"]["groups"]
        assert plane.rest.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/jobtree-dashboard").accepted


def test_it_can_be_packed_and_hosted(tmp_path: Path) -> None:
    packed = helm("package", str(CHART), f"--destination={tmp_path}")
    assert packed.returncode == 0, packed.stderr
    indexed = helm("repo", "index", str(tmp_path))
    assert indexed.returncode == 0, indexed.stderr
    (entry,) = yaml.safe_load((tmp_path / "index.yaml").read_text())["entries"]["gpu-fleet"]
    assert entry["urls"] == ["gpu-fleet-0.1.0.tgz"]
    assert render(chart=tmp_path / entry["urls"][0]) == render()
