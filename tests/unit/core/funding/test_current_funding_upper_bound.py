"""The most that a Run's payers could have for it, with all that the family gives back (C11)."""

from jobtree.core.funding.current_funding_upper_bound import CurrentFundingUpperBound
from jobtree.core.operations.trial import promises_affected_by
from tests.unit.core.build import budget, nodes, run
from tests.unit.core.lab import Lab


def crowded() -> Lab:
    """Of a's 16 GPUs 8 are lent for an hour; in two hours, when there is a place, all are promised."""
    family = (budget("org"), budget("org:a", 16), budget("org:b"))
    lab = Lab(nodes("nv-a", 3), budget("rich", 16), *family)
    lab.submit(run("loan", "org:b", 8, max_duration="1h"), run("full", "rich", 16, max_duration="2h"))
    lab.submit(run("promised", "org:a", 16, at=1, spread=False))
    return lab


def pods(lab: Lab, max_duration: str) -> int:
    lab.submit(run("asks", "org:a", 8, at=2, max_duration=max_duration))
    return CurrentFundingUpperBound(lab.world).pods(lab["asks"], 8)


def test_what_the_family_gives_back_counts_until_it_would_be_back_anyway() -> None:
    assert pods(crowded(), "90m") == 2
    assert pods(crowded(), "5h") == 0


def test_a_lease_is_in_nobodys_way_who_is_promised_a_start_after_its_end() -> None:
    lab = crowded()
    (loan,), (full,) = lab.leases("loan"), lab.leases("full")
    assert list(promises_affected_by(lab.world, loan)) == []
    assert list(promises_affected_by(lab.world, full)) == []
    lab = Lab(nodes("nv-a", 3), budget("a", 24), budget("rich", 16))
    lab.submit(run("open", "a", 8), run("full", "rich", 16, max_duration="2h"))
    lab.submit(run("promised", "a", 16, at=1, spread=False))
    (lease,) = lab.leases("open")
    assert set(promises_affected_by(lab.world, lease)) == {lab["promised"].key}
