"""A promise of an owner's own Run counts on what its family will give back (C11, R3)."""

from jobtree.api.schema.quantities import HOUR, MINUTE, SECOND
from jobtree.core.funding.future_recall import recallable_charges
from tests.unit.core.build import H100, T0, budget, cap, envelope, nodes, run
from tests.unit.core.lab import Lab

NOTICE = 30 * MINUTE  # for so long whoever was promised a start keeps its money
FAMILY = (budget("org"), budget("org:own", 8), budget("org:kin"))


def full(*budgets: object) -> Lab:
    """Two nodes, in use for two hours."""
    lab = Lab(nodes("nv-a", 2), budget("rich", 64), *(budgets or FAMILY))  # type: ignore[arg-type]
    lab.submit(run("holds", "rich", 16, max_duration="2h"))
    return lab


def test_a_siblings_open_ended_promise_leaves_the_lenders_own_run_its_date() -> None:
    lab = full()
    lab.submit(run("kin", "org:kin", 8, at=1))
    lab.submit(run("own", "org:own", 8, at=2))
    assert (lab.promised_at("kin"), lab.promised_at("own")) == (2 * HOUR, 2 * HOUR + NOTICE)
    assert lab.remedies("own") == [("Recall", 8, ["kin"])]
    lab.live(2 * HOUR)
    assert (lab["kin"].phase, lab["kin"].opportunistic_gpus) == ("Running", 0)
    lab.live(2 * HOUR + NOTICE)
    assert (lab["kin"].phase, lab["kin"].opportunistic_gpus) == ("Running", 8)
    assert lab.paid("own") == {"Owned org-own/main": 8}


def test_what_the_family_is_promised_is_not_recalled_before_it_has_begun() -> None:
    """The lender's own Run would find place sooner, and stay: so it waits until the promise is kept."""
    lab = full(budget("org"), budget("org:own", 16), budget("org:kin"))
    lab.submit(run("kin", "org:kin", 16, at=1, spread=False))
    lab.put(nodes("nv-b", 1))
    lab.submit(run("own", "org:own", 8, at=2))
    assert (lab.promised_at("kin"), lab.promised_at("own")) == (2 * HOUR, 2 * HOUR + NOTICE)
    assert lab["own"].phase == "Reserved"
    lab.live(2 * HOUR + NOTICE)
    assert (lab["kin"].width, lab["kin"].opportunistic_gpus) == (16, 16)
    assert lab.paid("own") == {"Owned org-own/main": 8}


def test_money_that_the_family_has_already_does_not_leave_the_owners_run_undated() -> None:
    lab = Lab(nodes("nv-a", 3), budget("rich", 64), *FAMILY)
    lab.submit(run("kin", "org:kin", 8))
    lab.submit(run("holds", "rich", 16, at=1, max_duration="2h"))
    lab.submit(run("own", "org:own", 8, at=2))
    assert lab.paid("own") == {"Owned org-own/main": 8}  # the demoted Run gives way with its place at once
    assert lab.phase("kin") == "Pending"


def test_a_cap_that_the_family_fills_leaves_a_date_too() -> None:
    caps = [cap("both", "a", "b", flavor=H100, maxConcurrency=8)]
    owner = budget("org:own", envelope(8, "a"), envelope(8, "b"), caps=caps)
    lab = full(budget("org"), owner, budget("org:kin"))
    lab.submit(run("kin", "org:kin", 8, at=1))
    lab.submit(run("own", "org:own", 8, at=2))
    assert lab.promised_at("own") == 2 * HOUR + NOTICE
    lab.live(2 * HOUR + NOTICE)
    assert (lab["own"].phase, lab["kin"].opportunistic_gpus) == ("Running", 8)


def test_a_relative_counts_on_nothing_that_another_lends() -> None:
    lab = full(*FAMILY, budget("org:third"))
    lab.submit(run("kin", "org:kin", 8, at=1))
    lab.submit(run("third", "org:third", 8, at=2))
    assert (lab.promised_at("kin"), lab.promised_at("third")) == (2 * HOUR, None)


def test_money_lent_to_a_sponsored_run_is_not_counted_on() -> None:
    lender = budget("bank", envelope(8, lending={"allow": True, "to": ["*"]}))
    lab = full(lender)
    lab.submit(run("guest", "else", 8, at=1, sponsors=["bank"]))
    lab.submit(run("own", "bank", 8, at=2))
    assert (lab.promised_at("guest"), lab.promised_at("own")) == (2 * HOUR, None)


def test_a_family_run_with_a_known_end_is_waited_for_only_until_it_can_be_recalled() -> None:
    lab = full()
    lab.submit(run("kin", "org:kin", 8, at=1, max_duration="5h"))
    lab.submit(run("own", "org:own", 8, at=2))
    assert lab.promised_at("own") == 2 * HOUR + NOTICE


def test_a_start_that_was_just_kept_is_counted_on_no_sooner_than_it_may_be_recalled() -> None:
    lab = Lab(nodes("nv-a", 2), *FAMILY)
    lab.submit(run("first", "org:own", 8, max_duration="2h"))
    lab.submit(run("kin", "org:kin", 8, at=1))
    lab.live(2 * HOUR)
    assert (lab["kin"].phase, lab["kin"].opportunistic_gpus) == ("Running", 0)
    lab.submit(run("own", "org:own", 8, at=2 * HOUR))
    assert lab.promised_at("own") == 2 * HOUR + SECOND, "there is place, and money from the next second on"
    lab.live(2 * HOUR + SECOND)
    assert (lab["own"].phase, lab["kin"].opportunistic_gpus) == ("Running", 8)
    assert not [line for line in lab.story if "CrowdedOut" in line]


def test_what_a_relative_holds_on_sufferance_comes_back_once_then_its_promise_does() -> None:
    lab = Lab(nodes("nv-a", 2), budget("rich", 64), *FAMILY)
    lab.submit(run("first", "rich", 8, max_duration="2h"))
    lab.submit(run("gang", "rich", 16, at=1, max_duration="1h"))
    lab.submit(run("passing", "org:kin", 8, at=2, checkpoint="30m"))
    assert (lab["passing"].provisional, lab.promised_at("passing")) == (True, 3 * HOUR)
    own = lab.world.budgets.envelopes["org-own", "main"]

    def back(at: int) -> int:
        instant = T0 + at
        back = recallable_charges(lab.world, [own], instant, ("ns", "own"), None)
        return sum(charge for end, charge in back if end > instant)

    assert [back(at) for at in (2 * HOUR, 3 * HOUR, 3 * HOUR + NOTICE)] == [8000, 0, 8000]
