"""What the payers of a Run can pay at most, with all that its owner can recall (C11)."""

from jobtree.core.funding.current_funding_upper_bound import CurrentFundingUpperBound
from jobtree.core.operations.trial import promises_affected_by
from tests.unit.core.build import budget, nodes, run
from tests.unit.core.lab import Lab


def crowded() -> Lab:
    """The family uses 8 of the 16 GPUs of org:a for an hour; in two hours, all 16 are promised."""
    family = (budget("org"), budget("org:a", 16), budget("org:b"))
    lab = Lab(nodes("nv-a", 3), budget("rich", 16), *family)
    lab.submit(run("sibling", "org:b", 8, max_duration="1h"), run("full", "rich", 16, max_duration="2h"))
    lab.submit(run("promised", "org:a", 16, at=1, spread=False))
    return lab


def pods(lab: Lab, max_duration: str) -> int:
    lab.submit(run("asking", "org:a", 8, at=2, max_duration=max_duration))
    return CurrentFundingUpperBound(lab.world).pods(lab["asking"], 8)


def test_recallable_charge_counts_only_until_the_family_lease_ends() -> None:
    assert pods(crowded(), "90m") == 2
    assert pods(crowded(), "5h") == 0


def test_lease_affects_no_promise_that_starts_after_its_end() -> None:
    lab = crowded()
    (sibling,), (full,) = lab.leases("sibling"), lab.leases("full")
    assert list(promises_affected_by(lab.world, sibling)) == []
    assert list(promises_affected_by(lab.world, full)) == []
    lab = Lab(nodes("nv-a", 3), budget("a", 24), budget("rich", 16))
    lab.submit(run("open", "a", 8), run("full", "rich", 16, max_duration="2h"))
    lab.submit(run("promised", "a", 16, at=1, spread=False))
    (lease,) = lab.leases("open")
    assert set(promises_affected_by(lab.world, lease)) == {lab["promised"].key}
