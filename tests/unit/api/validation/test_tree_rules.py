import pytest

from tests.unit.api.samples import TREE, Doc, changed, refusals

Changes = dict[str, object]


def stage(name: str, gpus: int = 8, joins: str | None = None, **fields: object) -> Doc:
    """A stage with this number of GPUs, joined to the stage ``joins`` by ``with``."""
    joined = {"with": [joins]} if joins else {}
    return {"name": name, "resources": {"gpuType": "H100-80GB", "totalGPUs": gpus}, **joined, **fields}


def branch(name: str, *stages: Doc, **fields: object) -> Doc:
    return {"name": name, "stages": list(stages), **fields}


VALID: list[tuple[str, Changes]] = [
    ("64 stages", {"spec.stages": [stage(f"s{n}") for n in range(64)]}),
    (
        "two levels",
        {"spec.stages": [branch("a", stage("x"), stage("y", after=["x"])), stage("b", after=["a"])]},
    ),
    ("the same name on two levels", {"spec.stages": [branch("a", stage("a"))]}),
    ("a gang that just fits", {"spec.quota": {"maxGPUs": 72, "maxGPUHours": 72}}),
    (
        "a quota that holds the least width",
        {
            "spec.stages": [stage("a", 64, malleable={"minTotalGPUs": 8, "maxTotalGPUs": 64, "stepGPUs": 8})],
            "spec.quota": {"maxGPUs": 8},
        },
    ),
    ("spares beyond the quota", {"spec.stages": [stage("a", 8, spares=4)], "spec.quota": {"maxGPUs": 8}}),
    (
        "stages that come one after another",
        {"spec.stages": [stage("a", 64), stage("b", 64, after=["a"])], "spec.quota": {"maxGPUs": 64}},
    ),
    (
        "a diamond",
        {
            "spec.stages": [
                stage("a"),
                stage("b", after=["a"]),
                stage("c", after=["a"]),
                stage("d", after=["b", "c"]),
            ]
        },
    ),
    (
        "a gang named from both sides",
        {"spec.stages": [stage("a", joins="b"), stage("b", joins="a")]},
    ),
]
INVALID: list[tuple[Changes, list[str]]] = [
    (
        {"spec.stages": []},
        ["spec.resources: is required where there are no stages"],
    ),
    (
        {"spec.resources": {"totalGPUs": 0}},
        ["spec.resources: goes with a gang, not with stages: set it in a stage"],
    ),
    ({"spec.spares": 1}, ["spec.spares: goes with a gang, not with stages: set it in a stage"]),
    (
        {"spec.stages": [{"name": "a"}]},
        ["spec.stages[0].resources: is required where there are no stages"],
    ),
    (
        {"spec.stages": [branch("a", {"name": "b", "quota": {"maxGPUs": 1}})]},
        [
            "spec.stages[0].stages[0].quota: goes with stages: a single gang is limited by its payers",
            "spec.stages[0].stages[0].resources: is required where there are no stages",
        ],
    ),
    (
        {"spec.stages": [stage("a", runtime={"checkpoint": "0s"})]},
        ['spec.stages[0].runtime.checkpoint: "0s" is not allowed: must be more than 0'],
    ),
    (
        {"spec.stages": [stage("a"), stage("a")]},
        ['spec.stages[1].name: "a" is not allowed: another stage has this name'],
    ),
    (
        {"spec.stages": [stage("a"), stage("b", after=["c"])]},
        ['spec.stages[1].after[0]: "c" is not allowed: must be a stage of the same level (a, b)'],
    ),
    (
        {"spec.stages": [branch("a", stage("x", joins="b")), stage("b")]},
        ['spec.stages[0].stages[0].with[0]: "b" is not allowed: must be a stage of the same level (x)'],
    ),
    (
        {"spec.stages": [stage("a", after=["a"])]},
        ['spec.stages[0].after[0]: "a" is not allowed: a stage cannot name itself'],
    ),
    (
        {"spec.stages": [branch("a", stage("x")), stage("b", joins="a")]},
        [
            (
                'spec.stages[1].with[0]: "a" is not allowed: '
                "a stage with stages of its own cannot be joined to a gang"
            )
        ],
    ),
    (
        {"spec.stages": [stage("a", after=["c"]), stage("b", after=["a"]), stage("c", after=["b"])]},
        ["spec.stages: stages wait for each other in a cycle: a after c after b after a"],
    ),
    (
        {"spec.stages": [stage("a", after=["b"]), stage("b", joins="c"), stage("c", after=["a"])]},
        ["spec.stages: stages wait for each other in a cycle: a after b with c after a"],
    ),
    (
        {"spec.stages": [stage("a"), stage("b", after=["a"], joins="a")]},
        ["spec.stages: a with b start together, so none of them can wait for another"],
    ),
    (
        {"spec.stages": [branch("a", stage("b-c")), branch("a-b", stage("c"))]},
        [
            (
                'spec.stages[1].stages[0].name: "c" is not allowed: '
                "its Run would be named tree-a-b-c, as that of spec.stages[0].stages[0].name is"
            )
        ],
    ),
    (
        {"metadata.name": "t" * 250},
        [
            (
                'spec.stages[0].name: "prep" is not allowed: '
                "its Run's name would have 255 characters; at most 253 are allowed"
            ),
            (
                'spec.stages[1].name: "train" is not allowed: '
                "its Run's name would have 256 characters; at most 253 are allowed"
            ),
            (
                'spec.stages[2].name: "eval" is not allowed: '
                "its Run's name would have 255 characters; at most 253 are allowed"
            ),
        ],
    ),
    (
        {"spec.quota": {"maxGPUs": 64}},
        ["spec.quota.maxGPUs: 64 is not allowed: train with eval needs 72 GPUs (64 + 8) at once"],
    ),
    (
        {"spec.stages": [branch("a", stage("x", 16))], "spec.quota": {"maxGPUs": 8}},
        ["spec.quota.maxGPUs: 8 is not allowed: x needs 16 GPUs at once"],
    ),
    (
        {"spec.stages": [branch("a", stage("x", 16), quota={"maxGPUs": 8})]},
        ["spec.stages[0].quota.maxGPUs: 8 is not allowed: x needs 16 GPUs at once"],
    ),
    (
        {
            "spec.stages": [stage("a", 64, runtime={"maxDuration": "90m"}), stage("b", joins="a")],
            "spec.quota": {"maxGPUHours": 100},
        },
        [
            (
                "spec.quota.maxGPUHours: 100 is not allowed: "
                "a with b needs 104 GPU-hours (64 GPUs × 1h30m + 8 GPUs × 1h)"
            )
        ],
    ),
]


@pytest.mark.parametrize(("claim", "changes"), VALID, ids=[claim for claim, _ in VALID])
def test_valid_tree_is_accepted(claim: str, changes: Changes) -> None:
    assert refusals(changed(TREE, changes)) == [], claim


@pytest.mark.parametrize(("changes", "lines"), INVALID, ids=[lines[0][:70] for _, lines in INVALID])
def test_tree_that_breaks_a_rule_is_refused(changes: Changes, lines: list[str]) -> None:
    assert refusals(changed(TREE, changes)) == lines
