"""A manager whose API server refuses writes, loses answers and ends watches: the outcome is the same."""

from tests.live.faults.disturbed_workloads import play_with_faults
from tests.live.faults.fault_cluster import AUDIT_OK, FaultCluster
from tests.live.faults.outcome import Outcome

SEED = 1  # make soak-live plays the workload with 20 seeds


def test_outcome_is_the_same_when_requests_fail(
    fault_cluster: FaultCluster, expected_outcome: Outcome
) -> None:
    play_with_faults(fault_cluster, expected_outcome, SEED)
    assert fault_cluster.audit() == AUDIT_OK
