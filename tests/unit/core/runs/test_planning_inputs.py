"""Which fields of a Run planning uses: an edit of any other keeps the promise of a waiting Run."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from jobtree.api.kinds.run import LeafStage, Malleable, Quota, Run, RunSpec, Stage
from jobtree.api.schema.object_meta import Wire
from jobtree.api.schema.packed_template import PackedTemplate
from jobtree.core.runs.planning_inputs import is_planned_alike
from tests.unit.core.build import run, template, tree

KEEPS, WITHDRAWS = True, False

CONTAINER = {"name": "main", "image": "train", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
TEMPLATE: dict[str, object] = {"spec": {"containers": [CONTAINER]}}

# Each field of a gang, with another value, and what an edit to that value does to a promise.
GANG_FIELDS: dict[str, tuple[object, bool]] = {
    "resources.total_gpus": (24, WITHDRAWS),
    "resources.gpu_type": ("A100-40GB", WITHDRAWS),
    "resources.gpus_per_pod": (8, WITHDRAWS),
    "resources.pods": (3, KEEPS),  # of Runs without GPUs, which are promised nothing
    "locality.group_gpus": (16, WITHDRAWS),
    "locality.allow_cross_group_spread": (False, WITHDRAWS),
    "runtime.checkpoint": ("1h", WITHDRAWS),
    "runtime.on_notice": ("Checkpoint", KEEPS),
    "runtime.max_duration": ("9h", WITHDRAWS),
    "runtime.max_restarts": (7, KEEPS),
    "runtime.requeue": (False, KEEPS),
    "runtime.on_resize": ("Rendezvous", WITHDRAWS),
    "malleable.min_total_gpus": (16, WITHDRAWS),
    "malleable.max_total_gpus": (40, WITHDRAWS),
    "malleable.step_gpus": (16, WITHDRAWS),
    "malleable.desired_total_gpus": (32, WITHDRAWS),
    "spares": (1, WITHDRAWS),
    "spares_per_group": (1, WITHDRAWS),
    "template": (PackedTemplate({"spec": {"containers": [{**CONTAINER, "image": "other"}]}}), KEEPS),
    "quota.max_gpus": (99, WITHDRAWS),
    "quota.max_gpu_hours": (99, WITHDRAWS),
}
FUNDING_FIELDS: dict[str, tuple[object, bool]] = {
    "funding.allow_borrow": (True, WITHDRAWS),
    "funding.max_borrow_gpus": (4, WITHDRAWS),
    "funding.allow_opportunistic": (True, WITHDRAWS),
}
RUN_FIELDS = {
    **GANG_FIELDS,
    **FUNDING_FIELDS,
    "funding.sponsors": (("sponsor",), WITHDRAWS),
    "owner": ("other", WITHDRAWS),
    "follow.after": (("other",), WITHDRAWS),
    "follow.on_upstream_failure": ("fail", WITHDRAWS),
    "follow.upstream_failure_grace": ("1h", WITHDRAWS),
    "stages": ((Stage(name="other"),), WITHDRAWS),
}
LEAF_STAGE_FIELDS = {
    **GANG_FIELDS,
    **FUNDING_FIELDS,
    "name": ("other", WITHDRAWS),
    "after": ((), WITHDRAWS),
    "with_": (("data",), WITHDRAWS),
    "on_upstream_failure": ("fail", WITHDRAWS),
}
STAGE_FIELDS = {**LEAF_STAGE_FIELDS, "stages": ((LeafStage(name="other"),), WITHDRAWS)}


def full_run() -> Run:
    """A Run that sets every section of its spec."""
    made = run(
        "r",
        "org",
        16,
        per_pod=4,
        group=8,
        checkpoint="30m",
        max_duration="10h",
        malleable=(8, 32, 8),
        after=["data"],
        template=TEMPLATE,
    )
    flexible = Malleable(min_total_gpus=8, max_total_gpus=32, step_gpus=8, desired_total_gpus=24)
    spec = msgspec.structs.replace(
        made.spec, spares=None, malleable=flexible, quota=Quota(max_gpus=64, max_gpu_hours=64)
    )
    return msgspec.structs.replace(made, spec=spec)


def full_stage() -> Stage:
    """A stage that sets every section that it may have."""
    spec = full_run().spec
    gang = {name: getattr(spec, name) for name in {path.partition(".")[0] for path in GANG_FIELDS}}
    return Stage(name="train", after=("data",), **gang)


def edited(struct: Wire, path: str, value: object) -> Any:  # noqa: ANN401  the type of the struct
    """The struct with that value in the field at that path."""
    name, _, rest = path.partition(".")
    return msgspec.structs.replace(
        struct, **{name: edited(getattr(struct, name), rest, value) if rest else value}
    )


def leaf_fields(struct: Wire, path: str = "") -> Iterator[str]:
    """The paths of all fields below a struct."""
    for name in struct.__struct_fields__:
        value = getattr(struct, name)
        if isinstance(value, Wire):
            yield from leaf_fields(value, f"{path}{name}.")
        else:
            yield f"{path}{name}"


def tree_with(*stages: Stage) -> Run:
    made = tree("t", "org", [{"name": "data", "resources": {"totalGPUs": 0, "pods": 1}}])
    return msgspec.structs.replace(made, spec=edited(made.spec, "stages", (*made.spec.stages, *stages)))


def test_every_field_of_a_run_is_listed_with_what_an_edit_does() -> None:
    assert sorted(leaf_fields(full_run().spec)) == sorted(RUN_FIELDS)


def test_every_field_of_a_stage_is_listed_with_what_an_edit_does() -> None:
    assert sorted(leaf_fields(full_stage())) == sorted(STAGE_FIELDS)


def test_no_field_of_the_full_run_hides_others_by_being_absent() -> None:
    """A section that is None would be one row instead of the rows of its fields."""
    spec: RunSpec = full_run().spec
    for section in ("resources", "malleable", "quota", "follow"):
        assert isinstance(getattr(spec, section), Wire), section


@pytest.mark.parametrize(("path", "edit"), RUN_FIELDS.items(), ids=RUN_FIELDS)
def test_an_edit_of_a_run_keeps_its_promise_unless_planning_uses_the_field(
    path: str, edit: tuple[object, bool]
) -> None:
    before, (value, kept) = full_run(), edit
    after = msgspec.structs.replace(before, spec=edited(before.spec, path, value))
    assert after.spec != before.spec
    assert is_planned_alike(before, after) is kept


@pytest.mark.parametrize(("path", "edit"), STAGE_FIELDS.items(), ids=STAGE_FIELDS)
def test_an_edit_of_a_stage_changes_the_tree_only_if_planning_uses_the_field(
    path: str, edit: tuple[object, bool]
) -> None:
    value, kept = edit
    before = tree_with(full_stage())
    after = tree_with(edited(full_stage(), path, value))
    assert after.spec != before.spec
    assert is_planned_alike(before, after) is kept


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        (template(cpu="1", memory="1Gi"), KEEPS),
        (template(cpu="2", memory="1Gi"), WITHDRAWS),
        (template(cpu="1", memory="2Gi"), WITHDRAWS),
        (template(cpu="1", memory="1Gi", tolerates="dedicated"), WITHDRAWS),
        (template(cpu="1", memory="1Gi", selector={"zone": "b"}), WITHDRAWS),
    ],
    ids=["same", "cpu", "memory", "tolerations", "node-selector"],
)
def test_of_a_template_planning_uses_requests_tolerations_and_node_selectors(
    asked: dict[str, object], kept: bool
) -> None:
    before = full_run()
    after = msgspec.structs.replace(before, spec=edited(before.spec, "template", PackedTemplate(asked)))
    assert is_planned_alike(before, after) is kept


def test_the_same_duration_in_other_words_is_no_change() -> None:
    before = full_run()
    after = msgspec.structs.replace(before, spec=edited(before.spec, "runtime.max_duration", "600m"))
    assert is_planned_alike(before, after)
