"""Promises on budget of the family hold against all Runs but the owner's own (C14)."""

from jobtree.api.schema.quantities import HOUR, MINUTE
from tests.unit.core.build import budget, nodes, run
from tests.unit.core.lab import Lab

FAMILY = (budget("org"), budget("org:own", 16), budget("org:kin"), budget("org:third"))


def two_promises() -> Lab:
    """Three nodes are full for two hours. Then two relatives are promised all budget of org:own."""
    lab = Lab(nodes("nv-a", 3), budget("rich", 64), *FAMILY)
    lab.submit(run("full", "rich", 24, max_duration="2h"))
    lab.submit(run("older", "org:kin", 8, at=1, max_duration="4h"))
    lab.submit(run("younger", "org:third", 8, at=2, max_duration="4h"))
    assert (lab.promised_at("older"), lab.promised_at("younger")) == (2 * HOUR, 2 * HOUR)
    return lab


def slips(lab: Lab, name: str) -> list[str]:
    return [slip.reason for slip in lab.promise(name).slips]


def test_the_youngest_promise_gives_way_and_no_more_than_needed() -> None:
    lab = two_promises()
    lab.submit(run("own", "org:own", 8, at=3, max_duration="1h"))
    assert [lab.promised_at(name) for name in ("own", "older", "younger")] == [2 * HOUR, 2 * HOUR, 3 * HOUR]
    assert (slips(lab, "older"), slips(lab, "younger")) == ([], ["OwnerNeeds"])
    lab.live(3 * HOUR)
    assert lab.paid("younger") == {"Shared org-own/main": 8}


def test_a_wide_run_of_the_owner_displaces_both() -> None:
    lab = two_promises()
    lab.submit(run("own", "org:own", 16, at=3))
    assert [lab.promised_at(name) for name in ("own", "older", "younger")] == [2 * HOUR, None, None]


def test_what_was_displaced_has_a_date_again_at_once_when_the_owners_run_is_gone() -> None:
    lab = two_promises()
    lab.submit(run("own", "org:own", 16, at=3))
    lab.world.drop_run(("ns", "own"))
    lab.settle()
    assert [lab.promised_at(name) for name in ("older", "younger")] == [2 * HOUR, 2 * HOUR]


def test_a_run_that_its_owner_cannot_pay_for_in_whole_displaces_nothing() -> None:
    lab = two_promises()
    lab.submit(run("own", "org:own", 24, at=3))
    assert (slips(lab, "older"), slips(lab, "younger")) == ([], [])


def test_a_relative_displaces_no_promise_of_another_relative() -> None:
    lab = two_promises()
    lab.submit(run("late", "org:kin", 8, at=3))
    assert [lab.promised_at(name) for name in ("older", "younger")] == [2 * HOUR, 2 * HOUR]


def test_the_owner_starts_now_on_budget_that_is_promised_to_the_family_for_later() -> None:
    lab = Lab(nodes("nv-a", 2), budget("rich", 64), *FAMILY)
    lab.submit(run("full", "rich", 8, max_duration="2h"))
    lab.submit(run("kin", "org:kin", 16, at=1, max_duration="4h"))
    assert lab.promised_at("kin") == 2 * HOUR
    lab.submit(run("own", "org:own", 8, at=2))
    assert lab.paid("own") == {"Owned org-own/main": 8}
    assert (lab.promised_at("kin"), slips(lab, "kin")) == (None, ["OwnerNeeds"])


def test_a_promise_that_others_can_pay_for_keeps_its_instant() -> None:
    lab = Lab(nodes("nv-a", 2), budget("rich", 64), budget("org", 8), budget("org:own", 8), budget("org:kin"))
    lab.submit(run("full", "rich", 16, max_duration="2h"))
    lab.submit(run("kin", "org:kin", 8, at=1))
    assert lab.promise("kin").funding == ((("org-own", "main"), 8),)
    lab.submit(run("own", "org:own", 8, at=2))
    assert (lab.promised_at("own"), lab.promised_at("kin")) == (2 * HOUR, 2 * HOUR)
    assert (lab.promise("kin").funding, slips(lab, "kin")) == (((("org", "main"), 8),), [])


def test_a_firm_date_within_two_hours_is_not_given_up_for_budget_of_the_family() -> None:
    """The family's budget is free now. The Run has no checkpoint, so a recall would cost it its date."""
    lab = Lab(nodes("nv-a", 2), budget("org"), budget("org:a", 8), budget("org:b"))
    lab.submit(run("first", "org:a", 8, max_duration="1h"))
    lab.submit(run("mine", "org:a", 8, at=1, max_duration="1h"))
    assert lab.promised_at("mine") == HOUR
    lab.live(30 * MINUTE)
    lab.put(budget("org:b", 8))
    lab.settle()
    assert lab.phase("mine") == "Pending"
    lab.live(HOUR)
    assert lab.paid("mine") == {"Owned org-a/main": 8}
