"""Attacks on other namespaces and on Jobtree itself that must fail, hostile objects last.

However odd a Run is, the manager goes on, and everybody else's Runs with it.
"""

from tests.live.guarding import (
    BOTH_PATHS,
    GROUP,
    MAIN,
    MANAGED,
    Guarded,
    gpu_container,
    grant,
    grant_spend,
    only_with,
    pod,
    pods_of,
    refused,
    run_of,
    runs_of,
)
from tests.live.managing import ACCOUNT, NAMESPACE, Scene
from tests.live.manifests import API_VERSION, Manifest
from tests.live.process import wait_until
from tests.live.rest import Rest

PATHS = BOTH_PATHS
HOST = [{"name": "host", "hostPath": {"path": "/"}}]


def test_a_run_names_nothing_of_another_namespace(guarded: Guarded, attacked: Scene, mallory: Rest) -> None:
    other = guarded.scene()
    other.nodes("nv-a", 1)
    other.budget("x", 8)
    other.run("up", "x", 8)
    other.await_running("up", 1)
    for name in (f"{other.name}/up", f"../{other.name}/runs/up", f"{other.name}:up"):
        follow = {"after": [name]}
        refused(mallory.post(runs_of(attacked), run_of(attacked, "r", "mine", follow=follow)), "follow.after")
    assert mallory.post(runs_of(attacked), run_of(attacked, "r", "mine", follow={"after": ["up"]})).accepted
    attacked.await_phase("Waiting", "r")
    assert "there is no such Run" in attacked.status("r")["message"]
    elsewhere = run_of(attacked, "r2", "mine")
    elsewhere["metadata"]["namespace"] = other.name
    assert not mallory.post(runs_of(attacked), elsewhere).accepted
    refused(mallory.post(runs_of(other), elsewhere), "cannot create resource")


def test_a_run_of_the_same_name_touches_nothing_of_another_namespace(
    guarded: Guarded, attacked: Scene, mallory: Rest
) -> None:
    """Neither pods nor Services nor leases are found by name across namespaces, whatever a template says."""
    other = guarded.scene()
    other.nodes("nv-a", 2)
    other.budget("x", 16)
    other.run("twin", "x", 16)
    other.await_running("twin", 2)

    def theirs() -> list[tuple[str, str]]:
        found = [*other.pods("twin"), *other.items(f"/api/v1/namespaces/{other.name}/services")]
        return sorted((one["metadata"]["name"], one["metadata"]["uid"]) for one in found)

    before, rank = theirs(), other.pods("twin")[0]
    assert len(before) == 3
    place = {"hostname": rank["spec"]["hostname"], "subdomain": rank["spec"]["subdomain"]}
    forged = {
        "metadata": {"name": rank["metadata"]["name"], "namespace": other.name},
        "spec": {"containers": [MAIN], **place},
    }
    twin = run_of(attacked, "twin", "mine", template=forged)
    twin["spec"]["resources"]["totalGPUs"] = 16
    assert mallory.post(runs_of(attacked), twin).accepted
    attacked.await_running("twin", 2)
    assert place["subdomain"] not in {one["spec"]["subdomain"] for one in attacked.pods("twin")}
    assert mallory.delete(attacked.path("twin")).accepted
    wait_until(lambda: attacked.pods("twin") == [], "its own pods are gone")
    wait_until(lambda: attacked.endings("twin") == ["Cancelled"], "its own lease is ended")
    assert theirs() == before
    assert (other.phase("twin"), other.endings("twin")) == ("Running", ["open"])


