"""Unpaid work gives way to funded work (P7, C13), and families give back what they lent (C11)."""

import pytest

from jobtree.api.schema.quantities import HOUR, MINUTE, SECOND
from tests.unit.core.build import H100, T0, budget, cap, envelope, nodes, run
from tests.unit.core.lab import Lab

Widths = tuple[int, int, int]

POOR = budget("poor", 1)
RICH = budget("rich", 64)


def unpaid(lab: Lab, *names: str, gpus: int = 8, malleable: Widths | None = None) -> None:
    """Opportunistic Runs, one a second."""
    for name in names:
        created = lab.world.now - T0
        lab.submit(run(name, "poor", gpus, at=created, opportunistic=True, malleable=malleable))
        assert lab[name].opportunistic_gpus == gpus
        lab.world.advance_clock(lab.world.now + SECOND)


def funded(lab: Lab, gpus: int) -> None:
    lab.submit(run("rich", "rich", gpus, at=lab.world.now - T0))


# Reclaim


def test_free_slots_are_used_before_anything_is_reclaimed() -> None:
    lab = Lab(nodes("nv-a", 3), POOR, RICH)
    unpaid(lab, "a", "b")
    funded(lab, 8)
    assert (lab.phase("rich"), lab.phase("a"), lab.phase("b")) == ("Running", "Running", "Running")


def test_the_newest_unpaid_work_ends_first_and_no_more_than_needed() -> None:
    lab = Lab(nodes("nv-a", 3), POOR, RICH)
    unpaid(lab, "a", "b", "c")
    funded(lab, 16)
    assert (lab.phase("a"), lab.phase("b"), lab.phase("c")) == ("Running", "Pending", "Pending")
    assert lab.endings("c") == [("Reclaimed", 3 * SECOND)]


def test_what_was_taken_in_vain_is_given_back() -> None:
    lab = Lab(nodes("nv-a", 1), nodes("nv-b", 1, gpus=4), POOR, RICH)
    unpaid(lab, "big")
    unpaid(lab, "small", gpus=4)
    funded(lab, 8)
    assert (lab.phase("big"), lab.phase("small")) == ("Pending", "Running")
    assert lab.endings("small") == []


def test_nothing_is_taken_for_a_start_that_fails_all_the_same() -> None:
    lab = Lab(nodes("nv-a", 2), POOR, RICH)
    unpaid(lab, "a", "b")
    funded(lab, 24)
    assert (lab.phase("a"), lab.phase("b"), lab.phase("rich")) == ("Running", "Running", "Pending")
    lab.submit(run("unfunded", "poor", 8, at=9 * SECOND))
    assert (lab.phase("a"), lab.phase("b")) == ("Running", "Running")


def test_a_fixed_gang_queues_again_as_a_whole_with_its_old_creation_time() -> None:
    lab = Lab(nodes("nv-a", 3), POOR, RICH)
    unpaid(lab, "a", gpus=16)
    order = lab["a"].creation_order
    funded(lab, 16)
    assert (lab.phase("a"), lab["a"].width, lab["a"].creation_order) == ("Pending", 0, order)


def test_its_funded_part_goes_with_it() -> None:
    lab = Lab(nodes("nv-a", 2), budget("org", 16), RICH)
    lab.submit(run("gang", "org", 16, group=8))
    lab.put(budget("org", 8))
    lab.settle()
    assert (lab["gang"].width, lab["gang"].opportunistic_gpus) == (16, 8)
    funded(lab, 8)
    assert (lab.phase("gang"), lab.leases("gang")) == ("Pending", [])


def test_a_malleable_run_shrinks_a_step_and_keeps_its_pods() -> None:
    lab = Lab(nodes("nv-a", 3), POOR, RICH)
    unpaid(lab, "a", gpus=24, malleable=(8, 24, 8))
    kept = lab.on("a", "Opportunistic")
    funded(lab, 8)
    assert (lab.phase("a"), lab["a"].width, lab["a"].attempt) == ("Running", 16, 2)
    assert lab.on("a", "Opportunistic").items() <= kept.items()
    assert [lease.reason for lease in lab.leases("a")] == ["Continue"]
    assert lab.endings("a") == [("Reclaimed", SECOND)]


def test_it_shrinks_by_no_more_than_is_needed_and_never_below_its_minimum() -> None:
    for asked, width in ((8, 16), (16, 8), (24, 0)):
        lab = Lab(nodes("nv-a", 3), POOR, RICH)
        unpaid(lab, "a", gpus=24, malleable=(8, 24, 8))
        funded(lab, asked)
        assert (lab["rich"].width, lab["a"].width) == (asked, width)
        assert lab.phase("a") == ("Running" if width else "Pending")
        assert lab["a"].attempt == (2 if width else 1)


