"""Each invariant finds a violation. The worlds here are sound until the test changes their data."""

from collections.abc import Callable

import msgspec
import pytest

from jobtree.api.schema.quantities import HOUR
from jobtree.core.model.gpu_lease import GpuLease
from jobtree.core.reporting.invariants import check_invariants
from tests.unit.core.build import budget, envelope, node, nodes, run
from tests.unit.core.lab import Lab

Tampering = Callable[[Lab, GpuLease], None]


def forge(lab: Lab, lease: GpuLease, **fields: object) -> None:
    """Open a lease like this one, but for those fields."""
    forged = msgspec.structs.replace(lease, name=f"{lease.name}-forged", **fields)
    lab.world.open_leases.open(forged)


def same_slots(lab: Lab, lease: GpuLease) -> None:
    forge(lab, lease)


def wrong_payer(lab: Lab, lease: GpuLease) -> None:
    forge(lab, lease, payer=("lab", "main"), slots=(("nv-b-00", 0xFF),))


def wrong_class(lab: Lab, lease: GpuLease) -> None:
    forge(lab, lease, class_="Shared", slots=(("nv-b-00", 0xFF),))


def too_much(lab: Lab, lease: GpuLease) -> None:
    forge(lab, lease, slots=(("nv-a-01", 0xFF),), gpus=64)


def half_a_gang(lab: Lab, lease: GpuLease) -> None:
    lab.world.open_leases.close(lease.name, lab.world.now)


def two_domains(lab: Lab, lease: GpuLease) -> None:
    forge(lab, lease, slots=(("nv-b-00", 0xFF),))


def from_the_future(lab: Lab, lease: GpuLease) -> None:
    forge(lab, lease, start=lab.world.now + 1, slots=(("nv-a-01", 0xFF),))


def nobodys(lab: Lab, lease: GpuLease) -> None:
    forge(lab, lease, uid="gone", slots=(("nv-a-01", 0xFF),))


def too_wide(lab: Lab, lease: GpuLease) -> None:
    forge(lab, lease, slots=(("nv-a-01", 0xFF),))


def cooked_books(lab: Lab, _lease: GpuLease) -> None:
    lab.envelope("org").account.closed_usage += 1


def cooked_classes(lab: Lab, _lease: GpuLease) -> None:
    lab.envelope("org").by_class["owned"].closed_usage -= 1


def out_of_the_queue(lab: Lab, _lease: GpuLease) -> None:
    lab.world.run_queue.remove(lab["waiting"])


def no_reason(lab: Lab, _lease: GpuLease) -> None:
    lab["waiting"].record_verdict(None)


def something_to_do(lab: Lab, _lease: GpuLease) -> None:
    lab.put(budget("org", 64))


@pytest.mark.parametrize(
    ("invariant", "tampering"),
    [
        ("I1", same_slots),
        ("I2", wrong_payer),
        ("I2", wrong_class),
        ("I3", too_much),
        ("I4", half_a_gang),
        ("I5", two_domains),
        ("I6", from_the_future),
        ("I6", nobodys),
        ("I7", too_wide),
        ("I10", cooked_books),
        ("I10", cooked_classes),
        ("I11", out_of_the_queue),
        ("I11", no_reason),
        ("I12", something_to_do),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_each_invariant_is_violated_when_its_data_is_changed(invariant: str, tampering: Tampering) -> None:
    lab = Lab(nodes("nv-a", 2), nodes("nv-b", 3), budget("org", 16), budget("lab", 8))
    lab.submit(run("r", "org", 8), run("waiting", "org", 16, at=1))
    lab.advance(HOUR)
    (lease,) = lab.leases("r")
    tampering(lab, lease)
    assert invariant in {violation.invariant for violation in check_invariants(lab.world, lab.replay)}


def test_a_slot_may_have_a_spare_and_an_opportunistic_lease() -> None:
    lab = Lab(nodes("nv-a", 2), budget("org", 10), budget("lab", 1))
    lab.submit(run("holder", "org", 8, spares=1), run("tenant", "lab", 8, at=1, opportunistic=True))
    assert lab.on("tenant", "Opportunistic") == lab.on("holder", "Spare")
    assert check_invariants(lab.world, lab.replay) == []


def test_leases_older_than_a_budget_edit_are_not_checked_by_it() -> None:
    lab = Lab(node("n"), budget("org", 8))
    lab.submit(run("r", "org", 8))
    lab.put(budget("org", envelope(8, selector={"region": "eu"})))
    lab.settle()
    lab.advance(HOUR)
    assert check_invariants(lab.world, lab.replay) == []
