"""When a payer can pay no longer: another one pays (C7), or nobody does for a while (C8); and cuts (C10)."""

import pytest

from jobtree.api.policy import Policy
from jobtree.api.quantities import HOUR, MINUTE
from jobtree.core.books import GPU_HOUR
from tests.unit.core.build import H100, T0, budget, cap, envelope, node, nodes, run
from tests.unit.core.lab import Lab

CLOSES = envelope(8, "closes", end=2 * HOUR)


@pytest.mark.parametrize("noticed", [2 * HOUR, 2 * HOUR + 1, 7 * HOUR])
def test_when_a_window_closes_another_pays_from_that_very_instant(noticed: int) -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", CLOSES, envelope(8, "stays")))
    lab.submit(run("r", "org", 8))
    assert lab.paid("r") == {"Owned org/closes": 8}
    slots = lab.leases("r")[0].slots
    lab.advance(noticed)
    (lease,) = lab.leases("r")
    assert (lease.payer, lease.reason, lease.slots, lease.start - T0) == (
        ("org", "stays"),
        "Repay",
        slots,
        2 * HOUR,
    )
    assert lab.endings("r") == [("WindowClosed", 2 * HOUR)]
    assert (lab["r"].attempt, lab["r"].since) == (1, T0)


def test_before_it_closes_nothing_changes() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", CLOSES, envelope(8, "stays")))
    lab.submit(run("r", "org", 8))
    assert lab.advance(2 * HOUR - 1).actions == ()


def test_the_next_payers_are_asked_in_the_usual_order_and_may_be_several() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org:x", CLOSES, envelope(4, "own")), budget("org", 64))
    lab.submit(run("r", "org:x", 8, per_pod=2))
    lab.advance(2 * HOUR)
    assert lab.paid("r") == {"Owned org-x/own": 4, "Shared org/main": 4}


def test_with_a_payer_for_only_a_part_the_whole_lease_is_demoted() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", CLOSES, envelope(4, "half")))
    lab.submit(run("r", "org", 8, per_pod=2))
    lab.advance(2 * HOUR)
    assert lab.paid("r") == {"Opportunistic org/closes": 8}


def test_one_window_after_another_is_noticed_late_and_each_ends_at_its_instant() -> None:
    steps = [envelope(8, f"e{hour}", end=hour * HOUR) for hour in (1, 2, 3)]
    lab = Lab(nodes("nv-a", 1), budget("org", *steps))
    lab.submit(run("r", "org", 8))
    lab.advance(9 * HOUR)
    assert lab.endings("r") == [("WindowClosed", hour * HOUR) for hour in (1, 2, 3)]
    assert [lease.start - T0 for lease in lab.leases("r")] == [3 * HOUR]


def test_a_window_that_is_not_open_yet_does_not_pay() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", CLOSES, envelope(8, "later", start=3 * HOUR)))
    lab.submit(run("r", "org", 8))
    lab.advance(2 * HOUR)
    assert lab["r"].unpaid == 8
    lab.advance(3 * HOUR)
    assert lab.paid("r") == {"Owned org/later": 8}


def test_a_waiting_run_starts_when_a_window_opens() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", envelope(8, start=HOUR)))
    lab.submit(run("r", "org", 8))
    assert lab.world.alarms.first() == T0 + HOUR
    lab.advance(HOUR)
    assert lab.phase("r") == "Running"


def test_nobody_is_killed_when_nobody_can_pay() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", CLOSES))
    lab.submit(run("r", "org", 8))
    before = lab.on("r")
    lab.advance(2 * HOUR)
    (lease,) = lab.leases("r")
    assert (lease.class_, lease.role, lease.rate, lease.reason) == (
        "Opportunistic",
        "Opportunistic",
        0,
        "Demote",
    )
    assert (lab.on("r", "Opportunistic"), lab.phase("r"), lab.reasons("r")) == (
        before,
        "Running",
        ["Demoted"],
    )


