"""Placement reads the whole template (N2): resources of all kinds, host ports, required node affinity."""

import random
from typing import Any

import pytest

from jobtree.api.kubernetes.node import Node, read_node
from jobtree.api.kubernetes.pod import Pod, read_pod
from jobtree.api.schema.quantities import MINUTE
from tests.unit.core.build import H100, budget, run
from tests.unit.core.lab import Lab

Terms = dict[str, Any]  # a term of a node affinity
RICH = budget("org", 10_000)


def made_node(name: str, domain: str = "nv-a", labels: dict[str, str] | None = None, **others: str) -> Node:
    where = {"region": "us", "cluster": "a", "fabric.domain": domain, "gpu.flavor": H100, **(labels or {})}
    named = {kind.replace("__", "/").replace("_", "-"): amount for kind, amount in others.items()}
    capacity = {"nvidia.com/gpu": "8", "cpu": "96", "memory": "1Ti", **named}
    return read_node({"metadata": {"name": name, "labels": where}, "status": {"capacity": capacity}}, "test")


def template(container: dict[str, Any] | None = None, **spec: object) -> dict[str, object]:
    return {"spec": {"containers": [{"name": "main", "image": "train", **(container or {})}], **spec}}


def asking(**requests: str) -> dict[str, object]:
    named = {kind.replace("__", "/").replace("_", "-"): amount for kind, amount in requests.items()}
    return template({"resources": {"requests": named}})


def affinity(*terms: Terms) -> dict[str, object]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return template(affinity={"nodeAffinity": required})


def expressions(*rules: tuple[str, str, list[str]]) -> Terms:
    return {
        "matchExpressions": [
            {"key": key, "operator": operator, "values": values} for key, operator, values in rules
        ]
    }


def other_pod(node: str, container: dict[str, Any]) -> Pod:
    document = {
        "metadata": {"name": "other", "uid": "other"},
        "spec": {"nodeName": node, "containers": [container]},
    }
    return read_pod(document, "test")


def message(lab: Lab, name: str) -> str:
    return "; ".join(str(cause) for cause in lab.whys(name))


def test_n2_pods_share_the_extended_resource_of_a_node() -> None:
    """Two of four GPUs each would fit, but the node has one adapter."""
    lab = Lab(RICH, made_node("a", example_com__hca="1"), made_node("b", example_com__hca="1"))
    asks = asking(example_com__hca="1")
    lab.submit(run("r", "org", 8, per_pod=4, template=asks))
    assert lab.on("r") == {"a": 4, "b": 4}
    lab.submit(run("next", "org", 4, per_pod=4, at=1, template=asks))
    assert lab.phase("next") == "Pending"
    lab.submit(run("plain", "org", 4, per_pod=4, at=2))
    assert lab.phase("plain") == "Running"
    lab.finish("r")
    assert lab.phase("next") == "Running"


@pytest.mark.parametrize(
    ("asks", "said"),
    [
        (asking(example_com__hca="3"), "a pod needs 3 of example-com/hca, they have 2"),
        (asking(rdma__hca="1"), "a pod needs 1 of rdma/hca, they have 0"),
        (asking(ephemeral_storage="900Gi"), "a pod needs 966367641600 of ephemeral-storage, they have"),
        (asking(hugepages_2Mi="4Gi"), "a pod needs 4294967296 of hugepages-2Mi, they have 0"),
        (asking(cpu="97"), "a pod needs 97000m of cpu, they have 96000m"),
        (asking(memory="2Ti"), "a pod needs 2199023255552 bytes of memory"),
        (affinity(expressions(("zone", "In", ["z9"]))), "its node affinity excludes them"),
    ],
)
def test_n2_pods_that_no_node_can_ever_run_are_refused_with_the_arithmetic(
    asks: dict[str, object], said: str
) -> None:
    offering = [
        made_node(name, example_com__hca="2", ephemeral_storage="100Gi", hugepages_2Mi="0") for name in "abc"
    ]
    lab = Lab(RICH, *offering)
    lab.submit(run("r", "org", 8, template=asks))
    assert (lab.phase("r"), lab.promised_at("r"), lab.reasons("r")) == ("Pending", None, ["GroupTooLarge"])
    assert "3 of 3 nodes cannot run its pods" in message(lab, "r")
    assert said in message(lab, "r")


def test_n2_node_without_figures_for_what_kubernetes_counts_offers_it() -> None:
    lab = Lab(RICH, made_node("a"))
    lab.submit(run("r", "org", 8, template=asking(ephemeral_storage="900Gi", hugepages_2Mi="4Gi")))
    assert lab.phase("r") == "Running"


