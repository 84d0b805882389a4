"""The allocation in the status of a Run: leases and ranks are read back from it."""

import msgspec

from jobtree.api.kinds.run import Ending, RunStatus
from jobtree.api.schema.quantities import HOUR, format_time
from jobtree.api.validation.object_parser import parse_object, to_document
from jobtree.core.reporting.object_status import KnownRisks, run_status
from jobtree.core.runs.rank_assignment import decode_ranks
from jobtree.core.runs.run_allocation import build_endings, endings_in_status, leases_in_allocation
from tests.unit.core.build import T0, budget, envelope, nodes, run
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


def test_gang_of_16384_gpus_in_groups_of_8_has_a_status_that_can_be_stored() -> None:
    """H2: every lease is read back, and the ends of all of them fit as well."""
    fleet = [made for number in range(18) for made in nodes(f"nv-{number}", 256)]
    lab = Lab(*fleet, budget("org", envelope(100_000)))
    lab.submit(run("r", "org", 16_384, group=8, spares=1))
    state = lab["r"]
    status = run_status(lab.world, state, KnownRisks(0))
    assert (state.width, len(state.leases)) == (16_384, 4_096)
    assert status.allocation is not None
    assert (len(status.allocation.leases), len(status.allocation.entries)) == (0, 4_096)
    document = to_document(msgspec.structs.replace(state.run_object, status=status))
    assert len(msgspec.json.encode(document)) < 400_000
    again = leases_in_allocation(msgspec.structs.replace(state.run_object, status=status))
    assert sorted(again, key=lambda one: one.name) == sorted(lab.leases("r"), key=lambda one: one.name)
    assert parse_object(document, "test").status == status


def test_ends_of_many_leases_are_read_back() -> None:
    gang = run("r", "org", 8)
    endings = [
        Ending(
            lease=f"r-{gang.metadata.uid[:8]}-{number}",
            end=format_time(T0 + number % 2 * HOUR),
            reason="Completed" if number % 3 else "Shrink",
        )
        for number in range(1, 9_000)
    ]
    endings.append(Ending(lease="another-name", end=format_time(T0), reason="Failed"))
    built = build_endings(gang, endings)
    assert len(built.closing) == 1
    status = RunStatus(closing=built.closing, ended=built.ended)
    again = endings_in_status(msgspec.structs.replace(gang, status=status))
    assert sorted(again, key=lambda ending: ending.lease) == sorted(endings, key=lambda ending: ending.lease)


def test_few_leases_are_written_as_before() -> None:
    """Managers of the last release can read such a Run."""
    lab = Lab(*nodes("nv-a", 4), budget("org", envelope(64)))
    lab.submit(run("r", "org", 32, group=8))
    allocation = run_status(lab.world, lab["r"], KnownRisks(0)).allocation
    assert allocation is not None
    assert (len(allocation.leases), allocation.entries, allocation.terms) == (4, (), ())
