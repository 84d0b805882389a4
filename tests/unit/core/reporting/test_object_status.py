"""The conditions that other programs read from the status of a Run."""

import pytest

from jobtree.api.kinds.run import Phase
from jobtree.core import KnownRisks, Verdict
from jobtree.core.reporting.object_status import conditions
from jobtree.core.runs.run_state import RunState
from tests.unit.core.build import T0, run


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        ("Pending", {"Ready": "False"}),
        ("Reserved", {"Ready": "False"}),
        ("Running", {"Ready": "True"}),
        ("Completed", {"Ready": "True", "Complete": "True"}),
        ("Failed", {"Ready": "False", "Failed": "True", "Stalled": "True"}),
    ],
)
def test_conditions_are_those_that_kubectl_wait_and_kstatus_read(
    phase: Phase, expected: dict[str, str]
) -> None:
    read = {"Ready", "Complete", "Failed", "Stalled"}
    built = conditions(RunState(run("r", "org:a", 8), T0), phase, Verdict(phase), KnownRisks(0))
    assert {one.type: one.status for one in built if one.type in read} == expected
    assert built[0].type == "Admitted"
