"""Converted objects of Kueue: what Kueue had admitted starts, with the payers of its queue."""

import copy
import shlex
from pathlib import Path
from typing import Any

import pytest

from jobtree.api.documents.document_stream import Document, read_documents
from jobtree.api.schema.problems import InputError
from jobtree.importers.conversion import Converted
from jobtree.importers.kueue.kueue_importer import convert_kueue, flavor_names
from jobtree.snapshot.cluster import Cluster

CORPUS = Path(__file__).parents[1] / "corpus" / "kueue"
LIVE = CORPUS / "19-live-list.yaml"
PRODUCT = "nvidia.com/gpu.product"
GPU = "nvidia.com/gpu"

Body = dict[str, Any]


def convert(*bodies: Body, **names: str) -> Converted:
    return convert_kueue([Document("kueue.yaml", body) for body in bodies], names)


def flavor(name: str, **labels: str) -> Body:
    return {"kind": "ResourceFlavor", "metadata": {"name": name}, "spec": {"nodeLabels": labels}}


def queue(name: str, gpus: int, cohort: str = "", flavor_name: str = "h100", **limits: int) -> Body:
    quota = {"name": GPU, "nominalQuota": gpus, **limits}
    groups = [{"coveredResources": [GPU], "flavors": [{"name": flavor_name, "resources": [quota]}]}]
    spec = {"resourceGroups": groups, **({"cohort": cohort} if cohort else {})}
    return {"kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}


def local(name: str) -> Body:
    return {
        "kind": "LocalQueue",
        "metadata": {"name": "q", "namespace": name},
        "spec": {"clusterQueue": name},
    }


def job(name: str, team: str, pods: int, gpus: int = 8) -> Body:
    containers = [{"name": "w", "image": "i", "resources": {"limits": {GPU: gpus}}}]
    metadata = {"name": name, "namespace": team, "labels": {"kueue.x-k8s.io/queue-name": "q"}}
    return {
        "kind": "Job",
        "metadata": metadata,
        "spec": {"parallelism": pods, "template": {"spec": {"containers": containers}}},
    }


def node(name: str, **labels: str) -> Body:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {PRODUCT: "H100", **labels}},
        "status": {"allocatable": {GPU: "8", "cpu": "96", "memory": "1Ti"}},
    }


def labelled(nodes: list[Body], commands: list[str]) -> list[Body]:
    """Returns the nodes with the labels that the conversion advises."""
    by_name = {one["metadata"]["name"]: copy.deepcopy(one) for one in nodes}
    for command in commands:
        kubectl, label, kind, *words = shlex.split(command)
        assert (kubectl, label, kind) == ("kubectl", "label", "nodes")
        settings = dict(word.split("=", 1) for word in words if "=" in word)
        for name in (word for word in words if "=" not in word):
            by_name[name]["metadata"]["labels"] |= settings
    return list(by_name.values())


def cluster_of(nodes: list[Body], converted: Converted) -> Cluster:
    cluster = Cluster(0)
    bodies = [*labelled(nodes, converted.labels), *converted.documents]
    cluster.load([Document("converted", copy.deepcopy(body)) for body in bodies])
    return cluster


def paid(cluster: Cluster, run: str) -> dict[tuple[str, str], int]:
    """Returns the GPUs of a running Run by payer."""
    (state,) = (state for key, state in cluster.world.runs.items() if key[1] == run)
    assert state.phase == "Running", state.verdict
    found: dict[tuple[str, str], int] = {}
    for lease in state.leases.values():
        payer = (f"{lease.payer[0]}/{lease.payer[1]}", lease.class_)
        found[payer] = found.get(payer, 0) + lease.gpus
    return found


def test_admitted_jobs_of_a_live_cluster_start_with_payers() -> None:
    documents = read_documents(LIVE.read_bytes(), LIVE.name)
    nodes = [document.body for document in documents if document.body["kind"] == "Node"]
    cluster = cluster_of(nodes, convert_kueue(documents, {}))
    assert paid(cluster, "wide") == {("red/h100", "Owned"): 8, ("blue/h100-shared", "Shared"): 8}
    assert paid(cluster, "pod-group") == {("blue/h100", "Owned"): 8}
    (wide,) = (state for key, state in cluster.world.runs.items() if key[1] == "wide")
    racks = {
        cluster.world.fleet.domain_by_node[slot].name
        for lease in wide.leases.values()
        for slot, _ in lease.slots
    }
    assert racks == {"-/-/r1"}


NODES = [node(f"n{number}") for number in range(6)]
H100 = flavor("h100", **{PRODUCT: "H100"})


def test_queue_uses_idle_quota_of_its_cohort() -> None:
    converted = convert(
        *NODES, H100, queue("a", 8, "c"), queue("b", 16, "c"), local("a"), job("wide", "a", 3)
    )
    assert paid(cluster_of(NODES, converted), "wide") == {("a/h100", "Owned"): 8, ("b/h100", "Shared"): 16}


def test_lending_limit_keeps_the_rest_for_the_queue() -> None:
    queues = queue("a", 8, "c"), queue("b", 16, "c", lendingLimit=8)
    converted = convert(*NODES, H100, *queues, local("a"), job("two", "a", 2), job("three", "a", 3))
    cluster = cluster_of(NODES, converted)
    assert paid(cluster, "two") == {("a/h100", "Owned"): 8, ("b/h100-shared", "Shared"): 8}
    (three,) = (state for key, state in cluster.world.runs.items() if key[1] == "three")
    assert three.phase == "Reserved"


