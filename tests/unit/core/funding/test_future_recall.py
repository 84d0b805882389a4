"""A promise to an owner's own Run counts on what can be recalled from the family (C11, R3)."""

from jobtree.api.schema.quantities import HOUR, MINUTE, SECOND
from jobtree.core.funding.future_recall import recallable_charges
from tests.unit.core.build import H100, T0, budget, cap, envelope, nodes, run
from tests.unit.core.lab import Lab

NOTICE = 30 * MINUTE  # after its start, a promise to the family cannot be recalled for so long
FAMILY = (budget("org"), budget("org:own", 8), budget("org:kin"))


def full(*budgets: object) -> Lab:
    """Two nodes, in use for two hours."""
    lab = Lab(nodes("nv-a", 2), budget("rich", 64), *(budgets or FAMILY))  # type: ignore[arg-type]
    lab.submit(run("full", "rich", 16, max_duration="2h"))
    return lab


def test_own_run_gets_the_date_of_an_open_ended_promise_to_a_sibling() -> None:
    """C14: the sibling loses its date, since the owner's Run has no known end."""
    lab = full()
    lab.submit(run("kin", "org:kin", 8, at=1))
    assert lab.promised_at("kin") == 2 * HOUR
    lab.submit(run("own", "org:own", 8, at=2))
    assert (lab.promised_at("kin"), lab.promised_at("own")) == (None, 2 * HOUR)
    assert [slip.reason for slip in lab.promise("kin").slips] == ["OwnerNeeds"]
    lab.live(2 * HOUR)
    assert (lab.phase("kin"), lab.paid("own")) == ("Pending", {"Owned org-own/main": 8})


def test_own_run_starts_after_a_notice_when_the_family_uses_all_its_budget() -> None:
    lab = Lab(nodes("nv-a", 3), budget("rich", 64), *FAMILY)
    lab.submit(run("kin", "org:kin", 8))
    lab.submit(run("full", "rich", 16, at=1, max_duration="2h"))
    lab.submit(run("own", "org:own", 8, at=2))
    assert (lab.phase("kin"), lab.promised_at("own")) == ("Running", 5 * MINUTE)
    assert lab.remedies("own") == [("Recall", 8, ["kin"])]
    lab.live(5 * MINUTE)
    assert (lab.phase("kin"), lab.paid("own")) == ("Pending", {"Owned org-own/main": 8})


def test_own_run_gets_a_date_when_the_family_is_promised_all_of_a_cap() -> None:
    caps = [cap("both", "a", "b", flavor=H100, maxConcurrency=8)]
    owner = budget("org:own", envelope(8, "a"), envelope(8, "b"), caps=caps)
    lab = full(budget("org"), owner, budget("org:kin"))
    lab.submit(run("kin", "org:kin", 8, at=1))
    lab.submit(run("own", "org:own", 8, at=2))
    assert (lab.promised_at("kin"), lab.promised_at("own")) == (None, 2 * HOUR)
    lab.live(2 * HOUR)
    assert (lab.phase("kin"), lab.phase("own")) == ("Pending", "Running")


def test_relative_gets_no_date_from_charges_of_another_relative() -> None:
    lab = full(*FAMILY, budget("org:third"))
    lab.submit(run("kin", "org:kin", 8, at=1))
    lab.submit(run("third", "org:third", 8, at=2))
    assert (lab.promised_at("kin"), lab.promised_at("third")) == (2 * HOUR, None)


def test_own_run_gets_no_date_from_borrowed_charges() -> None:
    lender = budget("bank", envelope(8, lending={"allow": True, "to": ["*"]}))
    lab = full(lender)
    lab.submit(run("guest", "else", 8, at=1, sponsors=["bank"]))
    lab.submit(run("own", "bank", 8, at=2))
    assert (lab.promised_at("guest"), lab.promised_at("own")) == (2 * HOUR, None)


def test_promise_to_the_family_moves_behind_the_owners_run() -> None:
    lab = full()
    lab.submit(run("kin", "org:kin", 8, at=1, max_duration="5h"))
    lab.submit(run("own", "org:own", 8, at=2, max_duration="3h"))
    assert (lab.promised_at("kin"), lab.promised_at("own")) == (5 * HOUR, 2 * HOUR)


def test_own_run_gets_its_date_a_second_after_a_promised_start_of_the_family() -> None:
    lab = Lab(nodes("nv-a", 2), *FAMILY)
    lab.submit(run("first", "org:own", 8, max_duration="2h"))
    lab.submit(run("kin", "org:kin", 8, at=1))
    lab.live(2 * HOUR)
    assert (lab["kin"].phase, lab["kin"].opportunistic_gpus) == ("Running", 0)
    lab.submit(run("own", "org:own", 8, at=2 * HOUR))
    assert lab.promised_at("own") == 2 * HOUR + SECOND, "a second after the promised start"
    lab.live(2 * HOUR + SECOND)
    assert (lab["own"].phase, lab["kin"].opportunistic_gpus) == ("Running", 8)
    assert not [line for line in lab.story if "CrowdedOut" in line]


def test_interim_charge_of_a_relative_and_then_its_promise_can_be_recalled() -> None:
    lab = Lab(nodes("nv-a", 2), budget("rich", 64), *FAMILY)
    lab.submit(run("first", "rich", 8, max_duration="2h"))
    lab.submit(run("gang", "rich", 16, at=1, max_duration="1h"))
    lab.submit(run("interim", "org:kin", 8, at=2, checkpoint="30m"))
    assert (lab["interim"].provisional, lab.promised_at("interim")) == (True, 3 * HOUR)
    own = lab.world.budgets.envelopes["org-own", "main"]

    def recallable(at: int) -> int:
        instant = T0 + at
        charges = recallable_charges(lab.world, [own], instant, ("ns", "own"), None)
        return sum(charge for end, charge in charges if end > instant)

    assert [recallable(at) for at in (2 * HOUR, 3 * HOUR, 3 * HOUR + NOTICE)] == [8000, 0, 8000]