def test_a_grouped_malleable_run_gives_up_whole_groups_with_their_spares() -> None:
    lab = Lab(nodes("nv-a", 8), budget("org", 64), RICH)
    lab.submit(run("g", "org", 32, group=8, spares=1, malleable=(16, 32, 16)))
    lab.put(budget("org", 35))  # its newest spare is dropped, and its newest group demoted
    lab.settle()
    assert (lab["g"].opportunistic_gpus, lab.spares("g")) == (8, 24)
    funded(lab, 16)
    assert [(lease.group, lease.role) for lease in lab.leases("g")] == [
        (0, "Active"),
        (0, "Spare"),
        (1, "Active"),
        (1, "Spare"),
    ]


def test_a_grouped_malleable_run_may_shrink_to_its_very_minimum() -> None:
    lab = Lab(nodes("nv-a", 3), budget("org", 24), RICH)
    lab.submit(run("g", "org", 24, group=8, malleable=(16, 32, 8)))
    lab.put(budget("org", 16))
    lab.settle()
    funded(lab, 8)
    assert (lab["g"].width, lab["g"].attempt, lab.endings("g")[-1]) == (16, 1, ("Reclaimed", 0))


def test_at_its_minimum_a_grouped_malleable_run_queues_again() -> None:
    lab = Lab(nodes("nv-a", 2), budget("org", 16), RICH)
    lab.submit(run("g", "org", 16, group=8, malleable=(16, 32, 8)))
    lab.put(budget("org", 8))
    lab.settle()
    assert lab["g"].opportunistic_gpus == 8
    funded(lab, 8)
    assert (lab.phase("g"), lab.phase("rich")) == ("Pending", "Running")


def test_a_spares_tenant_is_not_reclaimed_in_vain() -> None:
    lab = Lab(nodes("nv-a", 2), budget("org", 10), POOR, RICH)
    lab.submit(run("holder", "org", 8, spares=1))
    unpaid(lab, "tenant")
    funded(lab, 8)
    assert (lab.phase("rich"), lab.phase("tenant"), lab.spares("holder")) == ("Pending", "Running", 8)


# Recall


def lent(*parents: int, children: int = 1) -> Lab:
    """A parent whose envelope pays for its children, one a second."""
    envelopes = [envelope(gpus, f"e{number}") for number, gpus in enumerate(parents)]
    lab = Lab(nodes("nv-a", 8), budget("org", *envelopes), budget("org:c"), budget("lab", 64))
    for number in range(children):
        lab.submit(run(f"c{number}", "org:c", 8, at=number * SECOND))
        lab.world.advance_clock(lab.world.now + SECOND)
    return lab


def parent_starts(lab: Lab, gpus: int) -> None:
    lab.submit(run("p", "org", gpus, at=lab.world.now - T0))


def test_the_newest_loans_are_recalled_as_many_as_needed() -> None:
    lab = lent(24, children=3)
    parent_starts(lab, 16)
    assert lab.paid("p") == {"Owned org/e0": 16}
    assert [lab[f"c{n}"].opportunistic_gpus for n in range(3)] == [0, 8, 8]
    assert lab.endings("c2") == [("Recalled", 3 * SECOND)]


@pytest.mark.parametrize(("gpus", "unpaid"), [(8, 8), (16, 16), (24, 24)])
def test_of_a_wide_lease_only_as_many_pods_are_recalled_as_needed(gpus: int, unpaid: int) -> None:
    """C11: a relative has one lease of three pods; its last pods are demoted, and the others stay paid."""
    lab = Lab(nodes("nv-a", 6), budget("org", 24), budget("org:c"))
    lab.submit(run("wide", "org:c", 24))
    parent_starts(lab, gpus)
    assert lab.paid("p") == {"Owned org/main": gpus}
    assert (lab.phase("wide"), lab["wide"].opportunistic_gpus) == ("Running", unpaid)
    assert lab.paid("wide").get("Shared org/main", 0) == 24 - unpaid


def test_the_rest_of_a_lease_is_recalled_where_that_makes_the_room() -> None:
    """The owner lacks 4 GPUs of budget, and a node: the pods of 4 leave it only if all of them go."""
    lab = Lab(nodes("nv-a", 2), budget("org", 12), budget("org:c"), budget("lab", 8))
    lab.submit(run("full", "lab", 8))
    lab.submit(run("small", "org:c", 8, at=1, per_pod=4))
    lab.world.advance_clock(lab.world.now + SECOND)
    parent_starts(lab, 8)
    lab.live(SECOND + 5 * MINUTE)
    assert (lab.paid("p"), lab.phase("small")) == ({"Owned org/main": 8}, "Pending")


def test_money_that_is_not_lent_is_used_first() -> None:
    lab = lent(24, children=2)
    parent_starts(lab, 8)
    assert [lab[f"c{n}"].opportunistic_gpus for n in range(2)] == [0, 0]


