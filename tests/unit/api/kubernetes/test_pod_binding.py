"""Who binds pods (N1): one function says what in a template needs the scheduler."""

from typing import Any

import pytest

from jobtree.api.kubernetes.pod_binding import Binding, BindingChoice, choose_binding

CONTAINER: dict[str, Any] = {"name": "main", "image": "train:1"}


def template(container: dict[str, Any] | None = None, **spec: object) -> dict[str, Any]:
    return {"spec": {"containers": [{**CONTAINER, **(container or {})}], **spec}}


def required(kind: str) -> dict[str, Any]:
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}


NEEDS = {
    "volume data": template(volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]),
    "volume scratch": template(volumes=[{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]),
    "resourceClaims": template(resourceClaims=[{"name": "imex", "resourceClaimTemplateName": "t"}]),
    "hostPort 8080": template({"ports": [{"containerPort": 80, "hostPort": 8080}]}),
    "hostPort 80": template({"ports": [{"containerPort": 80}]}, hostNetwork=True),
    "resource rdma/hca": template({"resources": {"limits": {"rdma/hca": 1, "cpu": 1}}}),
    "nodeAffinity": template(affinity=required("nodeAffinity")),
    "podAntiAffinity": template(affinity=required("podAntiAffinity")),
    "topologySpreadConstraints": template(topologySpreadConstraints=[{"maxSkew": 1}]),
    "schedulerName volcano": template(schedulerName="volcano"),
}
PLAIN = {
    "nothing": template(),
    "no spec": {},
    "cpu and memory": template({"resources": {"requests": {"cpu": 1, "memory": "1Gi"}}}),
    "ephemeral storage": template({"resources": {"requests": {"ephemeral-storage": "9Gi"}}}),
    "huge pages": template(initContainers=[{"resources": {"limits": {"hugepages-2Mi": "4Mi"}}}]),
    "volumes of the node": template(volumes=[{"name": "shm", "emptyDir": {}}, {"name": "h", "hostPath": {}}]),
    "ports of the pod": template({"ports": [{"containerPort": 80}]}),
    "the default scheduler": template(schedulerName="default-scheduler"),
    "a preference": template(
        affinity={"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    ),
    "a soft spread": template(topologySpreadConstraints=[{"whenUnsatisfiable": "ScheduleAnyway"}]),
    "no PodTemplateSpec": {"spec": {"containers": "x", "volumes": [1], "affinity": "y", "overhead": 3}},
}


@pytest.mark.parametrize("need", NEEDS)
def test_n1_auto_leaves_pods_to_the_scheduler_that_need_it_and_says_why(need: str) -> None:
    assert choose_binding("Auto", NEEDS[need]) == BindingChoice(by_scheduler=True, needs=(need,))


@pytest.mark.parametrize("kind", PLAIN)
def test_n1_auto_binds_other_pods_directly(kind: str) -> None:
    assert choose_binding("Auto", PLAIN[kind]) == BindingChoice(by_scheduler=False)


@pytest.mark.parametrize(("binding", "by_scheduler"), [("Scheduler", True), ("Direct", False)])
def test_n1_policy_decides_for_all_pods(binding: Binding, by_scheduler: bool) -> None:
    for pods in (PLAIN["nothing"], NEEDS["resource rdma/hca"]):
        assert choose_binding(binding, pods).by_scheduler is by_scheduler
    assert choose_binding("Direct", NEEDS["resourceClaims"]).needs == ("resourceClaims",)