def test_a_spare_that_nobody_pays_for_is_dropped() -> None:
    lab = Lab(nodes("nv-a", 2), budget("org", envelope(10, end=HOUR)))
    lab.submit(run("r", "org", 8, spares=1))
    lab.advance(HOUR)
    assert (lab.phase("r"), lab["r"].unpaid, lab.spares("r")) == ("Running", 8, 0)


def test_a_spare_is_repaid_at_its_own_rate() -> None:
    lab = Lab(nodes("nv-a", 2), budget("org", envelope(10, "e", end=HOUR), envelope(10, "f")))
    lab.submit(run("r", "org", 8, spares=1))
    lab.advance(HOUR)
    assert (lab.spares("r"), lab.envelope("org", "f").account.charge) == (8, 10_000)


# Back again, in one order


def test_demoted_and_waiting_runs_compete_for_money_by_creation() -> None:
    for demoted, waiting in ((0, 1), (1, 0)):
        lab = Lab(nodes("nv-a", 3), budget("org", envelope(8, "a", end=HOUR)), budget("lab", 8))
        lab.submit(run("demoted", "org", 8, at=demoted))
        lab.advance(HOUR)
        lab.submit(run("waiting", "org", 8, at=waiting))
        assert (lab["demoted"].unpaid, lab.phase("waiting")) == (8, "Pending")
        lab.put(budget("org", envelope(8, "b")))
        lab.settle()
        older = "demoted" if demoted < waiting else "waiting"
        assert lab.paid(older) == {"Owned org/b": 8}
        assert lab["demoted"].unpaid == (0 if older == "demoted" else 8)
        assert lab.phase("waiting") == ("Running" if older == "waiting" else "Pending")


def test_a_demoted_run_is_paid_lease_by_lease_as_far_as_money_goes() -> None:
    lab = Lab(nodes("nv-a", 2), budget("org", envelope(16, "a", end=HOUR)))
    lab.submit(run("r", "org", 16, group=8))
    lab.advance(HOUR)
    lab.put(budget("org", envelope(8, "b")))
    lab.settle()
    assert lab.paid("r") == {"Owned org/b": 8, "Opportunistic org/a": 8}


# What an edited budget no longer pays for


def three_runs() -> Lab:
    lab = Lab(nodes("nv-a", 4), budget("org", 24))
    for number in range(3):
        lab.world.tick(T0 + number * MINUTE)
        lab.submit(run(f"r{number}", "org", 8, at=number * MINUTE))
    lab.world.tick(T0 + HOUR)
    return lab


@pytest.mark.parametrize(
    ("gpus", "unpaid"), [(24, [0, 0, 0]), (23, [0, 0, 8]), (16, [0, 0, 8]), (8, [0, 8, 8]), (7, [8, 8, 8])]
)
def test_of_a_cut_budget_the_newest_leases_are_demoted(gpus: int, unpaid: list[int]) -> None:
    lab = three_runs()
    lab.put(budget("org", gpus))
    lab.settle()
    assert [lab[f"r{number}"].unpaid for number in range(3)] == unpaid
    assert [lab.phase(f"r{number}") for number in range(3)] == ["Running"] * 3


def test_the_excess_is_paid_elsewhere_if_possible() -> None:
    lab = three_runs()
    lab.put(budget("org", envelope(8), envelope(8, "more")))
    lab.settle()
    assert [list(lab.paid(f"r{number}")) for number in range(3)] == [
        ["Owned org/main"],
        ["Opportunistic org/main"],
        ["Owned org/more"],
    ]


def test_an_envelope_that_is_removed_pays_no_more_and_nobody_is_killed() -> None:
    lab = three_runs()
    lab.put(budget("org", envelope(16, "other")))
    lab.settle()
    assert [lab[f"r{number}"].unpaid for number in range(3)] == [8, 0, 0]
    assert lab.envelope("org").account.charge == 0
    assert [lab.phase(f"r{number}") for number in range(3)] == ["Running"] * 3


