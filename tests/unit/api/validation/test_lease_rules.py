import pytest

from tests.unit.api.samples import DAY_LATER, LEASE, T0, changed, refusals

Changes = dict[str, object]
BEFORE = "2026-01-05T08:59:59.999Z"

VALID: list[Changes] = [
    {},
    {"spec.slots": ["a#0-3", "a#4", "b#0-3"]},
    {"status": {"end": DAY_LATER, "closureReason": "Completed"}},
    {"status": {"end": T0, "closureReason": "Cancelled"}},
]
INVALID: list[tuple[Changes, list[str]]] = [
    (
        {"spec.slots": ["a#7-0"]},
        ['spec.slots[0]: "a#7-0" is not allowed: a range of slots must not end before it begins'],
    ),
    (
        {"spec.slots": ["a#0-3", "b#0", "a#3-5"]},
        ['spec.slots[2]: "a#3-5" is not allowed: a slot may be listed only once'],
    ),
    ({"status": {"end": DAY_LATER}}, ["status.closureReason: is required with end"]),
    ({"status": {"closureReason": "Shrink"}}, ["status.end: is required with closureReason"]),
    (
        {"status": {"end": BEFORE, "closureReason": "Shrink"}},
        [f'status.end: "{BEFORE}" is not allowed: must not be before spec.start ({T0})'],
    ),
]


@pytest.mark.parametrize("changes", VALID)
def test_valid_lease_is_accepted(changes: Changes) -> None:
    assert refusals(changed(LEASE, changes)) == []


@pytest.mark.parametrize(("changes", "lines"), INVALID, ids=[lines[0] for _, lines in INVALID])
def test_lease_that_breaks_a_rule_is_refused(changes: Changes, lines: list[str]) -> None:
    assert refusals(changed(LEASE, changes)) == lines
