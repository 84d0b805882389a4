"""Attacks on other namespaces and on Jobtree itself that must fail, and hostile objects.

Whatever a Run or a pod contains, the manager keeps running, and the Runs of others start.
"""

from tests.live.admission.admission_cluster import BOTH_CHECKERS, MANAGED_LABEL, AdmissionCluster, only_with
from tests.live.admission.object_manifests import (
    MAIN_CONTAINER,
    assert_refused,
    gpu_container,
    pod_manifest,
    run_manifest,
)
from tests.live.cluster.rbac import grant, grant_spend
from tests.live.cluster.rest_client import RestClient
from tests.live.cluster.server_process import wait_until
from tests.live.crds.manifests import API_VERSION, GROUP, Manifest
from tests.live.manager.installation import ACCOUNT, NAMESPACE
from tests.live.manager.tenant import Tenant

CHECKERS = BOTH_CHECKERS
HOST_VOLUMES = [{"name": "host", "hostPath": {"path": "/"}}]


def test_run_cannot_follow_runs_of_another_namespace(
    admission_cluster: AdmissionCluster, tenant: Tenant, attacker: RestClient
) -> None:
    other = admission_cluster.create_tenant()
    other.add_nodes("nv-a", 1)
    other.create_budget("x", 8)
    other.create_run("up", "x", 8)
    other.await_running_pods("up", 1)
    for name in (f"{other.name}/up", f"../{other.name}/runs/up", f"{other.name}:up"):
        follow = {"after": [name]}
        assert_refused(
            attacker.post(tenant.runs_path, run_manifest(tenant, "r", "mine", follow=follow)), "follow.after"
        )
    assert attacker.post(
        tenant.runs_path, run_manifest(tenant, "r", "mine", follow={"after": ["up"]})
    ).accepted
    tenant.await_phase("Waiting", "r")
    assert "which does not exist" in tenant.status("r")["message"]
    manifest = run_manifest(tenant, "r2", "mine")
    manifest["metadata"]["namespace"] = other.name
    assert not attacker.post(tenant.runs_path, manifest).accepted
    assert_refused(attacker.post(other.runs_path, manifest), "cannot create resource")


def test_run_leaves_objects_of_the_same_name_in_other_namespaces_alone(
    admission_cluster: AdmissionCluster, tenant: Tenant, attacker: RestClient
) -> None:
    """Jobtree never finds pods, Services and leases of other namespaces by name."""
    other = admission_cluster.create_tenant()
    other.add_nodes("nv-a", 2)
    other.create_budget("x", 16)
    other.create_run("twin", "x", 16)
    other.await_running_pods("twin", 2)

    def other_objects() -> list[tuple[str, str]]:
        objects = [*other.pods("twin"), *other.items(f"/api/v1/namespaces/{other.name}/services")]
        return sorted((item["metadata"]["name"], item["metadata"]["uid"]) for item in objects)

    before, rank = other_objects(), other.pods("twin")[0]
    assert len(before) == 3
    place = {"hostname": rank["spec"]["hostname"], "subdomain": rank["spec"]["subdomain"]}
    forged = {
        "metadata": {"name": rank["metadata"]["name"], "namespace": other.name},
        "spec": {"containers": [MAIN_CONTAINER], **place},
    }
    twin = run_manifest(tenant, "twin", "mine", template=forged)
    twin["spec"]["resources"]["totalGPUs"] = 16
    assert attacker.post(tenant.runs_path, twin).accepted
    tenant.await_running_pods("twin", 2)
    assert place["subdomain"] not in {pod["spec"]["subdomain"] for pod in tenant.pods("twin")}
    assert attacker.delete(tenant.run_path("twin")).accepted
    wait_until(lambda: tenant.pods("twin") == [], "its own pods are deleted")
    wait_until(lambda: tenant.closure_reasons("twin") == ["Cancelled"], "its own lease is closed")
    assert other_objects() == before
    assert (other.phase("twin"), other.closure_reasons("twin")) == ("Running", ["open"])


