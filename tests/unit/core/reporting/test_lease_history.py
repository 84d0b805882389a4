"""Leases that overlap on a slot, or end before they start, are found after they are closed."""

import msgspec
import pytest

from jobtree.api.kinds.lease import Role
from jobtree.core.model.gpu_lease import GpuLease
from jobtree.core.reporting.lease_history import check_lease_history

LEASE = GpuLease(
    name="a-1",
    run_key=("ns", "a"),
    uid="uid",
    owner="org",
    payer=("org", "main"),
    payer_owner="org",
    class_="Owned",
    role="Active",
    group=0,
    flavor="H100-80GB",
    slots=(("gpu-a-01", 0b1111),),
    gpus=4,
    start=1000,
    rate=1000,
    reason="Start",
)


def lease(name: str, start: int, mask: int = 0b1111, role: Role = "Active") -> GpuLease:
    return msgspec.structs.replace(LEASE, name=name, start=start, slots=(("gpu-a-01", mask),), role=role)


def found(*leases: tuple[GpuLease, int | None]) -> list[str]:
    return [str(violation) for violation in check_lease_history(leases)]


def test_leases_that_follow_each_other_are_sound() -> None:
    assert found((lease("a-1", 0), 1000), (lease("b-1", 1000), 1000), (lease("c-1", 1000), None)) == []


def test_leases_of_one_slot_that_overlap_are_reported_once() -> None:
    assert found((lease("a-1", 0), 1001), (lease("b-1", 1000, 0b1100), 2000)) == [
        "I1: a-1 and b-1 overlap on slot gpu-a-01#2"
    ]
    assert found((lease("a-1", 0), None), (lease("b-1", 5000, 0b1000), None)) == [
        "I1: a-1 and b-1 overlap on slot gpu-a-01#3"
    ]


def test_lease_that_ends_before_it_starts_is_reported() -> None:
    assert found((lease("a-1", 3000), 1000)) == ["I6: a-1 ends 2000 ms before it starts"]


@pytest.mark.parametrize("role", ["Active", "Opportunistic"])
def test_spare_may_share_its_slots(role: Role) -> None:
    """Who may share with a spare at one instant is checked by I1 for open leases."""
    assert found((lease("a-1", 0, role="Spare"), None), (lease("b-1", 10, role=role), None)) == []
