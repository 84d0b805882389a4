import pytest

from tests.unit.api.samples import BUDGET, DAY_LATER, T0, changed, refusals

WINDOW: dict[str, object] = {"spec.envelopes[0].start": T0, "spec.envelopes[0].end": DAY_LATER}
EAST: dict[str, object] = {"spec.envelopes[1]": {"name": "east", "flavor": "A100", "concurrency": 4}}
CAP = {"name": "all", "flavor": "H100-80GB", "envelopes": ["west"], "maxConcurrency": 4}
Changes = dict[str, object]

VALID: list[tuple[str, Changes]] = [
    ("no envelopes", {"spec.envelopes": None}),
    ("other parents", {"spec.parents": ["org:ai", "org:vision"]}),
    ("a window", WINDOW),
    ("hours that fill the window", {**WINDOW, "spec.envelopes[0].maxGPUHours": 192}),
    ("hours without a window", {"spec.envelopes[0].maxGPUHours": 10**9}),
    ("hours of a half-open window", {"spec.envelopes[0].start": T0, "spec.envelopes[0].maxGPUHours": 10**9}),
    (
        "lending more than the concurrency",
        {"spec.envelopes[0].lending": {"allow": True, "maxConcurrency": 99}},
    ),
    ("a cap", {"spec.aggregateCaps": [CAP]}),
    (
        "a cap over flavors, in credits",
        {**EAST, "spec.aggregateCaps": [{"name": "all", "envelopes": ["west", "east"], "maxCredits": 5}]},
    ),
    (
        "a cap without flavor over one flavor",
        {"spec.aggregateCaps": [{"name": "all", "envelopes": ["west"], "maxGPUHours": 5}]},
    ),
]
INVALID: list[tuple[Changes, list[str]]] = [
    (
        {"spec.parents": ["org:ai", "org:ai:rai"]},
        ['spec.parents[1]: "org:ai:rai" is not allowed: an owner cannot be its own parent'],
    ),
    ({"spec.parents": ["org:ai", "org:ai"]}, ['spec.parents[1]: "org:ai" is not allowed: is listed twice']),
    (
        {"spec.envelopes[1]": {"name": "west", "flavor": "A100", "concurrency": 1}},
        ['spec.envelopes[1].name: "west" is not allowed: another envelope has this name'],
    ),
    (
        {"spec.envelopes[0].start": DAY_LATER, "spec.envelopes[0].end": T0},
        [f'spec.envelopes[0].end: "{T0}" is not allowed: must be after start ({DAY_LATER})'],
    ),
    (
        {"spec.envelopes[0].start": T0, "spec.envelopes[0].end": "2026-01-05T11:00:00+02:00"},
        [f'spec.envelopes[0].end: "2026-01-05T11:00:00+02:00" is not allowed: must be after start ({T0})'],
    ),
    (
        {**WINDOW, "spec.envelopes[0].maxGPUHours": 193},
        [
            (
                "spec.envelopes[0].maxGPUHours: 193 is not allowed: "
                "must be at most concurrency × window (8 GPUs × 1d = 192 GPU-hours)"
            )
        ],
    ),
    (
        {"spec.aggregateCaps": [CAP, CAP]},
        ['spec.aggregateCaps[1].name: "all" is not allowed: another cap has this name'],
    ),
    (
        {"spec.aggregateCaps": [{**CAP, "envelopes": ["west", "nowhere"]}]},
        [
            (
                'spec.aggregateCaps[0].envelopes[1]: "nowhere" is not allowed: '
                "must be the name of an envelope of this Budget"
            )
        ],
    ),
    (
        {"spec.aggregateCaps": [{**CAP, "envelopes": ["west", "west"]}]},
        ['spec.aggregateCaps[0].envelopes[1]: "west" is not allowed: is listed twice'],
    ),
    (
        {**EAST, "spec.aggregateCaps": [{**CAP, "envelopes": ["west", "east"]}]},
        [
            (
                'spec.aggregateCaps[0].envelopes[1]: "east" is not allowed: '
                "must be of the cap's flavor H100-80GB, not A100"
            )
        ],
    ),
    (
        {"spec.aggregateCaps": [{"name": "all", "envelopes": ["west"]}]},
        ["spec.aggregateCaps[0]: must set maxConcurrency, maxGPUHours or maxCredits"],
    ),
    (
        {
            **EAST,
            "spec.aggregateCaps": [
                {
                    "name": "all",
                    "envelopes": ["west", "east"],
                    "maxConcurrency": 5,
                    "maxGPUHours": 6,
                    "maxCredits": 7,
                }
            ],
        },
        [
            (
                "spec.aggregateCaps[0].maxConcurrency: 5 is not allowed: "
                "a cap over several flavors (A100, H100-80GB) can only set maxCredits"
            ),
            (
                "spec.aggregateCaps[0].maxGPUHours: 6 is not allowed: "
                "a cap over several flavors (A100, H100-80GB) can only set maxCredits"
            ),
        ],
    ),
]


@pytest.mark.parametrize(("claim", "changes"), VALID, ids=[claim for claim, _ in VALID])
def test_valid_budget_is_accepted(claim: str, changes: Changes) -> None:
    assert refusals(changed(BUDGET, changes)) == [], claim


@pytest.mark.parametrize(("changes", "lines"), INVALID, ids=[lines[0][:70] for _, lines in INVALID])
def test_budget_that_breaks_a_rule_is_refused(changes: Changes, lines: list[str]) -> None:
    assert refusals(changed(BUDGET, changes)) == lines
