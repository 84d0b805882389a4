"""The scenarios of SCENARIOS.md that need no reservation, growth or failure, driven on the core alone."""

import pytest

from jobtree.api.schema.problems import InputError
from jobtree.api.schema.quantities import HOUR, SECOND
from jobtree.core.accounts.envelope_accounts import GPU_HOUR
from tests.unit.core.build import T0, budget, envelope, nodes, run
from tests.unit.core.lab import Lab

DAY_WEEK = 7 * 24 * HOUR


def two_domains(concurrency: int) -> Lab:
    return Lab(nodes("nv-a", 16), nodes("nv-b", 16), budget("org:ai:rai:sys", concurrency))


def test_1_a_first_run_starts_at_once_on_one_node_with_one_owned_lease() -> None:
    lab = two_domains(128)
    lab.submit(run("resnet-small", "org:ai:rai:sys", 8))
    (lease,) = lab.leases("resnet-small")
    assert (lab.phase("resnet-small"), lease.class_, lease.role, lease.reason) == (
        "Running",
        "Owned",
        "Active",
        "Start",
    )
    assert lease.slots == (("nv-a-00", 0xFF),)
    assert lease.start == T0


def test_1_a_second_run_goes_to_the_same_domain() -> None:
    lab = two_domains(128)
    lab.submit(run("first", "org:ai:rai:sys", 8))
    lab.submit(run("second", "org:ai:rai:sys", 8))
    assert lab.domains("first") == lab.domains("second") == {0: {"nv-a"}}


def trainer(lab: Lab) -> None:
    lab.submit(
        run(
            "trainer-128",
            "org:ai:rai:sys",
            128,
            group=32,
            spares=1,
            malleable=(96, 160, 32),
            checkpoint="30m",
        )
    )


def test_2_each_group_takes_four_nodes_and_a_spare_node_three_groups_in_one_domain() -> None:
    lab = two_domains(167)
    trainer(lab)
    assert lab["trainer-128"].pod_size == 8
    assert sorted(where for (where,) in lab.domains("trainer-128").values()) == ["nv-a"] * 3 + ["nv-b"]
    for group in range(4):
        roles = [
            (lease.role, lease.gpus, len(lease.slots))
            for lease in lab.leases("trainer-128")
            if lease.group == group
        ]
        assert roles == [("Active", 32, 4), ("Spare", 8, 1)]


def test_2_a_spare_costs_a_quarter() -> None:
    lab = two_domains(167)
    trainer(lab)
    assert lab.envelope("org-ai-rai-sys").account.charge == 136_000


def cofunded(own: int, max_borrow: int) -> Lab:
    lending = {"allow": True, "to": ["org:ai:*"], "maxConcurrency": 64}
    lab = Lab(
        nodes("nv-a", 16),
        budget("org:ai:rai", own),
        budget("org:ai:mm:vision", envelope(64, sharing="none", lending=lending)),
    )
    lab.submit(run("big", "org:ai:rai", 128, group=32, sponsors=["org:ai:mm:vision"], max_borrow=max_borrow))
    return lab


def test_4_a_cofunded_run_is_paid_by_both_and_no_lease_has_two_payers() -> None:
    lab = cofunded(own=96, max_borrow=32)
    assert lab.paid("big") == {"Owned org-ai-rai/main": 96, "Borrowed org-ai-mm-vision/main": 32}
    assert [(lease.group, lease.gpus) for lease in lab.leases("big")] == [(0, 32), (1, 32), (2, 32), (3, 32)]


def test_4_beyond_its_borrowing_limit_it_waits_and_says_so() -> None:
    lab = cofunded(own=64, max_borrow=8)
    assert lab.phase("big") == "Pending"
    assert lab["big"].verdict is not None
    assert lab["big"].verdict.reason == "BorrowLimit"
    assert (lab.whys("big")[-1].have, lab.whys("big")[-1].need) == (8, 64)


def family() -> Lab:
    """Scenario 8 up to the moment when C runs on its parent's money."""
    lab = Lab(nodes("nv-a", 2), budget("org:p", 8), budget("org:p:c"), budget("org:x", 8))
    lab.submit(run("c", "org:p:c", 8))
    assert lab.paid("c") == {"Shared org-p/main": 8}
    return lab


def test_8_a_parents_start_recalls_its_money_and_the_child_keeps_its_gpus_unpaid() -> None:
    lab = family()
    held = lab.on("c")
    lab.world.advance_clock(T0 + SECOND)
    lab.submit(run("p", "org:p", 8, at=SECOND))
    assert lab.paid("p") == {"Owned org-p/main": 8}
    assert lab.endings("c") == [("Recalled", SECOND)]
    assert lab.on("c", "Opportunistic") == held
    assert [lease.reason for lease in lab.leases("c")] == ["Demote"]
    assert (lab.phase("c"), lab["c"].attempt) == ("Running", 1)


def test_8_funded_work_reclaims_the_demoted_run_and_freed_money_brings_it_back() -> None:
    lab = family()
    lab.submit(run("p", "org:p", 8, at=SECOND))
    lab.world.advance_clock(T0 + 2 * SECOND)
    lab.submit(run("x", "org:x", 8, at=2 * SECOND))
    assert lab.endings("c")[-1] == ("Reclaimed", 2 * SECOND)
    assert (lab.phase("c"), lab.phase("x")) == ("Pending", "Running")
    lab.world.advance_clock(T0 + 3 * SECOND)
    lab.finish("p")
    assert lab.paid("c") == {"Shared org-p/main": 8}
    assert (lab.phase("p"), lab.phase("c"), lab.phase("x")) == ("Completed", "Running", "Running")


def hours(max_duration: str | None = None) -> Lab:
    lab = Lab(nodes("nv-a", 1), budget("org:h", envelope(4, maxGPUHours=8)))
    lab.submit(run("h", "org:h", 4, max_duration=max_duration))
    return lab


@pytest.mark.parametrize("noticed", [2 * HOUR, 2 * HOUR + 1, 5 * HOUR, 200 * HOUR])
def test_9_hours_end_at_their_exact_instant_however_late_it_is_noticed(noticed: int) -> None:
    lab = hours()
    assert lab.world.timers.next_instant() == T0 + 2 * HOUR
    lab.advance(noticed)
    assert lab.endings("h") == [("BudgetExhausted", 2 * HOUR)]
    (lease,) = lab.leases("h")
    assert (lease.role, lease.start - T0) == ("Opportunistic", 2 * HOUR)
    assert lab.envelope("org-h").account.used(lab.world.now) == 8 * GPU_HOUR


def test_9_before_that_instant_nothing_ends() -> None:
    lab = hours()
    lab.advance(2 * HOUR - 1)
    assert lab.paid("h") == {"Owned org-h/main": 4}


def test_9_a_run_that_declares_more_than_the_hours_is_not_admitted() -> None:
    lab = hours(max_duration="3h")
    assert (lab.phase("h"), lab.reasons("h")) == ("Pending", ["HoursExhausted"])


def test_9_hours_that_no_window_could_use_are_refused_with_the_budget() -> None:
    with pytest.raises(InputError, match="maxGPUHours"):
        budget("org:h", envelope(4, maxGPUHours=10_000, start=0, end=DAY_WEEK))
