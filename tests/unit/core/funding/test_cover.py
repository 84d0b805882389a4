"""Which envelopes may pay for a Run, and in which order (C1–C5)."""

import pytest

from jobtree.api.kinds.budget import Budget
from jobtree.api.kinds.run import Run
from jobtree.api.schema.quantities import HOUR, MINUTE
from tests.unit.core.build import H100, budget, cap, envelope, node, nodes, run
from tests.unit.core.lab import Lab

LENDS = {"allow": True, "to": ["*"]}
BORROWER = run("r", "org:ai:rai", 8, sponsors=["lab:y", "lab:x"])


def payers(*budgets: Budget, asked: Run = BORROWER) -> dict[str, int]:
    lab = Lab(nodes("nv-a", 4), *budgets)
    lab.submit(asked)
    return lab.paid("r")


OWN = budget("org:ai:rai", 8)
SIBLING = budget("org:ai:mm", 8)
PARENT = budget("org:ai", 8)
GRANDPARENT = budget("org", 8)
SPONSORS = (budget("lab:x", envelope(8, lending=LENDS)), budget("lab:y", envelope(8, lending=LENDS)))
NOTHING_OWN = budget("org:ai:rai")


@pytest.mark.parametrize(
    ("budgets", "payer"),
    [
        ([OWN, SIBLING, PARENT, GRANDPARENT, *SPONSORS], "Owned org-ai-rai/main"),
        ([NOTHING_OWN, SIBLING, PARENT, GRANDPARENT, *SPONSORS], "Shared org-ai-mm/main"),
        ([NOTHING_OWN, PARENT, GRANDPARENT, *SPONSORS], "Shared org-ai/main"),
        ([NOTHING_OWN, budget("org:ai"), GRANDPARENT, *SPONSORS], "Shared org/main"),
        ([NOTHING_OWN, *SPONSORS], "Borrowed lab-y/main"),
        ([NOTHING_OWN, SPONSORS[0]], "Borrowed lab-x/main"),
    ],
    ids=["own", "siblings", "parents", "further ancestors", "first sponsor listed", "next sponsor"],
)
def test_nearest_tier_with_enough_budget_pays(budgets: list[Budget], payer: str) -> None:
    assert payers(*budgets) == {payer: 8}


def test_next_tier_pays_what_the_nearest_cannot() -> None:
    asked = run("r", "org:ai:rai", 8, per_pod=2, sponsors=["lab:y"])
    paid = payers(budget("org:ai:rai", 3), budget("org:ai", 4), SPONSORS[1], asked=asked)
    assert paid == {"Owned org-ai-rai/main": 2, "Shared org-ai/main": 4, "Borrowed lab-y/main": 2}


def test_one_pod_has_one_payer() -> None:
    lab = Lab(nodes("nv-a", 4), budget("org:ai", 4), budget("org:ai:rai", 4))
    lab.submit(run("pods-of-8", "org:ai:rai", 8))
    lab.submit(run("pods-of-4", "org:ai:rai", 8, per_pod=4, at=1))
    assert lab.reasons("pods-of-8") == ["ConcurrencyExhausted", "ConcurrencyExhausted"]
    assert lab.paid("pods-of-4") == {"Owned org-ai-rai/main": 4, "Shared org-ai/main": 4}


@pytest.mark.parametrize(
    ("envelopes", "first"),
    [
        ([envelope(8, "a"), envelope(8, "b", end=HOUR)], "b"),
        ([envelope(8, "a", end=2 * HOUR), envelope(8, "b", end=HOUR)], "b"),
        ([envelope(8, "b"), envelope(8, "a")], "a"),
        ([envelope(8, "a", start=MINUTE, end=HOUR), envelope(8, "b")], "b"),
    ],
    ids=["only one closes", "closes first", "same window", "not open yet"],
)
def test_envelope_whose_window_closes_first_pays_first_in_its_tier(
    envelopes: list[dict[str, object]], first: str
) -> None:
    assert payers(budget("org:ai:rai", *envelopes)) == {f"Owned org-ai-rai/{first}": 8}


def test_name_of_the_budget_decides_before_the_name_of_the_envelope() -> None:
    paid = payers(
        budget("org:ai:rai", envelope(8, "a"), name="zeta"),
        budget("org:ai:rai", envelope(8, "b"), name="alpha"),
    )
    assert paid == {"Owned alpha/b": 8}


def test_tier_decides_before_the_window() -> None:
    assert payers(OWN, budget("org:ai", envelope(8, end=HOUR))) == {"Owned org-ai-rai/main": 8}


@pytest.mark.parametrize(
    ("lending", "paid"),
    [
        (None, False),
        ({"allow": True, "to": []}, False),
        ({"allow": False, "to": ["*"]}, False),
        ({"allow": True, "to": ["org:ai:rai"]}, True),
        ({"allow": True, "to": ["org:ai:*"]}, True),
        ({"allow": True, "to": ["org:*"]}, True),
        ({"allow": True, "to": ["*"]}, True),
        ({"allow": True, "to": ["org:ai"]}, False),
        ({"allow": True, "to": ["org:ai:rai:*"]}, False),
        ({"allow": True, "to": ["lab:x", "org:ai:rai"]}, True),
    ],
    ids=str,
)
def test_sponsor_pays_only_when_its_lending_names_the_owner(lending: object, paid: bool) -> None:
    assert bool(payers(NOTHING_OWN, budget("lab:y", envelope(8, lending=lending)))) is paid


