"""The commit point: all that a lease says can be read back from its Run, and so can its ranks."""

import msgspec

from jobtree.api.schema.quantities import HOUR
from jobtree.core.reporting.object_status import Warned, run_status
from jobtree.core.runs.rank_assignment import read_seats
from jobtree.core.runs.run_allocation import leases_of
from tests.unit.core.build import budget, envelope, nodes, run
from tests.unit.core.lab import Lab


def test_every_lease_is_read_back_from_the_status_as_it_was() -> None:
    lab = Lab(*nodes("nv-a", 4), *nodes("nv-b", 4), budget("org", envelope(64)))
    lab.submit(run("r", "org", 32, group=16, spares=1))
    lab.advance(HOUR)
    state = lab["r"]
    status = run_status(lab.world, state, Warned(0))
    again = leases_of(msgspec.structs.replace(state.run, status=status))
    assert sorted(again, key=lambda one: one.name) == sorted(lab.leases("r"), key=lambda one: one.name)
    assert read_seats(status.ranks) == state.seats
    assert len(state.seats) == 4
