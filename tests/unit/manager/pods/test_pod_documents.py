"""Pod documents keep the whole template; Jobtree adds node, GPUs, names and environment."""

from copy import deepcopy
from typing import Any

import msgspec
import pytest

from jobtree.api.kinds.run import Risk, Run
from jobtree.api.schema.object_meta import ObjectMeta
from jobtree.kube.watch.object_decoder import read_live_pod
from jobtree.manager.pods.pod_documents import PodDefaults, pod_document, service_document
from jobtree.manager.pods.pod_names import as_label, hostname, pod_name, service_name
from jobtree.manager.pods.pod_set import PodPlacement, PodSet
from jobtree.manager.pods.rank_environment import environment
from tests.unit.core.build import run

GPU_TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
UID = "1f0c22aa-0000-4000-8000-000000000000"
POD_SET = PodSet(2, 8, (PodPlacement("0-0-2", "n1", 8, 0, 0, 0), PodPlacement("1-0-2", "n2", 8, 1, 1, 0)))
STANDBY = PodPlacement("spare-3-0", "n3", 0, 0)
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "mine"}, "annotations": {"note": "kept"}},
    "spec": {
        "initContainers": [{"name": "fetch", "image": "fetch:1"}],
        "containers": [
            {
                "name": "train",
                "image": "train:1",
                "env": [{"name": "LR", "value": "1"}, {"name": "NODE_RANK", "value": "9"}],
            },
            {"name": "sidecar", "image": "side:1", "resources": {"limits": {"cpu": "1"}}},
        ],
        "volumes": [{"name": "data", "emptyDir": {}}],
        "tolerations": [{"key": "team", "operator": "Exists"}],
        "nodeSelector": {"disk": "fast"},
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 60,
    },
}


def trainer(**fields: Any) -> Run:  # noqa: ANN401
    metadata = ObjectMeta(name="trainer", namespace="rai", uid=UID)
    return msgspec.structs.replace(run("trainer", "org", 16, **fields), metadata=metadata)


def defaults(template: dict[str, Any] = TEMPLATE, max_grace_ms: int = 300_000) -> PodDefaults:
    return PodDefaults(template, "nvidia.com/gpu", max_grace_ms)


def rank(number: int = 1, **changed: Any) -> dict[str, Any]:  # noqa: ANN401
    return pod_document(trainer(), POD_SET, POD_SET.placements[number], defaults(**changed))


def variables(pod: dict[str, Any], container: int = 0) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in pod["spec"]["containers"][container]["env"]}


def test_pod_keeps_the_whole_template() -> None:
    pod = rank()
    spec = pod["spec"]
    assert [container["name"] for container in spec["containers"]] == ["train", "sidecar"]
    assert (spec["nodeSelector"], spec["tolerations"]) == (
        {"disk": "fast"},
        [{"key": "team", "operator": "Exists"}, GPU_TOLERATION],
    )
    assert spec["volumes"][0] == {"name": "data", "emptyDir": {}}
    assert spec["initContainers"][0]["image"] == "fetch:1"
    assert pod["metadata"]["labels"]["app"] == "mine"
    assert pod["metadata"]["annotations"]["note"] == "kept"
    assert TEMPLATE["spec"]["restartPolicy"] == "Always", "the template itself does not change"


def test_template_is_neither_changed_nor_copied() -> None:
    """A template may be large, and a gang has many pods."""
    before = deepcopy(TEMPLATE)
    annotated = {"metadata": {"annotations": {"rq.davidlangworthy.io/gpu-container": "sidecar"}}}
    for template in (TEMPLATE, {**TEMPLATE, **annotated}):
        for placement in (*POD_SET.placements, STANDBY):
            pod_document(trainer(), POD_SET, placement, defaults(template))
    assert before == TEMPLATE
    pod = rank()
    assert pod["spec"]["tolerations"][0] is TEMPLATE["spec"]["tolerations"][0]
    assert pod["spec"]["containers"][0]["env"][-1] is TEMPLATE["spec"]["containers"][0]["env"][0]


def test_rank_has_its_node_and_gpus_and_is_never_restarted() -> None:
    spec = rank()["spec"]
    assert (spec["nodeName"], spec["restartPolicy"]) == ("n2", "Never")
    gpus = {"nvidia.com/gpu": "8"}
    assert spec["containers"][0]["resources"] == {"requests": gpus, "limits": gpus}
    assert spec["containers"][1]["resources"] == {"limits": {"cpu": "1"}}


