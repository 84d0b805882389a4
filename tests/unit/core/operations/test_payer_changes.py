"""When a payer can pay no longer: another one pays (C7), or nobody does for a while (C8)."""

import pytest

from jobtree.api.schema.quantities import HOUR, MINUTE
from jobtree.core.funding.reserved_budget import available_beside_promises
from tests.unit.core.build import T0, budget, envelope, nodes, run
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
    assert lab["r"].opportunistic_gpus == 8
    lab.advance(3 * HOUR)
    assert lab.paid("r") == {"Owned org/later": 8}


def test_a_waiting_run_starts_when_a_window_opens() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", envelope(8, start=HOUR)))
    lab.submit(run("r", "org", 8))
    lab.sweep()
    assert lab.world.timers.next_instant() == T0 + HOUR
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
    assert (lab.phase("r"), lab["r"].opportunistic_gpus, lab.spares("r")) == ("Running", 8, 0)


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
        assert (lab["demoted"].opportunistic_gpus, lab.phase("waiting")) == (8, "Pending")
        lab.put(budget("org", envelope(8, "b")))
        lab.settle()
        older = "demoted" if demoted < waiting else "waiting"
        assert lab.paid(older) == {"Owned org/b": 8}
        assert lab["demoted"].opportunistic_gpus == (0 if older == "demoted" else 8)
        assert lab.phase("waiting") == ("Running" if older == "waiting" else "Pending")


def test_a_demoted_run_is_paid_lease_by_lease_as_far_as_money_goes() -> None:
    lab = Lab(nodes("nv-a", 2), budget("org", envelope(16, "a", end=HOUR)))
    lab.submit(run("r", "org", 16, group=8))
    lab.advance(HOUR)
    lab.put(budget("org", envelope(8, "b")))
    lab.settle()
    assert lab.paid("r") == {"Owned org/b": 8, "Opportunistic org/a": 8}


def test_provisional_work_may_not_take_what_was_promised_after_it_started() -> None:
    """It yields to promises made before it started, and to no others: those it would break (R6)."""
    money = budget("org", *(envelope(8, name) for name in ("a", "b", "c")))
    lab = Lab(nodes("nv-a", 2), budget("rich", 64), money)
    lab.submit(run("holds", "rich", 8, max_duration="2h"))
    lab.submit(run("big", "rich", 16, at=1, max_duration="1h"))
    lab.submit(run("goes", "org", 8, at=2, checkpoint="10m"))
    assert (lab.paid("goes"), lab["goes"].provisional) == ({"Owned org/a": 8}, True)
    lab.advance(MINUTE)
    lab.submit(run("later", "org", 16, at=MINUTE))
    assert ("org", "c") in dict(lab.promise("later").funding)
    assert available_beside_promises(lab.world, lab["goes"], lab.envelope("org", "c"), lab.world.now) == 0