def test_borrowing_limit_limits_what_a_run_borrows() -> None:
    queues = queue("a", 8, "c", borrowingLimit=8), queue("b", 32, "c")
    converted = convert(*NODES, H100, *queues, local("a"), job("two", "a", 2), job("three", "a", 3))
    cluster = cluster_of(NODES, converted)
    assert paid(cluster, "two") == {("a/h100", "Owned"): 8, ("b/h100", "Borrowed"): 8}
    (three,) = (state for key, state in cluster.world.runs.items() if key[1] == "three")
    assert three.phase == "Reserved"


def test_queue_without_borrowing_stays_within_its_quota() -> None:
    queues = queue("a", 8, "c", borrowingLimit=0), queue("b", 32, "c")
    converted = convert(
        *NODES, H100, *queues, local("a"), local("b"), job("two", "a", 2), job("five", "b", 5)
    )
    cluster = cluster_of(NODES, converted)
    assert paid(cluster, "five") == {("b/h100", "Owned"): 32, ("a/h100", "Borrowed"): 8}
    (two,) = (state for key, state in cluster.world.runs.items() if key[1] == "two")
    assert two.phase == "Reserved"


def test_members_use_the_quota_of_their_cohort() -> None:
    cohort = queue("c", 16) | {"kind": "Cohort"}
    converted = convert(*NODES, H100, cohort, queue("a", 8, "c"), local("a"), job("wide", "a", 3))
    assert paid(cluster_of(NODES, converted), "wide") == {("a/h100", "Owned"): 8, ("c/h100", "Shared"): 16}


def spot_and_demand(*caps: str) -> Cluster:
    """Returns a cluster with a Run of four nodes, whose queue has 16 GPUs of each of two flavors."""
    nodes = [node(f"n{number}", cap=cap) for number, cap in enumerate(caps)]
    flavors = [flavor(name, **{PRODUCT: "H100"}, cap=name) for name in ("demand", "spot")]
    both, spot = (queue("a", 16, flavor_name=name) for name in ("demand", "spot"))
    both["spec"]["resourceGroups"] += spot["spec"]["resourceGroups"]
    return cluster_of(nodes, convert(*nodes, *flavors, both, local("a"), job("wide", "a", 4)))


def test_resource_flavors_of_the_same_gpu_pay_for_one_run() -> None:
    cluster = spot_and_demand("demand", "demand", "spot", "spot")
    assert paid(cluster, "wide") == {("a/demand", "Owned"): 16, ("a/spot", "Owned"): 16}


def test_each_resource_flavor_pays_only_on_its_nodes() -> None:
    cluster = spot_and_demand("demand", "demand", "demand", "spot")
    (wide,) = cluster.world.runs.values()
    assert wide.phase == "Reserved"


def test_flavors_can_be_renamed() -> None:
    converted = convert(H100, queue("a", 8), h100="H100-80GB")
    assert converted.documents[0]["spec"]["envelopes"][0]["flavor"] == "H100-80GB"
    assert converted.labels == [f"kubectl label nodes -l '{PRODUCT}=H100' gpu.flavor=H100-80GB"]
    assert flavor_names(["h100=H100-80GB"]) == {"h100": "H100-80GB"}
    for bad in ("h100", "=x", "h100=", "h100=a b"):
        with pytest.raises(InputError, match="must be OLD=NEW"):
            flavor_names([bad])


def test_order_of_documents_does_not_matter() -> None:
    documents = read_documents(LIVE.read_bytes(), LIVE.name)
    forwards, backwards = (convert_kueue(order, {}) for order in (documents, documents[::-1]))
    by_name = {(body["kind"], body["metadata"]["name"]): body for body in backwards.documents}
    assert {key: by_name[key] for key in by_name} == {
        (body["kind"], body["metadata"]["name"]): body for body in forwards.documents
    }
    assert sorted(forwards.labels) == sorted(backwards.labels)


@pytest.mark.parametrize(
    ("bodies", "message"),
    [
        ([{"kind": "Cohort", "metadata": {"name": "a"}, "spec": {"parentName": "a"}}], "a → a is a cycle"),
        (
            [queue("a", 8), local("a"), job("none", "a", 0, 0) | {"spec": {"template": {}}}],
            "at least one container",
        ),
    ],
)
def test_contradictory_objects_are_refused(bodies: list[Body], message: str) -> None:
    with pytest.raises(InputError, match=message):
        convert(*bodies)


def test_job_without_pods_is_not_converted() -> None:
    converted = convert(H100, queue("a", 8), local("a"), job("paused", "a", 0))
    assert [body["kind"] for body in converted.documents] == ["Budget"]
    assert "Job a/paused: no pods: there is nothing to run: the job is not converted" in map(
        str, converted.remarks
    )


def test_job_that_fits_no_flavor_of_its_queue_is_refused() -> None:
    wants = job("j", "a", 1)
    wants["spec"]["template"]["spec"]["nodeSelector"] = {PRODUCT: "A100"}
    with pytest.raises(InputError, match="ClusterQueue a has no flavor for them"):
        convert(H100, queue("a", 8), local("a"), wants)