def test_annotation_names_the_container_with_the_gpus() -> None:
    template = {**TEMPLATE, "metadata": {"annotations": {"rq.davidlangworthy.io/gpu-container": "sidecar"}}}
    containers = rank(template=template)["spec"]["containers"]
    assert "resources" not in containers[0]
    assert containers[1]["resources"]["limits"] == {"cpu": "1", "nvidia.com/gpu": "8"}


def test_every_container_has_the_environment_of_its_rank() -> None:
    pod = rank()
    assert variables(pod) == variables(pod, 1) | {"LR": "1"}
    assert variables(pod)["NODE_RANK"] == "1"
    assert variables(pod)["MASTER_ADDR"] == "trainer-0-0.trainer-1f0c22aa.rai.svc"


def test_environment_of_a_rank() -> None:
    assert environment(trainer(checkpoint="10m"), POD_SET, POD_SET.placements[1]) == {
        "MASTER_ADDR": "trainer-0-0.trainer-1f0c22aa.rai.svc",
        "MASTER_PORT": "29500",
        "WORLD_SIZE": "16",
        "NNODES": "2",
        "NODE_RANK": "1",
        "NPROC_PER_NODE": "8",
        "PET_NPROC_PER_NODE": "8",
        "PET_NNODES": "2",
        "PET_NODE_RANK": "1",
        "PET_MASTER_ADDR": "trainer-0-0.trainer-1f0c22aa.rai.svc",
        "PET_MASTER_PORT": "29500",
        "JOBTREE_RUN": "trainer",
        "JOBTREE_GROUP": "1",
        "JOBTREE_GROUP_RANK": "0",
        "JOBTREE_ATTEMPT": "2",
        "JOBTREE_CHECKPOINT_SECONDS": "600",
    }


def test_single_pod_uses_its_hostname_as_master_address() -> None:
    alone = PodSet(1, 8, (PodPlacement("0-0-1", "n1", 8, 0, 0, 0),))
    pod = pod_document(trainer(), alone, alone.placements[0], defaults())
    assert variables(pod)["MASTER_ADDR"] == pod["spec"]["hostname"] == "trainer-0-0"
    assert "subdomain" not in pod["spec"]


def test_hostname_has_no_attempt_and_the_name_has() -> None:
    spec, metadata = rank()["spec"], rank()["metadata"]
    assert (spec["hostname"], spec["subdomain"]) == ("trainer-1-0", "trainer-1f0c22aa")
    assert metadata["name"] == "trainer-1f0c22aa-1-0-2"
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Run", UID, True)


@pytest.mark.parametrize(("requested", "expected"), [(60, 60), (600, 300), (None, 30), (0, 0)])
def test_grace_period_is_that_of_the_template_up_to_the_policys(requested: int | None, expected: int) -> None:
    spec = {**TEMPLATE["spec"], "terminationGracePeriodSeconds": requested}
    assert rank(template={"spec": spec})["spec"]["terminationGracePeriodSeconds"] == expected


def test_rank_reads_its_risk_in_a_file() -> None:
    """A Run is warned of promises that may stop it, also inside its pods (R11)."""
    risk = Risk(reservation="big-1", at="2026-01-05T10:00:00Z", kill_probability="0.25")
    pod = pod_document(trainer(), POD_SET, POD_SET.placements[0], defaults(), (risk,))
    (volume,) = [volume for volume in pod["spec"]["volumes"] if volume["name"] == "jobtree-risk"]
    (item,) = volume["downwardAPI"]["items"]
    assert item["fieldRef"]["fieldPath"] == "metadata.annotations['rq.davidlangworthy.io/risk']"
    assert '"killProbability":"0.25"' in pod["metadata"]["annotations"]["rq.davidlangworthy.io/risk"]
    mounts = pod["spec"]["containers"][0]["volumeMounts"]
    assert {"name": "jobtree-risk", "mountPath": "/etc/jobtree", "readOnly": True} in mounts


