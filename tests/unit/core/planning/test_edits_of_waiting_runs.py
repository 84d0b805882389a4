"""A waiting Run keeps its promise through an edit that changes nothing that planning uses (R5)."""

from typing import Any

import msgspec
import pytest

from jobtree.api.kinds.run import Run
from jobtree.api.schema.quantities import HOUR, MINUTE
from tests.unit.core.build import H100, budget, nodes, run, template, tree
from tests.unit.core.lab import Lab

LABELS = {"labels": {"seen-by": "somebody"}}
ANNOTATIONS = {"annotations": {"note": "hello"}}


def waiting(name: str = "first", at: int = 1, **fields: Any) -> Run:  # noqa: ANN401  fields of a Run
    return run(name, "org", 16, at=at, max_duration="2h", **fields)


def two_waiting() -> Lab:
    """All GPUs are in use for an hour; ``first`` is promised them then, and ``second`` two hours later."""
    lab = Lab(nodes("nv-a", 2), budget("org", 64))
    lab.submit(run("holder", "org", 16, max_duration="1h"))
    lab.submit(waiting("first", at=1, template=template(cpu="1")))
    lab.submit(waiting("second", at=2))
    assert (lab.promised_at("first"), lab.promised_at("second")) == (HOUR, 3 * HOUR)
    lab.advance(MINUTE)
    return lab


def with_metadata(run_object: Run, **fields: Any) -> Run:  # noqa: ANN401  fields of the metadata
    metadata = msgspec.structs.replace(run_object.metadata, **fields)
    return msgspec.structs.replace(run_object, metadata=metadata)


def other_image(cpu: str) -> dict[str, Any]:
    """A template that asks for the same, with another image, command and environment."""
    changed: dict[str, Any] = template(cpu=cpu)
    changed["spec"]["containers"][0] |= {
        "image": "v2",
        "command": ["go"],
        "env": [{"name": "A", "value": "1"}],
    }
    return changed


@pytest.mark.parametrize(
    "edit",
    [
        with_metadata(waiting(template=template(cpu="1")), **LABELS),
        with_metadata(waiting(template=template(cpu="1")), **ANNOTATIONS),
        waiting(template=template(cpu="1"), max_restarts=9),
        waiting(template=other_image(cpu="1")),
        waiting(template=template(cpu="1"), on_notice="Checkpoint", requeue=False),
    ],
    ids=["labels", "annotations", "maxRestarts", "template-text", "onNotice-and-requeue"],
)
def test_an_edit_that_planning_does_not_use_changes_no_promise(edit: Run) -> None:
    lab = two_waiting()
    before = lab.promise("first"), lab.promise("second")
    plan = lab.submit(edit)
    assert plan.actions == ()
    assert (lab.promise("first"), lab.promise("second")) == before
    assert lab["first"].run_object is edit, "the Run starts as it was edited"
    lab.live(HOUR)
    assert (lab.phase("first"), lab.phase("second")) == ("Running", "Pending")


@pytest.mark.parametrize(
    "edit",
    [
        waiting(template=template(cpu="2")),
        waiting(template=template(cpu="1", tolerates="dedicated")),
        waiting(template=template(cpu="1", selector={"region": "us"})),
        waiting(template=template(cpu="1"), checkpoint="10m"),
    ],
    ids=["requests", "tolerations", "node-selector", "checkpoint"],
)
def test_an_edit_that_planning_uses_makes_the_promise_again(edit: Run) -> None:
    lab = two_waiting()
    plan = lab.submit(edit)
    assert "Edited" in {str(action.cause.reason) for action in plan.actions if action.run_key[1] == "first"}


def pair(image: str = "v1", gpus: int = 8, restarts: int = 3) -> Run:
    """A tree of two stages that start together, and a third that follows them."""
    resources = {"gpuType": H100, "totalGPUs": gpus}
    container = {"name": "main", "image": image}
    common = {"template": {"spec": {"containers": [container]}}, "runtime": {"maxRestarts": restarts}}
    stages = [
        {"name": "a", "resources": resources, **common},
        {"name": "b", "resources": resources, "with": ["a"], **common},
        {"name": "after", "resources": resources, "after": ["b"], **common},
    ]
    return tree("t", "org", stages, at=1)


def waiting_gang() -> Lab:
    """All GPUs are in use for an hour; the two stages of ``t`` are promised them together."""
    lab = Lab(nodes("nv-a", 2), budget("org", 64))
    lab.submit(run("holder", "org", 16, max_duration="1h"))
    lab.submit(pair())
    assert (lab.promised_at("t-a"), lab.promised_at("t-b")) == (HOUR, HOUR)
    assert (lab["t-after"].phase, lab["t-after"].promise) == ("Waiting", None)
    lab.advance(MINUTE)
    return lab


def test_an_edit_of_a_tree_that_planning_does_not_use_keeps_the_promise_of_its_gang() -> None:
    lab = waiting_gang()
    before = lab.promise("t-a"), lab.promise("t-b")
    plan = lab.submit(pair(image="v2", restarts=5))
    assert plan.actions == ()
    assert [child.metadata.name for child in plan.children] == ["t-a", "t-b", "t-after"]
    assert (lab.promise("t-a"), lab.promise("t-b")) == before
    assert lab["t-a"].run_object.spec.runtime.max_restarts == 5
    lab.live(HOUR)
    assert (lab.phase("t-a"), lab.phase("t-b")) == ("Running", "Running")


def test_an_edit_of_a_tree_that_planning_uses_makes_the_promise_of_its_gang_again() -> None:
    lab = waiting_gang()
    lab.submit(pair(gpus=16))
    assert lab.promised_at("t-a") == lab.promised_at("t-b") != HOUR
    for name in ("t-a", "t-b"):
        assert [slip.reason for slip in lab.promise(name).slips] == ["Edited"]


def test_an_edit_of_one_stage_keeps_the_promise_of_another() -> None:
    """The stages do not start together, so each has a promise of its own."""

    def two_stages(gpus: int) -> Run:
        stages = [
            {"name": "a", "resources": {"gpuType": H100, "totalGPUs": 16}},
            {"name": "b", "resources": {"gpuType": H100, "totalGPUs": gpus}},
        ]
        return tree("t", "org", stages, at=1)

    lab = Lab(nodes("nv-a", 2), budget("org", 64))
    lab.submit(run("holder", "org", 16, max_duration="1h"))
    lab.submit(two_stages(8))
    before = lab.promise("t-a")
    plan = lab.submit(two_stages(16))
    assert {action.run_key[1] for action in plan.actions} <= {"t-b"}
    assert lab.promise("t-a") == before


def test_an_edited_run_goes_behind_all_promises() -> None:
    """R5: it asks for more time than it was promised, and the Run behind it is promised the node first."""
    lab = Lab(nodes("nv-a", 1), budget("org", 8), budget("lab", 8))
    lab.submit(run("busy", "org", 8, max_duration="1h"))
    lab.submit(
        run("first", "org", 8, at=1, max_duration="1h"), run("second", "lab", 8, at=2, max_duration="1h")
    )
    assert (lab.promised_at("first"), lab.promised_at("second")) == (HOUR, 2 * HOUR)
    lab.submit(run("first", "org", 8, at=1, max_duration="2h"))
    assert (lab.promised_at("first"), lab.promised_at("second")) == (3 * HOUR, 2 * HOUR)