def test_a_budget_that_is_deleted_demotes_all_it_paid_for() -> None:
    lab = three_runs()
    used = lab.envelope("org").account.used(lab.world.now)
    lab.world.drop_budget("org")
    lab.settle()
    assert [lab[f"r{number}"].unpaid for number in range(3)] == [8, 8, 8]
    assert lab.envelope("org").account.used(lab.world.now) == used
    lab.put(budget("org", 24))
    lab.settle()
    assert [lab[f"r{number}"].unpaid for number in range(3)] == [0, 0, 0]
    assert lab.envelope("org").account.used(lab.world.now) == used


def test_a_budget_that_is_deleted_has_no_family_any_more() -> None:
    lab = Lab(nodes("nv-a", 2), budget("org"), budget("org:x"), budget("org:y", 8))
    lab.world.drop_budget("org")
    lab.submit(run("r", "org:x", 8))
    assert lab.reasons("r") == ["NoEnvelope"]
    lab.put(budget("org"))
    lab.settle()
    assert lab.paid("r") == {"Shared org-y/main": 8}


def test_a_cut_cap_or_lending_limit_counts_like_a_cut_envelope() -> None:
    lab = three_runs()
    lab.put(budget("org", 24, caps=[cap("c", "main", flavor=H100, maxConcurrency=16)]))
    lab.settle()
    assert [lab[f"r{number}"].unpaid for number in range(3)] == [0, 0, 8]

    lending = {"allow": True, "to": ["*"]}
    lab = Lab(nodes("nv-a", 2), budget("bank", envelope(16, lending=lending)))
    lab.submit(run("guest", "x", 8, sponsors=["bank"]), run("own", "bank", 8, at=1))
    lab.put(budget("bank", envelope(16, lending={**lending, "maxConcurrency": 4})))
    lab.settle()
    assert (lab["guest"].unpaid, lab["own"].unpaid) == (8, 0)


def test_hours_that_are_cut_below_what_is_used_end_at_the_edit_not_before() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", envelope(8, maxGPUHours=100)))
    lab.submit(run("r", "org", 8))
    lab.advance(5 * HOUR)
    lab.put(budget("org", envelope(8, maxGPUHours=8)))
    lab.settle()
    assert lab.endings("r") == [("BudgetExhausted", 5 * HOUR)]
    assert lab.envelope("org").account.used(lab.world.now) == 40 * GPU_HOUR


def test_so_do_the_hours_of_a_cap() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", 8, caps=[cap("c", "main", flavor=H100, maxGPUHours=100)]))
    lab.submit(run("r", "org", 8))
    lab.advance(5 * HOUR)
    lab.put(budget("org", 8, caps=[cap("c", "main", flavor=H100, maxGPUHours=8)]))
    lab.settle()
    assert lab.endings("r") == [("BudgetExhausted", 5 * HOUR)]


def test_a_window_that_is_moved_into_the_future_does_not_pay_until_then() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", envelope(8, maxGPUHours=8)))
    lab.submit(run("r", "org", 8))
    lab.put(budget("org", envelope(8, maxGPUHours=8, start=2 * HOUR)))
    lab.settle()
    assert lab["r"].unpaid == 8
    lab.advance(2 * HOUR)
    assert lab.paid("r") == {"Owned org/main": 8}


def test_a_price_that_rises_ends_leases_when_it_does_not_before() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", envelope(8, maxCredits=80)))
    lab.submit(run("r", "org", 8))
    lab.advance(5 * HOUR)
    lab.world.set_policy(Policy(prices_milli={H100: 8000}))
    lab.settle()
    assert lab.endings("r") == [("BudgetExhausted", 5 * HOUR)]


def test_a_budget_put_again_unchanged_changes_nothing() -> None:
    lab = three_runs()
    lab.put(budget("org", 24))
    assert lab.settle().actions == ()


def test_a_demoted_runs_payer_is_the_first_that_matches_its_place() -> None:
    lab = Lab(node("n"), budget("org:x", envelope(8, end=HOUR)), budget("org", envelope(8, start=9 * HOUR)))
    lab.submit(run("r", "org:x", 8))
    lab.put(budget("org:x", envelope(4, selector={"region": "eu"})))
    lab.settle()
    assert lab.paid("r") == {"Opportunistic org/main": 8}