def test_n2_init_containers_sidecars_and_overhead_are_summed_as_kubernetes_does() -> None:
    def part(amount: int, **fields: object) -> dict[str, object]:
        return {"name": "c", "resources": {"limits": {"example-com/hca": str(amount)}}, **fields}

    spec: dict[str, object] = {
        "initContainers": [part(5), part(1, restartPolicy="Always"), part(4)],
        "containers": [part(2), part(1)],
        "overhead": {"example-com/hca": "1"},
    }
    for have, phase in ((6, "Running"), (5, "Pending")):
        lab = Lab(RICH, made_node("a", example_com__hca=str(have)))
        lab.submit(run("r", "org", 8, template={"spec": spec}))
        assert lab.phase("r") == phase


def test_n2_a_host_port_is_given_once_on_each_node() -> None:
    port = {"ports": [{"containerPort": 80, "hostPort": 8080}]}
    lab = Lab(RICH, *[made_node(name) for name in "abc"])
    lab.put(
        other_pod("a", {"name": "c", "ports": [{"containerPort": 1, "hostPort": 8080, "protocol": "TCP"}]})
    )
    lab.submit(run("r", "org", 8, per_pod=4, template=template(port)))
    assert lab.on("r") == {"b": 4, "c": 4}
    on_host = template({"ports": [{"containerPort": 8080}]}, hostNetwork=True)
    lab.submit(run("host", "org", 4, per_pod=4, at=1, template=on_host))
    assert lab.phase("host") == "Pending"
    udp = template({"ports": [{"containerPort": 8080, "hostPort": 8080, "protocol": "UDP"}]})
    lab.submit(run("udp", "org", 4, per_pod=4, at=2, template=udp))
    assert lab.phase("udp") == "Running"


def test_n2_promise_counts_only_nodes_that_the_affinity_allows() -> None:
    lab = Lab(RICH, made_node("a", labels={"zone": "z1"}), made_node("b", labels={"zone": "z2"}))
    lab.submit(
        run("first", "org", 8, max_duration="10m", template=affinity(expressions(("zone", "In", ["z1"]))))
    )
    assert lab.on("first") == {"a": 8}
    lab.submit(run("r", "org", 8, at=1, template=affinity(expressions(("zone", "In", ["z1"])))))
    assert (lab.phase("r"), lab.promised_at("r")) == ("Pending", 10 * MINUTE)


LABELS = [{}, {"zone": "z1"}, {"zone": "z2", "gen": "7"}, {"gen": "9"}, {"gen": "x", "zone": "z1"}]
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


def holds(rule: tuple[str, str, list[str]], labels: dict[str, str]) -> bool:
    """The rules of labels.Requirement in Kubernetes, written once more."""
    key, operator, values = rule
    if operator == "NotIn":
        return key not in labels or labels[key] not in values
    if operator == "DoesNotExist":
        return key not in labels
    if key not in labels:
        return False
    if operator in ("Exists", "In"):
        return operator == "Exists" or labels[key] in values
    try:
        number, bound = int(labels[key]), int(values[0])
    except ValueError:
        return False
    return number > bound if operator == "Gt" else number < bound


@pytest.mark.parametrize("seed", range(60))
def test_n2_affinity_at_random_admits_what_kubernetes_admits(seed: int) -> None:
    dice = random.Random(seed)

    def rule() -> tuple[str, str, list[str]]:
        operator = dice.choice(OPERATORS)
        if operator in ("Gt", "Lt"):
            return dice.choice(["gen", "zone"]), operator, [dice.choice(["7", "8"])]
        values = [] if "Exist" in operator else dice.sample(["z1", "z2", "7", "9"], 2)
        return dice.choice(["zone", "gen"]), operator, values

    terms = [[rule() for _ in range(dice.randint(0, 2))] for _ in range(dice.randint(1, 3))]
    lab = Lab(RICH, *[made_node(f"n{number}", labels=labels) for number, labels in enumerate(LABELS)])
    lab.submit(run("r", "org", 4, per_pod=4, template=affinity(*[expressions(*term) for term in terms])))
    allowed = {
        f"n{number}"
        for number, labels in enumerate(LABELS)
        if any(term and all(holds(rule, labels) for rule in term) for term in terms)
    }
    assert set(lab.on("r")) <= allowed
    assert bool(lab.on("r")) == bool(allowed)


def test_n2_affinity_names_nodes_by_field() -> None:
    lab = Lab(RICH, made_node("a"), made_node("b"))
    rule = {"key": "metadata.name", "operator": "NotIn", "values": ["a"]}
    lab.submit(run("r", "org", 8, template=affinity({"matchFields": [rule]})))
    assert lab.on("r") == {"b": 8}
