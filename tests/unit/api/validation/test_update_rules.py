import pytest

from jobtree.api.validation.object_parser import parse_object
from jobtree.api.validation.update_rules import validate_update
from tests.unit.api.samples import BUDGET, DAY_LATER, LEASE, RESERVATION, RUN, T0, Doc, changed

Changes = dict[str, object]
RUNNING_RULE = (
    "while a Run is running, only malleable.desiredTotalGPUs and a lower runtime.maxDuration may change"
)
WAITING = changed(
    RUN,
    {
        "spec.malleable": {"minTotalGPUs": 96, "maxTotalGPUs": 160, "stepGPUs": 32},
        "spec.runtime": {"maxDuration": "2h"},
        "status": {"phase": "Reserved"},
    },
)
RUNNING = changed(WAITING, {"status": {"phase": "Running"}})
ADMITTED = changed(WAITING, {"status": {"allocation": {"since": T0, "gpusPerPod": 8}}})
COMPLETED = changed(ADMITTED, {"status.phase": "Completed"})
CLOSED = changed(LEASE, {"status": {"end": T0, "closureReason": "Completed"}})

ALLOWED: list[tuple[str, Doc, Changes]] = [
    ("a waiting Run is edited", WAITING, {"spec.resources.totalGPUs": 96, "spec.runtime.maxDuration": "9h"}),
    ("a finished Run is edited", COMPLETED, {"spec.runtime.maxDuration": "9h"}),
    ("another desired width", RUNNING, {"spec.malleable.desiredTotalGPUs": 96}),
    ("a lower maxDuration", RUNNING, {"spec.runtime.maxDuration": "119m"}),
    ("the same maxDuration in other units", RUNNING, {"spec.runtime.maxDuration": "120m"}),
    (
        "a first maxDuration",
        changed(RUNNING, {"spec.runtime": None}),
        {"spec.runtime": {"maxDuration": "1h"}},
    ),
    ("explicit defaults", RUNNING, {"spec.runtime.requeue": True, "spec.funding": {"allowBorrow": False}}),
    ("a Lease is closed", LEASE, {"status": {"end": T0, "closureReason": "Completed"}}),
    ("a closed Lease stays", CLOSED, {}),
    (
        "a promise moves",
        RESERVATION,
        {"spec.earliestStart": DAY_LATER, "spec.intendedSlice": {"domains": []}},
    ),
    ("a Budget is edited", BUDGET, {"spec.envelopes[0].concurrency": 4, "spec.owner": "org:b"}),
]
REFUSED: list[tuple[Doc, Changes, list[str]]] = [
    (
        WAITING,
        {"spec.owner": "org:b"},
        ['spec.owner: "org:b" is not allowed: owner never changes (it is org:ai:rai:sys)'],
    ),
    (
        RUNNING,
        {"spec.resources.totalGPUs": 96},
        [f"spec.resources.totalGPUs: 96 is not allowed: {RUNNING_RULE} (it was 128)"],
    ),
    (
        ADMITTED,
        {"spec.malleable.maxTotalGPUs": 192, "spec.spares": 1},
        [
            f"spec.malleable.maxTotalGPUs: 192 is not allowed: {RUNNING_RULE} (it was 160)",
            f"spec.spares: 1 is not allowed: {RUNNING_RULE} (it was absent)",
        ],
    ),
    (
        RUNNING,
        {"spec.runtime.maxDuration": "3h"},
        [f'spec.runtime.maxDuration: "3h" is not allowed: {RUNNING_RULE} (it was "2h")'],
    ),
    (
        RUNNING,
        {"spec.runtime.maxDuration": None},
        [f'spec.runtime.maxDuration: {RUNNING_RULE} (it was "2h")'],
    ),
    (
        RUNNING,
        {"spec.funding": {"sponsors": ["org:b"]}},
        [f'spec.funding.sponsors: ["org:b"] is not allowed: {RUNNING_RULE} (it was [])'],
    ),
    (
        LEASE,
        {"spec.payer.envelope": "east", "spec.slots": ["a#0"]},
        [
            'spec.payer.envelope: "east" is not allowed: a Lease\'s spec never changes (it is "west")',
            'spec.slots: ["a#0"] is not allowed: a Lease\'s spec never changes (it is ["gpu-a-01#0-7"])',
        ],
    ),
    (
        CLOSED,
        {"status.end": DAY_LATER, "status.closureReason": "Shrink"},
        [
            f'status.end: "{DAY_LATER}" is not allowed: is written once (it is "{T0}")',
            'status.closureReason: "Shrink" is not allowed: is written once (it is "Completed")',
        ],
    ),
    (
        CLOSED,
        {"status": None},
        [
            f'status.end: is written once (it is "{T0}")',
            'status.closureReason: is written once (it is "Completed")',
        ],
    ),
    (
        RESERVATION,
        {"spec.runRef.name": "other", "spec.commitment": "cd"},
        [
            (
                'spec.runRef.name: "other" is not allowed: '
                'only earliestStart and intendedSlice of a Reservation may change (it is "train")'
            ),
            (
                'spec.commitment: "cd" is not allowed: '
                f'only earliestStart and intendedSlice of a Reservation may change (it is "{"ab" * 32}")'
            ),
        ],
    ),
]


@pytest.mark.parametrize(("claim", "old", "changes"), ALLOWED, ids=[claim for claim, _, _ in ALLOWED])
def test_allowed_change_is_accepted(claim: str, old: Doc, changes: Changes) -> None:
    problems = validate_update(parse_object(old, "test"), parse_object(changed(old, changes), "test"))
    assert problems == [], claim


@pytest.mark.parametrize(("old", "changes", "lines"), REFUSED, ids=[lines[0][:70] for _, _, lines in REFUSED])
def test_other_change_is_refused(old: Doc, changes: Changes, lines: list[str]) -> None:
    problems = validate_update(parse_object(old, "test"), parse_object(changed(old, changes), "test"))
    assert [str(problem) for problem in problems] == lines