def test_an_owners_other_envelope_is_not_elsewhere() -> None:
    lab = lent(8, 8, children=1)
    parent_starts(lab, 16)
    assert (lab.paid("p"), lab["c0"].opportunistic_gpus) == ({"Owned org/e0": 8, "Owned org/e1": 8}, 8)


def test_a_recalled_run_is_paid_elsewhere_if_possible() -> None:
    lab = lent(8, children=1)
    lab.put(budget("org:c", 8))
    parent_starts(lab, 8)
    assert (lab.paid("c0"), lab.leases("c0")[0].reason) == ({"Owned org-c/main": 8}, "Repay")


def test_nothing_is_recalled_for_a_start_that_fails_all_the_same() -> None:
    lab = lent(8, children=1)
    parent_starts(lab, 16)
    assert (lab.phase("p"), lab.paid("c0")) == ("Pending", {"Shared org/e0": 8})


def test_nothing_is_recalled_where_only_room_is_missing() -> None:
    lab = lent(16, children=1)
    lab.submit(run("full", "lab", 56, at=2 * SECOND))
    parent_starts(lab, 8)
    assert (lab.phase("p"), lab.paid("c0")) == ("Pending", {"Shared org/e0": 8})


def test_what_would_be_demoted_is_stopped_by_that_same_start_after_a_notice() -> None:
    lab = lent(8, children=1)
    lab.submit(run("full", "lab", 56, at=2 * SECOND))
    parent_starts(lab, 8)
    assert (lab.phase("p"), lab.paid("c0")) == ("Pending", {"Shared org/e0": 8})
    at = lab.promised_at("p")
    assert at is not None
    lab.live(at)
    assert (lab.phase("p"), lab.phase("c0")) == ("Running", "Pending")
    assert lab.endings("c0") == [("Recalled", at)]


def test_money_lent_to_a_sponsored_run_is_a_contract() -> None:
    lender = budget("bank", envelope(8, lending={"allow": True, "to": ["*"]}))
    lab = Lab(nodes("nv-a", 2), lender)
    lab.submit(run("guest", "elsewhere", 8, sponsors=["bank"]))
    lab.submit(run("own", "bank", 8, at=1))
    assert (lab.paid("guest"), lab.phase("own")) == ({"Borrowed bank/main": 8}, "Pending")


def test_a_relative_does_not_recall_what_another_relative_lent() -> None:
    lab = lent(8, children=1)
    lab.put(budget("org:d"))
    lab.submit(run("d", "org:d", 8, at=2 * SECOND))
    assert (lab.phase("d"), lab.paid("c0")) == ("Pending", {"Shared org/e0": 8})


def test_a_pod_that_two_half_empty_envelopes_cannot_pay_recalls_the_owners_own() -> None:
    lab = Lab(nodes("nv-a", 3), budget("org", 4), budget("org:p", 8), budget("org:p:c"))
    lab.submit(run("c", "org:p:c", 4))
    lab.submit(run("p", "org:p", 8, at=1))
    assert (lab.paid("p"), lab.paid("c")) == ({"Owned org-p/main": 8}, {"Shared org/main": 4})


def test_hours_that_a_relative_has_used_do_not_come_back() -> None:
    lab = Lab(nodes("nv-a", 2), budget("org", envelope(8, maxGPUHours=16)), budget("org:c"))
    lab.submit(run("c", "org:c", 8))
    lab.advance(HOUR + HOUR // 2)
    parent_starts(lab, 8)
    assert (lab.phase("p"), lab.paid("c")) == ("Pending", {"Shared org/main": 8})


def test_a_cap_that_relatives_fill_is_recalled_too() -> None:
    caps = [cap("both", "a", "b", flavor=H100, maxConcurrency=8)]
    parent = budget("org", envelope(8, "a"), envelope(8, "b"), caps=caps)
    lab = Lab(nodes("nv-a", 2), parent, budget("org:c"))
    lab.submit(run("c", "org:c", 8))
    parent_starts(lab, 8)
    assert (lab.paid("p"), lab["c"].opportunistic_gpus) == ({"Owned org/a": 8}, 8)


def test_half_of_a_run_is_unpaid_and_nobody_ends_it_for_the_money_of_the_other_half() -> None:
    """There is place for the newcomer: what it lacks is money, and nobody gives way for that (I12)."""
    lab = Lab(nodes("nv-a", 3), budget("org", 16))
    lab.submit(run("older", "org", 16, group=8))
    lab.put(budget("org", 8))
    lab.settle()
    assert (lab["older"].width, lab["older"].opportunistic_gpus) == (16, 8)
    lab.submit(run("younger", "org", 8, at=1))
    assert (lab["older"].phase, lab["younger"].phase) == ("Running", "Reserved")
