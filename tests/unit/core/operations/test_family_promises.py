"""Promises on budget of the family hold against all Runs but the owner's own (C14)."""

from jobtree.api.schema.quantities import HOUR, MINUTE
from tests.unit.core.build import budget, node, nodes, run
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


def family_pays_before_a_firm_date() -> Lab:
    """``mine`` is promised its own budget in two hours, and starts early on budget of the family."""
    lab = Lab(nodes("nv-a", 2), budget("org"), budget("org:a", 8), budget("org:b"))
    lab.submit(run("first", "org:a", 8, max_duration="2h"))
    lab.submit(run("mine", "org:a", 8, at=1, max_duration="3h"))
    assert lab.promised_at("mine") == 2 * HOUR
    lab.live(30 * MINUTE)
    lab.put(budget("org:b", 8))
    lab.settle()
    assert lab.paid("mine") == {"Shared org-b/main": 8}
    return lab


def test_a_firm_date_is_kept_beside_a_start_that_the_family_pays_for() -> None:
    """R7: the Run has no checkpoint. On its date it goes on, and its own budget pays."""
    lab = family_pays_before_a_firm_date()
    assert (lab["mine"].provisional, lab.promised_at("mine")) == (False, 2 * HOUR)
    assert sum("StartedEarly" in line and " mine " in line for line in lab.story) == 1
    lab.live(2 * HOUR)
    assert (lab.paid("mine"), lab["mine"].promise) == ({"Owned org-a/main": 8}, None)
    assert [reason for reason, _ in lab.endings("mine")] == ["Repaid"]


def test_an_early_start_that_is_stopped_is_promised_its_date_again() -> None:
    """R7: an owner takes back its budget, and the only node that is left."""
    lab = family_pays_before_a_firm_date()
    lab.submit(run("later", "org:a", 8, at=30 * MINUTE))
    lab.submit(run("own", "org:b", 8, at=31 * MINUTE, max_duration="1h"))
    lab.live(36 * MINUTE)
    assert (lab.phase("mine"), lab.paid("own")) == ("Pending", {"Owned org-b/main": 8}), lab.story
    assert (lab.promised_at("mine"), slips(lab, "mine")) == (2 * HOUR, [])
    lab.live(2 * HOUR)
    assert lab.paid("mine") == {"Owned org-a/main": 8}


def test_an_early_start_that_loses_its_node_is_promised_its_date_again() -> None:
    lab = family_pays_before_a_firm_date()
    (place,) = lab.on("mine")
    lab.put(node(place, failed=True))
    lab.settle()
    assert (lab.phase("mine"), lab.promised_at("mine")) == ("Pending", 2 * HOUR)
    lab.live(2 * HOUR)
    assert lab.paid("mine") == {"Owned org-a/main": 8}


def test_no_younger_run_is_promised_what_an_early_start_may_need_on_its_date() -> None:
    """``mine`` ends after 3.5 hours, but if it is stopped before its date, only after 5 hours."""
    lab = family_pays_before_a_firm_date()
    lab.submit(run("other", "org:b", 8, at=30 * MINUTE, max_duration="10h"))
    lab.submit(run("later", "org:a", 8, at=31 * MINUTE))
    assert lab.promised_at("later") == 5 * HOUR
    lab.live(2 * HOUR)
    assert lab.promised_at("later") is not None