def test_runs_cannot_use_the_managers_service_account(
    admission_cluster: AdmissionCluster, tenant: Tenant, attacker: RestClient
) -> None:
    grant(
        admission_cluster.plane,
        f"attacker@{tenant.name}",
        [{"apiGroups": [GROUP], "resources": ["runs"], "verbs": ["*"]}],
    )
    template = {"spec": {"containers": [MAIN_CONTAINER], "serviceAccountName": ACCOUNT}}
    manifest = run_manifest(tenant, "r", "mine", template=template)
    manifest["metadata"]["namespace"] = NAMESPACE
    answer = attacker.post(f"/apis/{API_VERSION}/namespaces/{NAMESPACE}/runs", manifest)
    assert_refused(answer, "metadata.namespace: jobtree-system", "a namespace of your team")
    assert_refused(attacker.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/jobtree-lottery-key"), "cannot get")
    # There is no account of that name in this namespace, so the pod is refused.
    assert attacker.post(tenant.runs_path, run_manifest(tenant, "r", "mine", template=template)).accepted
    wait_until(lambda: admission_cluster.logged_failure_with(f'"{ACCOUNT}" not found'), "its pod is refused")
    assert tenant.pods("r") == []
    assert attacker.delete(tenant.run_path("r")).accepted


@only_with("policies")
def test_pod_security_level_applies_to_pods_of_runs(admission_cluster: AdmissionCluster) -> None:
    tenant = admission_cluster.create_tenant(**{"pod-security.kubernetes.io/enforce": "baseline"})
    tenant.add_nodes("nv-a", 1)
    tenant.create_budget("mine", 8)
    attacker = admission_cluster.create_user(tenant, "attacker", "mine")
    for name, field in (("root", {"hostPID": True}), ("disk", {"volumes": HOST_VOLUMES})):
        template = {
            "spec": {"containers": [{**MAIN_CONTAINER, "securityContext": {"privileged": True}}], **field}
        }
        assert attacker.post(tenant.runs_path, run_manifest(tenant, name, "mine", template=template)).accepted
        wait_until(lambda: admission_cluster.manager.has_logged(f'"name":"{name}-'), "the pod is refused")  # noqa: B023
        assert tenant.pods(name) == []
        assert attacker.delete(tenant.run_path(name)).accepted
        wait_until(lambda: not tenant.plane.rest.get(tenant.run_path(name)).accepted, "the Run is deleted")  # noqa: B023
    assert admission_cluster.logged_failure_with('violates PodSecurity "baseline')
    assert admission_cluster.manager_is_healthy(), admission_cluster.manager.log.read_text()


# Hostile objects


def nested(depth: int) -> Manifest:
    value: Manifest = {}
    for _ in range(depth):
        value = {"a": value}
    return value


def template(spec: Manifest | None = None, metadata: object = None, **container: object) -> Manifest:
    """Returns a Run's field ``template`` with these fields in its spec, metadata and container."""
    content: Manifest = {"spec": {"containers": [{**MAIN_CONTAINER, **container}], **(spec or {})}}
    return {"template": content if metadata is None else {**content, "metadata": metadata}}


def memory_request(quantity: str) -> Manifest:
    return template(resources={"requests": {"memory": quantity}})


VALID_SPECS = {
    "long": template(env=[{"name": f"e{number}", "value": "x" * 100} for number in range(4000)]),
    "deep": template({"affinity": nested(200)}),
    "huge-memory": memory_request("1E"),
    "million-gpus": {"resources": {"gpuType": "GPU", "totalGPUs": 1_000_000}},
    "waits-for-all": {"follow": {"after": [f"x{number}" for number in range(64)]}},
    "bidi": template(env=[{"name": "A", "value": "\u202e\U0001f4a3\u0000\ufeff" * 64}]),
    "grace": template({"terminationGracePeriodSeconds": 10**18}),
}
INVALID_SPECS = {
    "deeper": template({"affinity": nested(900)}),
    "no-grace": template({"terminationGracePeriodSeconds": "soon"}),
    "env": template(env="x"),
    "mounts": template(volumeMounts=5),
    "volumes": template({"volumes": {"a": 1}}),
    "labels": template(metadata={"labels": "x"}),
    "annotations": template(metadata={"annotations": {f"{GROUP}/gpu-container": {"a": 1}}}),
    "letters": template(metadata={"labels": {"ключ": "значение"}}),
    "exponent": memory_request("1e999999999"),
    "digits": memory_request("9" * 5000),
    "tolerations": template({"tolerations": [{"operator": "Nope"}]}),
    "selector": template({"nodeSelector": {"a": 5}}),
    "nameless": {"template": {"spec": {"containers": [{}]}}},
}


def test_oversized_metadata_is_refused(tenant: Tenant, attacker: RestClient) -> None:
    for field, value, says in (
        ("labels", {f"k{number}": "v" for number in range(8000)}, "labels: 8000 are too many"),
        ("finalizers", [f"example.com/{number}" for number in range(5000)], "finalizers: 5000 are too many"),
        ("annotations", {f"k{number}": "v" for number in range(65)}, "annotations: 65 are too many"),
        ("annotations", {"k": "v" * 2**20}, "annotations: Too long"),
        ("name", "n" * 241, "must be at most 240 characters"),
    ):
        forged = run_manifest(tenant, "r", "mine")
        forged["metadata"][field] = value
        assert_refused(attacker.post(tenant.runs_path, forged), says)


@only_with("webhook")
def test_webhook_answers_every_hostile_run(
    admission_cluster: AdmissionCluster, tenant: Tenant, attacker: RestClient
) -> None:
    for name, fields in {**VALID_SPECS, **INVALID_SPECS}.items():
        answer = attacker.post(f"{tenant.runs_path}?dryRun=All", run_manifest(tenant, name, "mine", **fields))
        assert answer.status in (201, 422), answer.message
    for spec in ("none", [1], {"stages": "x"}, {"stages": [{"name": [1], "sparesPerGroup": {}}, 7]}):
        answer = attacker.post(tenant.runs_path, {**run_manifest(tenant, "r", "mine"), "spec": spec})
        assert answer.status in (400, 422), answer.message
    assert not [line for line in admission_cluster.manager.log_lines() if line["message"] == "no answer"]


@only_with("policies")
def test_other_runs_start_when_runs_are_hostile(
    admission_cluster: AdmissionCluster, tenant: Tenant, attacker: RestClient
) -> None:
    tenant.add_nodes("nv-b", len(VALID_SPECS) + len(INVALID_SPECS) + 2)
    tenant.create_budget("rich", 1000)
    grant_spend(admission_cluster.plane, f"attacker@{tenant.name}", tenant.owner("rich"))
    forged = [
        run_manifest(tenant, name, "rich", **fields)
        for name, fields in {**VALID_SPECS, **INVALID_SPECS}.items()
    ]
    forged += [run_manifest(tenant, f"{'a' * 199}.b", "rich"), run_manifest(tenant, "annotated", "rich")]
    forged[-1]["metadata"]["annotations"] = {"k": "v" * 260_000}
    for run in forged:
        answer = attacker.post(tenant.runs_path, run)
        assert answer.accepted, answer.message
    tenant.create_run("innocent", "theirs", 16)
    tenant.await_running_pods("innocent", 2)
    wait_until(
        lambda: all(run.get("status", {}).get("phase") for run in tenant.items(tenant.runs_path)),
        "every Run has a phase, even one that cannot be read (I11)",
    )
    assert not admission_cluster.manager.has_ended
    broken = [
        line for line in admission_cluster.manager.log_lines() if "a decision was refused" in line["message"]
    ]
    assert not [line for line in broken if "is invalid" in line["why"]], (
        "the API server refuses a decision for ever"
    )
    assert attacker.delete(tenant.runs_path).accepted
    wait_until(lambda: tenant.items(tenant.runs_path) == [], "all Runs are deleted")


def greedy(amount: str, number: int = 1) -> list[Manifest]:
    """Returns containers that each ask for this amount of GPUs."""
    return [
        {**gpu_container(), "name": f"c{index}", "resources": {"limits": {"nvidia.com/gpu": amount}}}
        for index in range(number)
    ]


@only_with("policies")
def test_runs_start_when_pods_are_hostile(admission_cluster: AdmissionCluster) -> None:
    """In an unmanaged namespace, pods may ask for GPUs and name their node."""
    tenant = admission_cluster.create_tenant(**{MANAGED_LABEL: "false"})
    (node,) = tenant.add_nodes("nv-a", 1)
    tenant.add_nodes("nv-b", 2)
    tenant.create_budget("theirs", 32)
    user = admission_cluster.create_user(tenant, "user")
    long_text = "\u202e\U0001f4a3" * 30_000
    hostile: list[Manifest] = [
        {"containers": greedy(str(2**63 - 1)), "nodeName": node},
        {"containers": greedy(str(10**15 + 1), 30), "nodeName": node},
        {"containers": greedy("1", 1000), "nodeName": node},
        {"containers": [MAIN_CONTAINER], "initContainers": greedy("8", 100), "nodeName": node},
        {"containers": greedy("8"), "nodeName": "nowhere"},
        {"containers": [MAIN_CONTAINER], "annotations": {"k": long_text}, "nodeName": node},
        {
            "containers": [MAIN_CONTAINER],
            "annotations": {f"{GROUP}/risk": "[" * 10_000, f"{GROUP}/cordoned": "x"},
        },
    ]
    for number, fields in enumerate(hostile):
        answer = user.post(tenant.pods_path, pod_manifest(f"hostile-{number}", **fields))
        assert answer.accepted, answer.message
    tenant.create_run("innocent", "theirs", 16)
    tenant.await_running_pods("innocent", 2)
    assert {pod["spec"]["nodeName"] for pod in tenant.pods("innocent")}.isdisjoint({node})
    assert admission_cluster.manager_is_healthy(), admission_cluster.manager.log.read_text()
    assert not [
        line for line in admission_cluster.manager.log_lines() if line["message"] == "an invariant is broken"
    ]
    assert user.delete(f"{tenant.pods_path}?gracePeriodSeconds=0").accepted
    tenant.create_run("after", "theirs", 8)
    tenant.await_running_pods("after", 1)
