import pytest

from tests.unit.api.samples import RUN, changed, refusals

Changes = dict[str, object]
ELASTIC = {"minTotalGPUs": 96, "maxTotalGPUs": 160, "stepGPUs": 32}

VALID: list[tuple[str, Changes]] = [
    ("no GPUs, but pods", {"spec.resources": {"totalGPUs": 0, "pods": 2}}),
    ("pods of one size", {"spec.resources.gpusPerPod": 8, "spec.locality": {"groupGPUs": 32}}),
    ("a last group that is smaller", {"spec.locality": {"groupGPUs": 48}}),
    ("elastic", {"spec.malleable": ELASTIC, "spec.locality": {"groupGPUs": 32}}),
    ("desired", {"spec.malleable": {**ELASTIC, "desiredTotalGPUs": 160}}),
    ("a maximum between two widths", {"spec.malleable": {**ELASTIC, "maxTotalGPUs": 150}}),
    (
        "16,384 GPUs in groups of 8",
        {
            "spec.resources": {"gpuType": "H100-80GB", "totalGPUs": 16_384},
            "spec.locality": {"groupGPUs": 8},
            "spec.spares": 1,
        },
    ),
    ("spares and sparesPerGroup with the same value", {"spec.spares": 1, "spec.sparesPerGroup": 1}),
    ("sparesPerGroup alone", {"spec.sparesPerGroup": 2}),
    ("durations", {"spec.runtime": {"checkpoint": "1s", "maxDuration": "7d"}}),
    ("no grace for upstream failures", {"spec.follow": {"after": ["prep"], "upstreamFailureGrace": "0s"}}),
]
INVALID: list[tuple[Changes, list[str]]] = [
    ({"spec.resources": None}, ["spec.resources: is required where there are no stages"]),
    (
        {"spec.resources": {"totalGPUs": 8}},
        ["spec.resources.gpuType: is required where totalGPUs is more than 0"],
    ),
    (
        {"spec.resources.pods": 2},
        [
            (
                "spec.resources.pods: 2 is not allowed: "
                "goes with totalGPUs: 0 only (totalGPUs is 128): pods with GPUs are counted by gpusPerPod"
            )
        ],
    ),
    (
        {"spec.resources.gpusPerPod": 5},
        ["spec.resources.totalGPUs: 128 is not allowed: must be a multiple of gpusPerPod (5)"],
    ),
    (
        {"spec.resources.gpusPerPod": 8, "spec.locality": {"groupGPUs": 20}},
        ["spec.locality.groupGPUs: 20 is not allowed: must be a multiple of resources.gpusPerPod (8)"],
    ),
    (
        {"spec.locality": {"groupGPUs": 256}},
        ["spec.locality.groupGPUs: 256 is not allowed: must be at most resources.totalGPUs (128)"],
    ),
    (
        {"spec.malleable": {"minTotalGPUs": 128, "maxTotalGPUs": 1_000_000, "stepGPUs": 1}},
        [
            (
                "spec.malleable.stepGPUs: 1 is not allowed: "
                "128 to 1000000 in these steps are 999873 widths, at most 4096 are allowed"
            )
        ],
    ),
    (
        {"spec.resources": {"gpuType": "H100-80GB", "totalGPUs": 1_000_000, "gpusPerPod": 1}},
        [
            (
                "spec.resources.gpusPerPod: 1 is not allowed: "
                "1000000 GPUs ÷ 1 = 1000000 pods, and a Run has at most 8192: raise gpusPerPod"
            )
        ],
    ),
    (
        {
            "spec.resources": {"gpuType": "H100-80GB", "totalGPUs": 16_384},
            "spec.locality": {"groupGPUs": 8},
            "spec.spares": 4,
        },
        [
            (
                "spec.locality.groupGPUs: 8 is not allowed: 16384 GPUs ÷ 8 = 2048 groups × 5 = 10240 pods or"
                " more, and a Run has at most 8192: raise groupGPUs"
            )
        ],
    ),
    (
        {"spec.malleable": {"minTotalGPUs": 160, "maxTotalGPUs": 192, "stepGPUs": 32}},
        ["spec.malleable.minTotalGPUs: 160 is not allowed: must be at most resources.totalGPUs (128)"],
    ),
    (
        {"spec.malleable": {"minTotalGPUs": 32, "maxTotalGPUs": 96, "stepGPUs": 32}},
        ["spec.malleable.maxTotalGPUs: 96 is not allowed: must be at least resources.totalGPUs (128)"],
    ),
    (
        {"spec.malleable": {"minTotalGPUs": 100, "maxTotalGPUs": 160, "stepGPUs": 20}},
        [
            (
                "spec.resources.totalGPUs: 128 is not allowed: "
                "must be minTotalGPUs + k × stepGPUs, at most maxTotalGPUs (100, 120, 140, 160)"
            )
        ],
    ),
    (
        {"spec.malleable": {"minTotalGPUs": 1, "maxTotalGPUs": 160, "stepGPUs": 2}},
        [
            (
                "spec.resources.totalGPUs: 128 is not allowed: "
                "must be minTotalGPUs + k × stepGPUs, at most maxTotalGPUs (1, 3, 5, 7, 9, 11, …)"
            )
        ],
    ),
    (
        {
            "spec.locality": {"groupGPUs": 32},
            "spec.malleable": {"minTotalGPUs": 100, "maxTotalGPUs": 156, "stepGPUs": 28},
        },
        [
            "spec.malleable.minTotalGPUs: 100 is not allowed: must be a multiple of locality.groupGPUs (32)",
            "spec.malleable.stepGPUs: 28 is not allowed: must be a multiple of locality.groupGPUs (32)",
        ],
    ),
    (
        {
            "spec.resources.gpusPerPod": 8,
            "spec.malleable": {"minTotalGPUs": 124, "maxTotalGPUs": 132, "stepGPUs": 4},
        },
        [
            "spec.malleable.minTotalGPUs: 124 is not allowed: must be a multiple of resources.gpusPerPod (8)",
            "spec.malleable.stepGPUs: 4 is not allowed: must be a multiple of resources.gpusPerPod (8)",
        ],
    ),
    (
        {"spec.spares": 1, "spec.sparesPerGroup": 2},
        [
            (
                "spec.sparesPerGroup: 2 is not allowed: "
                "means the same as spares (1): set one of them, or both to the same value"
            )
        ],
    ),
    (
        {"spec.runtime": {"checkpoint": "0m", "maxDuration": "0d0s"}},
        [
            'spec.runtime.checkpoint: "0m" is not allowed: must be more than 0',
            'spec.runtime.maxDuration: "0d0s" is not allowed: must be more than 0',
        ],
    ),
    (
        {"spec.follow": {"after": ["prep", "train"]}},
        ['spec.follow.after[1]: "train" is not allowed: a Run cannot wait for itself'],
    ),
    (
        {"spec.quota": {"maxGPUs": 8}},
        ["spec.quota: goes with stages: a single gang is limited by its payers"],
    ),
]


@pytest.mark.parametrize(("claim", "changes"), VALID, ids=[claim for claim, _ in VALID])
def test_valid_run_is_accepted(claim: str, changes: Changes) -> None:
    assert refusals(changed(RUN, changes)) == [], claim


@pytest.mark.parametrize(("changes", "lines"), INVALID, ids=[lines[0][:70] for _, lines in INVALID])
def test_run_that_breaks_a_rule_is_refused(changes: Changes, lines: list[str]) -> None:
    assert refusals(changed(RUN, changes)) == lines


@pytest.mark.parametrize("desired", [64, 100, 192])
def test_desired_width_that_the_run_cannot_have_is_refused(desired: int) -> None:
    assert refusals(changed(RUN, {"spec.malleable": {**ELASTIC, "desiredTotalGPUs": desired}})) == [
        (
            f"spec.malleable.desiredTotalGPUs: {desired} is not allowed: "
            "must be minTotalGPUs + k × stepGPUs, at most maxTotalGPUs (96, 128, 160)"
        )
    ]