@pytest.mark.parametrize(
    ("asked", "paid"),
    [
        (run("r", "org:ai:rai", 8, sponsors=["lab:y"]), True),
        (run("r", "org:ai:rai", 8, sponsors=[]), False),
        (run("r", "org:ai:rai", 8), False),
    ],
    ids=["named", "not named", "not allowed to borrow"],
)
def test_sponsor_pays_only_when_the_run_names_it(asked: Run, paid: bool) -> None:
    assert bool(payers(NOTHING_OWN, *SPONSORS, asked=asked)) is paid


@pytest.mark.parametrize(("max_borrow", "paid"), [(None, 24), (24, 24), (23, 0), (16, 0), (0, 0)])
def test_run_borrows_at_most_max_borrow_gpus_for_all_its_groups(max_borrow: int | None, paid: int) -> None:
    bank = budget("lab:y", envelope(64, lending=LENDS))
    asked = run("r", "org:ai:rai", 24, group=8, sponsors=["lab:y"], max_borrow=max_borrow)
    assert sum(payers(NOTHING_OWN, bank, asked=asked).values()) == paid


@pytest.mark.parametrize(("max_borrow", "paid"), [(16, 16), (15, 0)])
def test_run_borrows_at_most_max_borrow_gpus_from_all_its_sponsors(max_borrow: int, paid: int) -> None:
    asked = run("r", "org:ai:rai", 16, per_pod=4, sponsors=["lab:y", "lab:x"], max_borrow=max_borrow)
    assert sum(payers(NOTHING_OWN, *SPONSORS, asked=asked).values()) == paid


@pytest.mark.parametrize(("most", "paid"), [(16, 16), (15, 0)])
def test_cap_limits_all_its_envelopes_together(most: int, paid: int) -> None:
    caps = [cap("c", "a", "b", flavor=H100, maxConcurrency=most)]
    capped = budget("org:ai:rai", envelope(8, "a"), envelope(8, "b"), caps=caps)
    assert sum(payers(capped, asked=run("r", "org:ai:rai", 16, per_pod=4)).values()) == paid


def test_envelope_with_sharing_none_pays_only_for_its_owner() -> None:
    hidden = envelope(8, sharing="none")
    assert payers(budget("org:ai:rai", hidden)) == {"Owned org-ai-rai/main": 8}
    for relative in ("org:ai:mm", "org:ai", "org"):
        assert payers(NOTHING_OWN, budget("org:ai"), budget("org"), budget(relative, hidden)) == {}


def test_envelope_with_sharing_none_lends() -> None:
    relative = budget("org:ai", envelope(8, sharing="none", lending=LENDS))
    asked = run("r", "org:ai:rai", 8, sponsors=["org:ai"])
    assert payers(NOTHING_OWN, relative, asked=asked) == {"Borrowed org-ai/main": 8}


def test_relative_that_is_also_a_sponsor_pays_as_family() -> None:
    relative = budget("org:ai", envelope(8, lending=LENDS))
    asked = run("r", "org:ai:rai", 8, sponsors=["org:ai"])
    assert payers(NOTHING_OWN, relative, asked=asked) == {"Shared org-ai/main": 8}


@pytest.mark.parametrize(
    ("selector", "domain"),
    [
        ({"fabric.domain": "nv-b"}, {"nv-b"}),
        ({"fabric.domain": "*"}, {"nv-a"}),
        ({"region": "us"}, {"nv-a"}),
        ({"region": "us", "fabric.domain": "nv-b"}, {"nv-b"}),
        ({"region": "eu"}, set()),
        ({"rack": "1"}, set()),
    ],
    ids=str,
)
def test_envelope_pays_only_on_nodes_that_its_selector_matches(
    selector: dict[str, str], domain: set[str]
) -> None:
    lab = Lab(nodes("nv-a", 1), nodes("nv-b", 2), budget("org", envelope(8, selector=selector)))
    lab.submit(run("r", "org", 8))
    assert lab.domains("r").get(0, set()) == domain


def test_group_is_placed_where_the_nearest_tier_pays() -> None:
    lab = Lab(nodes("nv-a", 1), nodes("nv-b", 2))
    lab.put(budget("org", 8), budget("org:x", envelope(8, selector={"fabric.domain": "nv-b"})))
    lab.submit(run("r", "org:x", 8))
    assert (lab.paid("r"), lab.domains("r")) == ({"Owned org-x/main": 8}, {0: {"nv-b"}})


def test_group_is_paid_by_several_envelopes_each_on_its_own_nodes() -> None:
    lab = Lab(node("n1", labels={"rack": "1"}), node("n2", labels={"rack": "2"}))
    lab.put(budget("org", envelope(8, "a", selector={"rack": "2"}), envelope(8, "b", selector={"rack": "1"})))
    lab.submit(run("r", "org", 16))
    assert {lease.payer[1]: lease.slots for lease in lab.leases("r")} == {
        "a": (("n2", 0xFF),),
        "b": (("n1", 0xFF),),
    }


def test_envelope_of_another_flavor_does_not_pay() -> None:
    assert payers(budget("org:ai:rai", envelope(8, flavor="A100-40GB"))) == {}