def test_f1_standby_pod_has_the_image_and_no_gpu_and_runs_nothing_of_the_template() -> None:
    """The NVIDIA runtime gives GPUs to every image that asks for them in its environment."""
    spec = pod_document(trainer(), POD_SET, STANDBY, defaults())["spec"]
    (container,) = spec["containers"]
    assert (container["image"], container["command"][0]) == ("train:1", "sh")
    assert "nvidia.com/gpu" not in str(container.get("resources"))
    assert container["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    assert "initContainers" not in spec


def test_service_selects_the_ranks_of_its_run_before_they_are_ready() -> None:
    service = service_document(trainer())
    assert service["metadata"]["name"] == "trainer-1f0c22aa"
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"].items() <= rank()["metadata"]["labels"].items()
    assert (
        not service["spec"]["selector"].items()
        <= pod_document(trainer(), POD_SET, STANDBY, defaults())["metadata"]["labels"].items()
    )


@pytest.mark.parametrize("name", ["a" * 253, "0starts-with-a-digit", "has.dots", "ends-" + "x" * 60])
def test_names_are_dns_labels_when_the_name_of_the_run_is_long(name: str) -> None:
    for label in (pod_name(name, UID, "100-200-30"), hostname(name, "100-200"), service_name(name, UID)):
        assert len(label) <= 63
        assert "." not in label
        assert label[0].isalpha()


def test_cut_names_stay_different() -> None:
    assert as_label("a" * 100 + "1", 40) != as_label("a" * 100 + "2", 40)


# Who binds it (N1)

ON_NODE = {"key": "metadata.name", "operator": "In", "values": ["n2"]}


def scheduled(template: dict[str, Any] = TEMPLATE) -> dict[str, Any]:
    by_scheduler = PodDefaults(template, "nvidia.com/gpu", 300_000, by_scheduler=True)
    spec: dict[str, Any] = pod_document(trainer(), POD_SET, POD_SET.placements[1], by_scheduler)["spec"]
    return spec


def node_terms(spec: dict[str, Any]) -> list[dict[str, Any]]:
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    terms: list[dict[str, Any]] = required["nodeSelectorTerms"]
    return terms


def with_affinity(**affinity: object) -> dict[str, Any]:
    return {**TEMPLATE, "spec": {**TEMPLATE["spec"], "affinity": affinity}}


def test_n1_pod_for_the_scheduler_has_its_node_as_an_affinity_and_no_node_name() -> None:
    spec = scheduled()
    assert "nodeName" not in spec
    assert node_terms(spec) == [{"matchFields": [ON_NODE]}]


def test_n1_pod_for_the_scheduler_keeps_the_affinity_of_its_template() -> None:
    """Terms are alternatives, so each of them names the node."""
    zones = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in ("a", "b")
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": zones}}
    spec = scheduled(with_affinity(nodeAffinity=required, podAntiAffinity={"mine": []}))
    assert node_terms(spec) == [{**zone, "matchFields": [ON_NODE]} for zone in zones]
    assert spec["affinity"]["podAntiAffinity"] == {"mine": []}


def test_n1_unbound_pod_of_a_run_counts_on_the_node_that_it_waits_for() -> None:
    body = pod_document(
        trainer(),
        POD_SET,
        POD_SET.placements[1],
        PodDefaults(TEMPLATE, "nvidia.com/gpu", 300_000, by_scheduler=True),
    )
    pod = read_live_pod(msgspec.json.encode(body)).value
    assert (pod.pod.node, pod.pod.bound, pod.pod.gpus) == ("n2", False, 8)
    body["metadata"]["ownerReferences"] = []
    assert read_live_pod(msgspec.json.encode(body)).value.pod.node == "", "pods of others may go elsewhere"


@pytest.mark.parametrize("placement", [POD_SET.placements[1], STANDBY])
def test_n1_pods_tolerate_the_taint_of_gpu_nodes_and_have_a_priority(placement: PodPlacement) -> None:
    given = PodDefaults(TEMPLATE, "nvidia.com/gpu", 300_000, priority_class="jobtree-rank")
    spec = pod_document(trainer(), POD_SET, placement, given)["spec"]
    assert (GPU_TOLERATION in spec["tolerations"], spec["priorityClassName"]) == (True, "jobtree-rank")
    named = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "priorityClassName": "own"}}
    spec = pod_document(trainer(), POD_SET, placement, msgspec.structs.replace(given, template=named))["spec"]
    assert spec["priorityClassName"] == "own"


def test_n1_standby_pod_keeps_the_security_context_of_its_container() -> None:
    """Without it, Pod Security "restricted" refuses the standby of a Run whose ranks it accepts."""
    context = {"runAsNonRoot": True, "allowPrivilegeEscalation": False}
    container = {**TEMPLATE["spec"]["containers"][0], "securityContext": context}
    template = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "containers": [container]}}
    standby = pod_document(trainer(), POD_SET, STANDBY, defaults(template))
    assert standby["spec"]["containers"][0]["securityContext"] == context
