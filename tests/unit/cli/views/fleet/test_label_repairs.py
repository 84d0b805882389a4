"""Missing and wrong labels of nodes, and the commands that correct them."""

import msgspec

from jobtree.api.kubernetes.node import read_node
from jobtree.cli.views.fleet.label_repairs import label_repairs, nodes_without_gpus
from tests.unit.cli.manifests import Body, node


def commands(*bodies: Body) -> list[str]:
    repairs = label_repairs(read_node(body, "test") for body in bodies)
    return [repair.command.removeprefix("kubectl label node ") for repair in repairs]


def labeled_node(name: str, fabric: str = "nv-a", cluster: str = "c1", **labels: str) -> Body:
    return node(name, fabric, region="west", cluster=cluster, **labels)


def without(body: Body, label: str) -> Body:
    del body["metadata"]["labels"][label]
    return body


def test_complete_labels_need_no_repair() -> None:
    assert commands(labeled_node("a1"), labeled_node("a2"), labeled_node("b1", "nv-b")) == []
    assert commands(node("a1"), node("a2")) == [], "no node needs region and cluster if none has them"


def test_missing_label_is_taken_from_nodes_nearby() -> None:
    assert commands(labeled_node("a1"), without(labeled_node("a2"), "region")) == ["a2 region=west"]
    assert commands(labeled_node("a1"), without(labeled_node("a2"), "gpu.flavor")) == [
        "a2 gpu.flavor=H100-80GB"
    ]
    rack = [labeled_node("a1", rack="r1"), without(labeled_node("a2", rack="r1"), "fabric.domain")]
    assert commands(*rack) == ["a2 fabric.domain=nv-a"]


def test_missing_label_has_a_placeholder_when_no_node_nearby_has_it() -> None:
    assert commands(labeled_node("a1"), without(labeled_node("a2"), "fabric.domain")) == [
        "a2 fabric.domain=VALUE"
    ]


def test_label_of_a_single_node_in_another_cluster_is_corrected() -> None:
    assert commands(labeled_node("a1"), labeled_node("a2"), labeled_node("a3", cluster="oops")) == [
        "a3 cluster=c1 --overwrite"
    ]


def test_two_clusters_with_the_same_fabric_name_need_no_repair() -> None:
    second = [labeled_node(f"b{n}", cluster="c2") for n in range(2)]
    assert commands(*(labeled_node(f"a{n}") for n in range(5)), *second) == []


def test_nodes_without_gpus_need_no_labels() -> None:
    body = without(labeled_node("a1"), "gpu.flavor")
    body["status"] = {"allocatable": {"cpu": 4}}
    assert commands(body) == []


def test_node_with_a_flavor_but_no_gpus_is_named() -> None:
    empty, plain = labeled_node("a1"), without(labeled_node("a2"), "gpu.flavor")
    for body in (empty, plain):
        for field in ("capacity", "allocatable"):
            body["status"].get(field, {}).pop("nvidia.com/gpu", None)
    nodes = [read_node(body, "test") for body in (empty, plain, labeled_node("a3"))]
    assert nodes_without_gpus(nodes) == ["a1"]


def test_flavor_in_another_case_is_corrected_to_the_usual_one() -> None:
    other = labeled_node("a3", **{"gpu.flavor": "h100-80gb"})
    assert commands(labeled_node("a1"), labeled_node("a2"), other) == ["a3 gpu.flavor=H100-80GB --overwrite"]


def test_cost_of_repairs_does_not_grow_with_the_square_of_the_fleet() -> None:
    """Counts how often labels are read: a fleet of 4 times the size costs 4 times as much."""

    class Counted(dict[str, str]):
        reads = 0

        def get(self, *words: str) -> str:  # type: ignore[override]
            Counted.reads += 1
            return super().get(*words)

    def reads_for(count: int) -> int:
        fleet = [read_node(labeled_node(f"a{n:04}", f"nv-{n // 8}"), "test") for n in range(count)]
        counted = [msgspec.structs.replace(node, labels=Counted(node.labels)) for node in fleet]
        Counted.reads = 0
        assert list(label_repairs(counted)) == []
        return Counted.reads

    assert reads_for(400) <= 5 * reads_for(100)
