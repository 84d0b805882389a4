"""The allocation in the status of a Run: leases and ranks are read back from it."""

import msgspec

from jobtree.api.schema.quantities import HOUR
from jobtree.core.reporting.object_status import KnownRisks, run_status
from jobtree.core.runs.rank_assignment import decode_ranks
from jobtree.core.runs.run_allocation import leases_in_allocation
from tests.unit.core.build import budget, envelope, nodes, run
from tests.unit.core.lab import Lab


def test_every_lease_is_read_back_from_the_status_as_it_was() -> None:
    lab = Lab(*nodes("nv-a", 4), *nodes("nv-b", 4), budget("org", envelope(64)))
    lab.submit(run("r", "org", 32, group=16, spares=1))
    lab.advance(HOUR)
    state = lab["r"]
    status = run_status(lab.world, state, KnownRisks(0))
    again = leases_in_allocation(msgspec.structs.replace(state.run_object, status=status))
    assert sorted(again, key=lambda one: one.name) == sorted(lab.leases("r"), key=lambda one: one.name)
    assert decode_ranks(status.ranks) == state.rank_slots
    assert len(state.rank_slots) == 4
