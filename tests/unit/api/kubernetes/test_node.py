from typing import Any

import pytest

from jobtree.api.kubernetes.node import DomainName, Node, Taint, read_node
from jobtree.api.schema.problems import InputError
from jobtree.api.schema.quantities import parse_time
from tests.unit.api.samples import T0, changed

QUANTITY = "must be a quantity such as 4, 500m or 64Gi"
LABELS = {"region": "us-west", "cluster": "gpu-a", "fabric.domain": "nv-a", "gpu.flavor": "H100-80GB"}
NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "gpu-a-01", "uid": "n1", "labels": LABELS, "annotations": {"a": "b"}},
    "spec": {"podCIDR": "10.0.0.0/24"},
    "status": {"allocatable": {"cpu": "95500m", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"}},
}


def node(**changes: object) -> Node:
    return read_node(
        changed(NODE, {path.replace("__", "."): value for path, value in changes.items()}), "test"
    )


def test_node_is_read_with_its_labels_and_resources() -> None:
    assert read_node(NODE, "test") == Node(
        name="gpu-a-01",
        uid="n1",
        labels=LABELS,
        flavor="H100-80GB",
        domain=DomainName("us-west", "gpu-a", "nv-a"),
        gpus=8,
        gpu_resource="nvidia.com/gpu",
        cpu_milli=95_500,
        memory_bytes=2**40,
        max_pods=110,
        taints=(),
        cordoned=False,
        ready=True,
        not_ready_since_ms=None,
        failed=False,
    )


def test_node_may_omit_almost_all_fields() -> None:
    bare = read_node({"metadata": {"name": "n"}, "status": {"capacity": {"amd.com/gpu": 4}}}, "test")
    assert (bare.gpus, bare.gpu_resource, bare.ready, bare.max_pods) == (4, "amd.com/gpu", True, 110)
    assert (bare.cpu_milli, bare.memory_bytes, bare.flavor) == (None, None, "")
    assert str(bare.domain) == "-/-/-"
    assert read_node({"metadata": {"name": "n"}}, "test").gpus == 0


def test_domain_name_has_a_dash_for_an_absent_label() -> None:
    assert str(DomainName("us-west", "gpu-a", "nv-a")) == "us-west/gpu-a/nv-a"
    assert str(DomainName("us-west", "", "nv-a")) == "us-west/-/nv-a"


def test_allocatable_comes_before_capacity() -> None:
    assert node(status__capacity={"nvidia.com/gpu": 16}).gpus == 8


@pytest.mark.parametrize(
    ("status", "ready", "since"), [("True", True, None), ("False", False, T0), ("Unknown", False, T0)]
)
def test_readiness_is_the_ready_condition(status: str, ready: bool, since: str | None) -> None:
    conditions = [
        {"type": "DiskPressure", "status": "False"},
        {"type": "Ready", "status": status, "lastTransitionTime": T0, "reason": "KubeletReady"},
    ]
    read = node(status__conditions=conditions)
    assert read.ready is ready
    assert read.not_ready_since_ms == (parse_time(since) if since else None)


def test_node_is_failed_by_its_taint_but_not_by_a_cordon() -> None:
    assert node(spec__unschedulable=True).cordoned
    assert not node(spec__unschedulable=True).failed
    failed = node(spec__taints=[{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}])
    assert failed.failed
    assert failed.taints == (Taint(key="node.kubernetes.io/out-of-service", effect="NoExecute"),)


@pytest.mark.parametrize(
    ("document", "line"),
    [
        ({"metadata": {}}, "metadata.name: is required"),
        (
            {"metadata": {"name": "n", "labels": {"a": 1}}},
            "metadata.labels['a']: 1 is not allowed: must be a string",
        ),
        (
            {"metadata": {"name": "n"}, "status": {"capacity": {"nvidia.com/gpu": "eight"}}},
            f"status.capacity['nvidia.com/gpu']: \"eight\" is not allowed: {QUANTITY}",
        ),
        (
            {"metadata": {"name": "n"}, "status": {"capacity": {"cpu": []}}},
            f"status.capacity['cpu']: [] is not allowed: {QUANTITY}",
        ),
        (
            {"metadata": {"name": "n"}, "spec": {"taints": [{"effect": "NoSchedule"}]}},
            "spec.taints[0].key: is required",
        ),
    ],
)
def test_invalid_node_is_refused(document: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError) as refused:
        read_node(document, "test")
    assert [str(problem) for problem in refused.value.problems] == [line]
