"""The latest instant at which something happened, according to objects."""

import msgspec
import pytest

from jobtree.api.kinds.lease import Lease, LeaseStatus, RunRef
from jobtree.api.kinds.run import Allocation, Decided, Ending, Run, RunStatus
from jobtree.api.schema.object_meta import Condition
from jobtree.api.schema.quantities import MINUTE, format_time
from jobtree.core.model.gpu_lease import lease_to_object
from jobtree.core.reporting.written_instants import latest_instant
from tests.unit.core.build import T0, budget, nodes, run
from tests.unit.core.lab import Lab

LATER = format_time(T0 + MINUTE)
RUNNING = Condition(type="Running", status="True", reason="Start", last_transition_time=LATER)
DECIDED = Decided(run_ref=RunRef(namespace="ns", name="r"), revision=1, phase="Failed", since=LATER)


def running() -> Lab:
    lab = Lab(budget("org", 8), nodes("nv-a", 1))
    lab.submit(run("r", "org", 8))
    return lab


def test_there_is_no_latest_instant_without_objects() -> None:
    assert latest_instant([], [], []) == 0


@pytest.mark.parametrize(
    "status",
    [
        RunStatus(conditions=(RUNNING,)),
        RunStatus(decided=(DECIDED,)),
        RunStatus(changed_at=LATER),
        RunStatus(closing=(Ending(lease="r-1", end=LATER, reason="Completed"),)),
    ],
)
def test_status_of_a_run_counts(status: RunStatus) -> None:
    run_object: Run = msgspec.structs.replace(run("r", "org", 8), status=status)
    assert latest_instant([], [run_object], []) == T0 + MINUTE


def test_promised_and_paused_starts_do_not_count() -> None:
    allocation = Allocation(since=format_time(T0), gpus_per_pod=8, promised_start=LATER)
    status = RunStatus(allocation=allocation, earliest_start=LATER, resume_at=LATER)
    run_object = msgspec.structs.replace(run("r", "org", 8), status=status)
    assert latest_instant([], [run_object], []) == 0


def test_start_and_end_of_a_lease_count() -> None:
    (record,) = running().records.values()
    open_lease: Lease = lease_to_object(record.lease)
    closed = msgspec.structs.replace(open_lease, status=LeaseStatus(end=LATER, closure_reason="Completed"))
    assert latest_instant([open_lease], [], []) == T0
    assert latest_instant([open_lease, closed], [], []) == T0 + MINUTE