def test_nobody_runs_as_jobtree(guarded: Guarded, attacked: Scene, mallory: Rest) -> None:
    grant(
        guarded.plane,
        f"mallory@{attacked.name}",
        [{"apiGroups": [GROUP], "resources": ["runs"], "verbs": ["*"]}],
    )
    template = {"spec": {"containers": [MAIN], "serviceAccountName": ACCOUNT}}
    inside = run_of(attacked, "r", "mine", template=template)
    inside["metadata"]["namespace"] = NAMESPACE
    answer = mallory.post(f"/apis/{API_VERSION}/namespaces/{NAMESPACE}/runs", inside)
    refused(answer, "metadata.namespace: jobtree-system", "a namespace of your team")
    refused(mallory.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/jobtree-lottery-key"), "cannot get")
    # An account of that name elsewhere is another account: there is none in this namespace, and no pod.
    assert mallory.post(runs_of(attacked), run_of(attacked, "r", "mine", template=template)).accepted
    wait_until(lambda: guarded.gave_as_reason(f'"{ACCOUNT}" not found'), "its pod is refused")
    assert attacked.pods("r") == []
    assert mallory.delete(attacked.path("r")).accepted


@only_with("policies")
def test_pod_security_holds_for_pods_that_jobtree_makes(guarded: Guarded) -> None:
    scene = guarded.scene(**{"pod-security.kubernetes.io/enforce": "baseline"})
    scene.nodes("nv-a", 1)
    scene.budget("mine", 8)
    mallory = guarded.person(scene, "mallory", "mine")
    for name, field in (("root", {"hostPID": True}), ("disk", {"volumes": HOST})):
        template = {"spec": {"containers": [{**MAIN, "securityContext": {"privileged": True}}], **field}}
        assert mallory.post(runs_of(scene), run_of(scene, name, "mine", template=template)).accepted
        wait_until(lambda: guarded.manager.said(f'"name":"{name}-'), "the pod is refused")  # noqa: B023
        assert scene.pods(name) == []
        assert mallory.delete(scene.path(name)).accepted
        wait_until(lambda: not scene.plane.rest.get(scene.path(name)).accepted, "it is gone")  # noqa: B023
    assert guarded.gave_as_reason('violates PodSecurity "baseline')
    assert guarded.is_sound(), guarded.manager.log.read_text()


# Hostile objects


def nested(depth: int) -> Manifest:
    value: Manifest = {}
    for _ in range(depth):
        value = {"a": value}
    return value


def template(spec: Manifest | None = None, metadata: object = None, **container: object) -> Manifest:
    """Fields of a Run whose template has these in its spec, its metadata and its container."""
    made: Manifest = {"spec": {"containers": [{**MAIN, **container}], **(spec or {})}}
    return {"template": made if metadata is None else {**made, "metadata": metadata}}


def asks(quantity: str) -> Manifest:
    return template(resources={"requests": {"memory": quantity}})


FITTING = {
    "long": template(env=[{"name": f"e{number}", "value": "x" * 100} for number in range(4000)]),
    "deep": template({"affinity": nested(200)}),
    "huge-memory": asks("1E"),
    "million-pods": {"resources": {"gpuType": "GPU", "totalGPUs": 1_000_000, "gpusPerPod": 1}},
    "waits-for-all": {"follow": {"after": [f"x{number}" for number in range(64)]}},
    "bidi": template(env=[{"name": "A", "value": "\u202e\U0001f4a3\u0000\ufeff" * 64}]),
    "grace": template({"terminationGracePeriodSeconds": 10**18}),
}
MISSHAPEN = {
    "deeper": template({"affinity": nested(900)}),
    "no-grace": template({"terminationGracePeriodSeconds": "soon"}),
    "env": template(env="x"),
    "mounts": template(volumeMounts=5),
    "volumes": template({"volumes": {"a": 1}}),
    "labels": template(metadata={"labels": "x"}),
    "annotations": template(metadata={"annotations": {f"{GROUP}/gpu-container": {"a": 1}}}),
    "letters": template(metadata={"labels": {"ключ": "значение"}}),
    "exponent": asks("1e999999999"),
    "digits": asks("9" * 5000),
    "tolerations": template({"tolerations": [{"operator": "Nope"}]}),
    "selector": template({"nodeSelector": {"a": 5}}),
    "nameless": {"template": {"spec": {"containers": [{}]}}},
}


def test_metadata_without_measure_is_refused(attacked: Scene, mallory: Rest) -> None:
    for field, value, says in (
        ("labels", {f"k{number}": "v" for number in range(8000)}, "labels: 8000 are too many"),
        ("finalizers", [f"example.com/{number}" for number in range(5000)], "finalizers: 5000 are too many"),
        ("annotations", {f"k{number}": "v" for number in range(65)}, "annotations: 65 are too many"),
        ("annotations", {"k": "v" * 2**20}, "annotations: Too long"),
        ("name", "n" * 241, "must be at most 240 characters"),
    ):
        forged = run_of(attacked, "r", "mine")
        forged["metadata"][field] = value
        refused(mallory.post(runs_of(attacked), forged), says)


@only_with("webhook")
def test_the_webhook_has_an_answer_to_every_hostile_run(
    guarded: Guarded, attacked: Scene, mallory: Rest
) -> None:
    for name, fields in {**FITTING, **MISSHAPEN}.items():
        answer = mallory.post(f"{runs_of(attacked)}?dryRun=All", run_of(attacked, name, "mine", **fields))
        assert answer.status in (201, 422), answer.message
    for spec in ("none", [1], {"stages": "x"}, {"stages": [{"name": [1], "sparesPerGroup": {}}, 7]}):
        answer = mallory.post(runs_of(attacked), {**run_of(attacked, "r", "mine"), "spec": spec})
        assert answer.status in (400, 422), answer.message
    assert not [line for line in guarded.manager.lines() if line["message"] == "no answer"]


@only_with("policies")
def test_a_hostile_run_stops_nobody_elses(guarded: Guarded, attacked: Scene, mallory: Rest) -> None:
    attacked.nodes("nv-b", len(FITTING) + len(MISSHAPEN) + 2)
    attacked.budget("rich", 1000)
    grant_spend(guarded.plane, f"mallory@{attacked.name}", attacked.owner("rich"))
    forged = [run_of(attacked, name, "rich", **fields) for name, fields in {**FITTING, **MISSHAPEN}.items()]
    forged += [run_of(attacked, f"{'a' * 199}.b", "rich"), run_of(attacked, "annotated", "rich")]
    forged[-1]["metadata"]["annotations"] = {"k": "v" * 260_000}
    for run in forged:
        answer = mallory.post(runs_of(attacked), run)
        assert answer.accepted, answer.message
    attacked.run("innocent", "theirs", 16)
    attacked.await_running("innocent", 2)
    wait_until(
        lambda: all(one.get("status", {}).get("phase") for one in attacked.items(runs_of(attacked))),
        "each of them is told how it stands, even if it cannot be read (I11)",
    )
    assert not guarded.manager.has_ended
    broken = [line for line in guarded.manager.lines() if "a decision was refused" in line["message"]]
    assert not [line for line in broken if "is invalid" in line["why"]], "it can never write what it decided"
    assert mallory.delete(runs_of(attacked)).accepted
    wait_until(lambda: attacked.items(runs_of(attacked)) == [], "all of them can be cancelled")


def greedy(amount: str, number: int = 1) -> list[Manifest]:
    """Containers that ask for so many GPUs each."""
    return [
        {**gpu_container(), "name": f"c{one}", "resources": {"limits": {"nvidia.com/gpu": amount}}}
        for one in range(number)
    ]


@only_with("policies")
def test_hostile_pods_stop_nobody(guarded: Guarded) -> None:
    """Where pods may ask for GPUs by themselves, and say on which node they are."""
    scene = guarded.scene(**{MANAGED: "false"})
    (node,) = scene.nodes("nv-a", 1)
    scene.nodes("nv-b", 2)
    scene.budget("theirs", 32)
    eve = guarded.person(scene, "eve")
    bombs = "\u202e\U0001f4a3" * 30_000
    hostile: list[Manifest] = [
        {"containers": greedy(str(2**63 - 1)), "nodeName": node},
        {"containers": greedy(str(10**15 + 1), 30), "nodeName": node},
        {"containers": greedy("1", 1000), "nodeName": node},
        {"containers": [MAIN], "initContainers": greedy("8", 100), "nodeName": node},
        {"containers": greedy("8"), "nodeName": "nowhere"},
        {"containers": [MAIN], "annotations": {"k": bombs}, "nodeName": node},
        {"containers": [MAIN], "annotations": {f"{GROUP}/risk": "[" * 10_000, f"{GROUP}/cordoned": "x"}},
    ]
    for number, fields in enumerate(hostile):
        answer = eve.post(pods_of(scene), pod(f"hostile-{number}", **fields))
        assert answer.accepted, answer.message
    scene.run("innocent", "theirs", 16)
    scene.await_running("innocent", 2)
    assert {one["spec"]["nodeName"] for one in scene.pods("innocent")}.isdisjoint({node})
    assert guarded.is_sound(), guarded.manager.log.read_text()
    assert not [line for line in guarded.manager.lines() if line["message"] == "an invariant is broken"]
    assert eve.delete(f"{pods_of(scene)}?gracePeriodSeconds=0").accepted
    scene.run("after", "theirs", 8)
    scene.await_running("after", 1)
