from typing import Any

import pytest

from jobtree.api.kinds.run import Run
from jobtree.api.schema.quantities import MINUTE
from jobtree.api.validation.object_parser import parse_object
from jobtree.api.validation.object_rules import policy_problems
from tests.unit.api.samples import RUN, TREE, changed, refusals

CONTAINER = {"name": "main", "image": "example.com/train:1"}
TEMPLATE: dict[str, Any] = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [CONTAINER]}}
CLAIMED = "deviceclass.resource.kubernetes.io/gpu.nvidia.com"
GPUS = "Jobtree gives a pod its GPUs (gpusPerPod)"

INVALID: list[tuple[dict[str, object], str]] = [
    (
        {"metadata.finalizers": ["a.b/c"]},
        '.metadata.finalizers: ["a.b/c"] is not allowed: pods may not have finalizers',
    ),
    ({"spec.nodeName": "gpu-a-01"}, '.spec.nodeName: "gpu-a-01" is not allowed: Jobtree chooses the node'),
    ({"spec.containers": None}, ".spec.containers: must name at least one container"),
    ({"spec": None}, ".spec.containers: must name at least one container"),
    (
        {"spec.containers[0].resources": {"limits": {"nvidia.com/gpu": 8}}},
        f".spec.containers[0].resources.limits['nvidia.com/gpu']: 8 is not allowed: {GPUS}",
    ),
    (
        {"spec.initContainers": [{"resources": {"requests": {"amd.com/gpu": "1"}}}]},
        f".spec.initContainers[0].resources.requests['amd.com/gpu']: \"1\" is not allowed: {GPUS}",
    ),
    (
        {"spec.containers[0].resources": {"limits": {CLAIMED: 1}}},
        f".spec.containers[0].resources.limits['{CLAIMED}']: 1 is not allowed: {GPUS}",
    ),
    ({"spec.containers": "main"}, '.spec.containers: "main" is not allowed: must be a list'),
    (
        {"spec.containers[0].resources": {"limits": {"cpu": "many"}}},
        (
            '.spec.containers[0].resources: {"cpu": "many"} is not allowed: '
            "'many' is not a quantity such as 4, 500m or 64Gi"
        ),
    ),
    (
        {"spec.tolerations": [{"key": "a", "operator": "Is"}]},
        '.spec.tolerations[0].operator: "Is" is not allowed: must be one of Equal, Exists',
    ),
]


def test_ordinary_template_is_accepted() -> None:
    assert refusals(changed(RUN, {"spec.template": TEMPLATE})) == []


@pytest.mark.parametrize(("changes", "line"), INVALID, ids=[line[:60] for _, line in INVALID])
def test_template_that_breaks_a_rule_is_refused(changes: dict[str, object], line: str) -> None:
    """A template may not have finalizers (F6), choose its node or request GPUs."""
    template = changed(TEMPLATE, changes)
    assert refusals(changed(RUN, {"spec.template": template})) == [f"spec.template{line}"]
    assert refusals(changed(TREE, {"spec.stages[1].template": template})) == [
        f"spec.stages[1].template{line}"
    ]


@pytest.mark.parametrize(
    ("seconds", "rule"),
    [
        (300, None),
        (None, None),
        (301, "301 is not allowed: must be at most the policy's maxGrace (5m)"),
        ("300", '"300" is not allowed: must be a whole number of seconds'),
        (-1, "-1 is not allowed: must be a whole number of seconds"),
    ],
)
def test_grace_period_of_a_template_is_at_most_that_of_the_policy(seconds: object, rule: str | None) -> None:
    """The termination grace period is at most maxGrace (F6)."""
    template = changed(TEMPLATE, {"spec.terminationGracePeriodSeconds": seconds})
    document = changed(TREE, {"spec.stages[1].template": template})
    run = parse_object(document, "test")
    assert isinstance(run, Run)
    problems = [str(problem) for problem in policy_problems(run, 5 * MINUTE)]
    field = "spec.stages[1].template.spec.terminationGracePeriodSeconds"
    assert problems == ([f"{field}: {rule}"] if rule else [])
