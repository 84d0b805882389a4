from typing import Any

import pytest

from jobtree.api.kubernetes.node import Taint
from jobtree.api.kubernetes.pod import Pod, Requests, Toleration, read_pod, template_requests, tolerates
from jobtree.api.schema.problems import InputError

RUN_OWNER = {
    "apiVersion": "rq.davidlangworthy.io/v1",
    "kind": "Run",
    "name": "train",
    "uid": "u1",
    "controller": True,
}


def container(cpu: object = None, **fields: object) -> dict[str, Any]:
    return (
        {"name": "c", "resources": {"requests": {"cpu": cpu}}, **fields} if cpu else {"name": "c", **fields}
    )


def pod(spec: dict[str, Any], **parts: object) -> Pod:
    return read_pod(
        {"metadata": {"name": "p", "namespace": "ns", "uid": "p1"}, "spec": spec, **parts}, "test"
    )


def test_pod_is_read_with_its_requests() -> None:
    limits = {"nvidia.com/gpu": "2", "memory": "1Gi", "ephemeral-storage": "5Gi"}
    spec = {"nodeName": "gpu-a-01", "containers": [{"name": "c", "resources": {"limits": limits}}]}
    assert pod(spec, status={"phase": "Running"}) == Pod(
        namespace="ns",
        name="p",
        uid="p1",
        node="gpu-a-01",
        gpus=2,
        cpu_milli=0,
        memory_bytes=2**30,
        run_uid="",
        others=(("ephemeral-storage", 5 * 2**30),),
        finished=False,
    )


@pytest.mark.parametrize(
    ("claim", "spec", "cpu_milli"),
    [
        ("containers add up", {"containers": [container(1), container("500m")]}, 1500),
        ("init containers come one at a time", {"initContainers": [container(3), container(2)]}, 3000),
        (
            "the larger of the two counts",
            {"initContainers": [container(3)], "containers": [container(1), container(1)]},
            3000,
        ),
        (
            "sidecars stay",
            {"initContainers": [container(1, restartPolicy="Always")], "containers": [container(1)]},
            2000,
        ),
        (
            "a sidecar counts for the init containers after it, not for those before",
            {"initContainers": [container(3), container(2, restartPolicy="Always"), container(2)]},
            4000,
        ),
        ("overhead is added", {"containers": [container(1)], "overhead": {"cpu": "250m"}}, 1250),
        (
            "a request comes before a limit",
            {"containers": [{"resources": {"requests": {"cpu": 1}, "limits": {"cpu": 4}}}]},
            1000,
        ),
    ],
)
def test_requests_of_a_pod_are_added_up_as_kubernetes_does(
    claim: str, spec: dict[str, Any], cpu_milli: int
) -> None:
    assert pod(spec).cpu_milli == cpu_milli, claim


@pytest.mark.parametrize(
    ("owner", "run"),
    [
        (RUN_OWNER, "u1"),
        ({**RUN_OWNER, "controller": False}, ""),
        ({**RUN_OWNER, "kind": "Job"}, ""),
        ({**RUN_OWNER, "apiVersion": "example.com/v1"}, ""),
        ({**RUN_OWNER, "apiVersion": "rq.davidlangworthy.io.example.com/v1"}, ""),
    ],
)
def test_pod_has_the_uid_of_the_run_that_controls_it(owner: dict[str, Any], run: str) -> None:
    labels = {"rq.davidlangworthy.io/run": "train"}
    document = {"metadata": {"name": "p", "labels": labels, "ownerReferences": [owner]}}
    assert read_pod(document, "test").run_uid == run


@pytest.mark.parametrize(("phase", "finished"), [("Running", False), ("Succeeded", True), ("Failed", True)])
def test_pod_is_finished_by_its_phase(phase: str, finished: bool) -> None:
    assert pod({}, status={"phase": phase}).finished is finished


def test_requests_of_a_template_include_tolerations_and_node_selector() -> None:
    toleration = {"key": "team", "operator": "Exists"}
    template = {
        "spec": {"containers": [container(4)], "nodeSelector": {"a": "b"}, "tolerations": [toleration]}
    }
    assert template_requests(template) == Requests(
        4000, 0, 0, (Toleration(key="team", operator="Exists"),), {"a": "b"}
    )
    assert template_requests({}) == Requests(0, 0, 0, (), {})


def test_pod_with_an_invalid_quantity_is_refused() -> None:
    with pytest.raises(InputError) as refused:
        pod({"containers": [container("lots")]})
    assert str(refused.value) == (
        'test: spec.containers[0].resources: {"cpu": "lots"} is not allowed: '
        "'lots' is not a quantity such as 4, 500m or 64Gi"
    )


@pytest.mark.parametrize(
    ("taint", "toleration", "tolerated"),
    [
        (Taint(key="a", value="b"), None, False),
        (Taint(key="a", value="b", effect="NoExecute"), None, False),
        (Taint(key="a", value="b", effect="PreferNoSchedule"), None, True),
        (Taint(key="nvidia.com/gpu", value="present"), None, True),
        (Taint(key="amd.com/gpu"), None, True),
        (Taint(key="nvidia.com/gpu", effect="NoExecute"), None, False),
        (Taint(key="a", value="b"), Toleration(key="a", value="b"), True),
        (Taint(key="a", value="b"), Toleration(key="a", value="c"), False),
        (Taint(key="a", value="b"), Toleration(key="a", operator="Exists"), True),
        (Taint(key="a", value="b"), Toleration(key="c", operator="Exists"), False),
        (Taint(key="a", value="b"), Toleration(operator="Exists"), True),
        (Taint(key="a", value=""), Toleration(), False),
        (Taint(key="a", value="b"), Toleration(key="a", value="b", effect="NoSchedule"), True),
        (Taint(key="a", value="b"), Toleration(key="a", value="b", effect="NoExecute"), False),
        (Taint(key="a", effect="NoExecute"), Toleration(operator="Exists", effect="NoExecute"), True),
    ],
)
def test_taint_is_tolerated_by_a_matching_toleration(
    taint: Taint, toleration: Toleration | None, tolerated: bool
) -> None:
    assert tolerates([taint], [toleration] if toleration else []) is tolerated


def test_every_taint_must_be_tolerated() -> None:
    taints = [Taint(key="a"), Taint(key="b")]
    assert not tolerates(taints, [Toleration(key="a", operator="Exists")])
    assert tolerates(taints, [Toleration(key="a", operator="Exists"), Toleration(key="b", operator="Exists")])
    assert tolerates([], [])
