"""A short hunt: the manager survives hostile objects. ``make hunt`` judges the times of the canary."""

from tests.live.faults.fault_cluster import FaultCluster
from tests.live.faults.hunt import play

SHORT_SECONDS = 15


def test_manager_survives_hostile_objects_and_others_start(fault_cluster: FaultCluster) -> None:
    """H1, H2: it ends with no traceback and no broken invariant, and each canary is bound."""
    hunt = play(fault_cluster, 1, SHORT_SECONDS)
    assert hunt.accepted
    assert hunt.refused
    assert hunt.seconds
