"""Which labels are missing or wrong, and the commands that mend them."""

from jobtree.api.kubernetes.node import read_node
from jobtree.cli.views.fleet.label_repairs import label_repairs, nodes_without_gpus
from tests.unit.cli.desk import Body, node


def commands(*bodies: Body) -> list[str]:
    found = label_repairs(read_node(body, "test") for body in bodies)
    return [one.command.removeprefix("kubectl label node ") for one in found]


def full(name: str, fabric: str = "nv-a", cluster: str = "c1", **labels: str) -> Body:
    return node(name, fabric, region="west", cluster=cluster, **labels)


def without(body: Body, label: str) -> Body:
    del body["metadata"]["labels"][label]
    return body


def test_a_fleet_in_order_needs_nothing() -> None:
    assert commands(full("a1"), full("a2"), full("b1", "nv-b")) == []
    assert commands(node("a1"), node("a2")) == [], "a fleet in one place need not say where"


def test_what_is_missing_is_taken_from_those_nearby() -> None:
    assert commands(full("a1"), without(full("a2"), "region")) == ["a2 region=west"]
    assert commands(full("a1"), without(full("a2"), "gpu.flavor")) == ["a2 gpu.flavor=H100-80GB"]
    rack = [full("a1", rack="r1"), without(full("a2", rack="r1"), "fabric.domain")]
    assert commands(*rack) == ["a2 fabric.domain=nv-a"]


def test_what_nobody_knows_is_left_to_the_reader() -> None:
    assert commands(full("a1"), without(full("a2"), "fabric.domain")) == ["a2 fabric.domain=VALUE"]


def test_a_node_alone_in_another_cluster_looks_misplaced() -> None:
    assert commands(full("a1"), full("a2"), full("a3", cluster="oops")) == ["a3 cluster=c1 --overwrite"]


def test_two_clusters_may_have_a_fabric_of_one_name() -> None:
    second = [full(f"b{n}", cluster="c2") for n in range(2)]
    assert commands(*(full(f"a{n}") for n in range(5)), *second) == []


def test_nodes_without_gpus_need_no_labels() -> None:
    body = without(full("a1"), "gpu.flavor")
    body["status"] = {"allocatable": {"cpu": 4}}
    assert commands(body) == []


def test_a_node_with_a_flavor_that_reports_no_gpus_is_named() -> None:
    empty, plain = full("a1"), without(full("a2"), "gpu.flavor")
    for body in (empty, plain):
        for field in ("capacity", "allocatable"):
            body["status"].get(field, {}).pop("nvidia.com/gpu", None)
    nodes = [read_node(body, "test") for body in (empty, plain, full("a3"))]
    assert nodes_without_gpus(nodes) == ["a1"]
