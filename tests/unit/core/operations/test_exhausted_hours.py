"""GPU-hours and credits end leases at exact instants, without overdraft (C5, C7)."""

from typing import Any

import pytest

from jobtree.api.kinds.budget import Budget
from jobtree.api.kinds.policy import Policy
from jobtree.api.schema.quantities import HOUR, MINUTE, SECOND
from jobtree.core.accounts.envelope_accounts import GPU_HOUR
from tests.unit.core.build import H100, T0, budget, cap, envelope, node, nodes, run
from tests.unit.core.lab import Lab

EIGHT_HOURS = budget("org", envelope(8, maxGPUHours=8))


def used(lab: Lab, name: str = "org") -> int:
    return lab.envelope(name).account.used(lab.world.now)


def test_two_runs_share_the_hours_and_end_together() -> None:
    lab = Lab(nodes("nv-a", 1), EIGHT_HOURS)
    lab.submit(run("a", "org", 2))
    lab.advance(HOUR)
    lab.submit(run("b", "org", 4, at=HOUR))
    lab.advance(9 * HOUR)
    assert lab.endings("a") == lab.endings("b") == [("BudgetExhausted", 2 * HOUR)]
    assert used(lab) == 8 * GPU_HOUR


def test_hours_are_never_overdrawn_not_even_by_a_millisecond() -> None:
    lab = Lab(nodes("nv-a", 1), EIGHT_HOURS)
    lab.submit(run("r", "org", 7))
    lab.advance(3 * HOUR)
    ((_, end),) = lab.endings("r")
    assert end == 8 * HOUR // 7
    assert used(lab) <= 8 * GPU_HOUR < used(lab) + 7 * 1000


@pytest.mark.parametrize(
    "what", ["finish", "fail", "cancel", "node", "edit"], ids="overtaken by its {0}".format
)
def test_what_happens_after_the_hours_ran_out_does_not_make_them_last_longer(what: str) -> None:
    lab = Lab(nodes("nv-a", 1), EIGHT_HOURS)
    lab.submit(run("r", "org", 4))
    lab.world.advance_clock(T0 + 5 * HOUR)
    if what in ("finish", "fail"):
        lab.finish("r", succeeded=what == "finish")
    elif what == "cancel":
        lab.world.drop_run(("ns", "r"))
    elif what == "node":
        lab.put(node("nv-a-00", failed=True))
    else:
        lab.settle()
        lab.put(budget("org", envelope(8, maxGPUHours=9)))
    lab.settle()
    assert lab.endings("r")[0] == ("BudgetExhausted", 2 * HOUR)
    assert used(lab) == 8 * GPU_HOUR


def test_more_hours_bring_a_demoted_run_back() -> None:
    lab = Lab(nodes("nv-a", 1), EIGHT_HOURS)
    lab.submit(run("r", "org", 4))
    lab.advance(3 * HOUR)
    lab.put(budget("org", envelope(8, maxGPUHours=16)))
    lab.settle()
    assert lab.paid("r") == {"Owned org/main": 4}
    lab.advance(9 * HOUR)
    assert lab.endings("r")[-1] == ("BudgetExhausted", 5 * HOUR)


def test_a_declared_run_is_never_ended_for_hours() -> None:
    lab = Lab(nodes("nv-a", 1), EIGHT_HOURS)
    lab.submit(run("declared", "org", 2, max_duration="3h"))
    lab.submit(run("open", "org", 2, at=1))
    lab.advance(90 * MINUTE)
    assert lab.endings("open") == [("BudgetExhausted", HOUR)]
    assert lab.paid("declared") == {"Owned org/main": 2}
    lab.advance(3 * HOUR)
    assert (lab.phase("declared"), used(lab)) == ("Failed", 8 * GPU_HOUR)


def test_what_a_declared_run_leaves_unused_goes_back() -> None:
    lab = Lab(nodes("nv-a", 1), EIGHT_HOURS)
    lab.submit(run("declared", "org", 2, max_duration="3h"))
    lab.submit(run("open", "org", 2, at=1))
    lab.advance(HOUR // 2)
    lab.finish("declared")
    lab.advance(9 * HOUR)
    assert lab.endings("open") == [("BudgetExhausted", 7 * HOUR // 2)]


def test_a_declared_start_can_end_an_open_ended_lease_at_that_instant() -> None:
    lab = Lab(nodes("nv-a", 1), EIGHT_HOURS)
    lab.submit(run("open", "org", 4))
    lab.advance(HOUR)
    lab.submit(run("declared", "org", 1, max_duration="4h", at=HOUR))
    assert (lab.endings("open"), lab.paid("declared")) == ([("BudgetExhausted", HOUR)], {"Owned org/main": 1})


def test_lending_hours_end_only_what_is_lent() -> None:
    lending = {"allow": True, "to": ["*"], "maxGPUHours": 4}
    lab = Lab(nodes("nv-a", 1), budget("bank", envelope(8, lending=lending)))
    lab.submit(run("guest", "x", 2, sponsors=["bank"]), run("own", "bank", 2))
    lab.advance(9 * HOUR)
    assert (lab.endings("guest"), lab.endings("own")) == ([("BudgetExhausted", 2 * HOUR)], [])


def test_a_cap_ends_the_open_ended_leases_of_all_its_envelopes() -> None:
    caps = [cap("c", "a", "b", flavor=H100, maxGPUHours=32)]
    lab = Lab(nodes("nv-a", 2), budget("org", envelope(8, "a"), envelope(8, "b"), caps=caps))
    lab.submit(run("r", "org", 16))
    lab.advance(9 * HOUR)
    assert lab.endings("r") == [("BudgetExhausted", 2 * HOUR)] * 2


def test_a_lease_under_a_cap_ends_sooner_when_others_draw_on_it_too() -> None:
    caps = [cap("c", "a", "b", flavor=H100, maxGPUHours=32)]
    lab = Lab(nodes("nv-a", 2), budget("org", envelope(8, "a"), envelope(8, "b"), caps=caps))
    lab.submit(run("first", "org", 8))
    lab.advance(HOUR)
    lab.submit(run("second", "org", 8, at=HOUR))
    lab.advance(3 * HOUR)
    assert lab.endings("first") == lab.endings("second") == [("BudgetExhausted", 5 * HOUR // 2)]


def test_a_cap_that_others_use_up_leaves_declared_leases_alone() -> None:
    caps = [cap("c", "a", "b", flavor=H100, maxGPUHours=64)]
    lab = Lab(nodes("nv-a", 2), budget("org", envelope(8, "a"), envelope(8, "b"), caps=caps))
    lab.submit(run("declared", "org", 8, max_duration="6h"))
    lab.submit(run("open", "org", 8, at=1))
    lab.advance(3 * HOUR)
    assert (lab.endings("declared"), lab.endings("open")) == ([], [("BudgetExhausted", 2 * HOUR)])


def test_credits_are_hours_times_the_flavors_price() -> None:
    lab = Lab(
        nodes("nv-a", 1), budget("org", envelope(8, maxCredits=50)), policy=Policy(prices_milli={H100: 2500})
    )
    lab.submit(run("r", "org", 4))
    lab.advance(9 * HOUR)
    assert lab.endings("r") == [("BudgetExhausted", 5 * HOUR)]


def test_what_declared_runs_will_cost_is_kept_from_the_credits_too() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", envelope(8, maxCredits=8)))
    lab.submit(run("declared", "org", 2, max_duration="3h"))
    lab.submit(run("open", "org", 2, at=1))
    lab.advance(2 * HOUR)
    assert (lab.endings("declared"), lab.endings("open")) == ([], [("BudgetExhausted", HOUR)])


def test_a_cap_in_credits_over_flavors_ends_leases_of_both() -> None:
    flavors = budget(
        "org",
        envelope(8, "h"),
        envelope(8, "a", flavor="A100-40GB"),
        caps=[cap("c", "h", "a", maxCredits=48)],
    )
    lab = Lab(nodes("nv-a", 1), nodes("nv-b", 1, flavor="A100-40GB"), flavors)
    lab.world.set_policy(Policy(prices_milli={H100: 2000}))
    lab.submit(run("h", "org", 8), run("a", "org", 8, flavor="A100-40GB"))
    lab.advance(9 * HOUR)
    assert lab.endings("h") == lab.endings("a") == [("BudgetExhausted", 2 * HOUR)]


def test_a_spare_uses_a_quarter_of_the_hours() -> None:
    lab = Lab(nodes("nv-a", 2), budget("org", envelope(16, maxGPUHours=20)))
    lab.submit(run("r", "org", 8, spares=1))
    lab.advance(9 * HOUR)
    assert {end for _, end in lab.endings("r")} == {2 * HOUR}
    assert used(lab) == 20 * GPU_HOUR


def test_opportunistic_work_uses_no_hours() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", envelope(1, maxGPUHours=8)))
    lab.submit(run("r", "org", 8, opportunistic=True))
    lab.advance(9 * HOUR)
    assert (used(lab), lab.envelope("org").by_class["opportunistic"].used(lab.world.now)) == (
        0,
        72 * GPU_HOUR,
    )


def test_an_hour_that_opened_a_second_ago_binds_only_what_it_used() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", envelope(8, maxGPUHours=6)))
    lab.submit(run("a", "org", 4))
    lab.world.advance_clock(T0 + SECOND)
    lab.submit(run("b", "org", 4, at=SECOND))
    assert lab.phase("b") == "Running"


# Hours, credits and caps that are promised


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"maxGPUHours": 16}, "HoursExhausted"),
        ({"maxCredits": 16}, "CreditsExhausted"),
        ({}, "AggregateCap"),
    ],
    ids=["hours", "credits", "cap"],
)
def test_what_is_promised_is_not_there_for_who_comes_later(limits: dict[str, Any], reason: str) -> None:
    """``first`` is promised all 16 GPU-hours in two hours: ``later`` would leave its GPUs, not them."""
    caps = None if limits else [cap("all", "main", maxCredits=16)]
    lab = Lab(nodes("nv-a", 2), budget("org:x", 8), budget("org:h", envelope(16, **limits), caps=caps))
    lab.submit(run("holder", "org:x", 8, max_duration="2h"))
    lab.submit(run("first", "org:h", 16, at=1, max_duration="1h"))
    assert lab.promised_at("first") == 2 * HOUR
    lab.submit(run("later", "org:h", 8, at=2, max_duration="1h"))
    assert (lab["later"].phase, lab.reasons("later")) == ("Reserved", [reason])
    lab.submit(run("open", "org:h", 8, at=3))
    assert lab["open"].phase == "Reserved"
    lab.live(2 * HOUR)
    assert (lab["first"].phase, lab.admissions["ns", "first"]) == ("Running", [T0 + 2 * HOUR])


def test_two_promises_do_not_count_on_the_same_hours() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org:x", 8), budget("org:h", envelope(8, maxGPUHours=8)))
    lab.submit(run("holder", "org:x", 8, max_duration="1h"))
    lab.submit(
        run("first", "org:h", 8, at=1, max_duration="1h"), run("second", "org:h", 8, at=2, max_duration="1h")
    )
    assert (lab.promised_at("first"), lab.promised_at("second")) == (HOUR, None)
    assert "HoursExhausted" in lab.reasons("second")


def test_gpus_that_a_cap_gets_back_by_then_can_be_promised() -> None:
    limits = cap("both", "one", "two", maxConcurrency=8)
    lab = Lab(nodes("nv-a", 2), budget("org", envelope(8, "one"), envelope(8, "two"), caps=[limits]))
    lab.submit(run("holder", "org", 8, max_duration="1h"), run("next", "org", 8, at=1))
    assert lab.promised_at("next") == HOUR
    lab.live(HOUR)
    assert lab["next"].phase == "Running"


@pytest.mark.parametrize(
    ("grant", "reason"),
    [
        (budget("org", envelope(8, maxGPUHours=8, end=3 * HOUR)), "HoursExhausted"),
        (budget("org", envelope(8, maxCredits=16, end=3 * HOUR)), "CreditsExhausted"),
        (budget("org", envelope(8, end=3 * HOUR), caps=[cap("all", "main", maxCredits=16)]), "AggregateCap"),
    ],
    ids=["hours", "credits", "cap"],
)
def test_who_commits_less_the_later_it_starts_is_promised_the_instant_when_that_suffices(
    grant: Budget, reason: str
) -> None:
    """8 GPU-hours for 8 GPUs, in a window that closes after three hours: it can be paid for the last one."""
    lab = Lab(nodes("nv-a", 1), grant, policy=Policy(prices_milli={H100: 2000}))
    lab.submit(run("r", "org", 8, max_duration="3h"))
    assert (lab.reasons("r"), lab.promised_at("r")) == ([reason], 2 * HOUR)
    lab.live(2 * HOUR)
    assert (lab["r"].phase, lab.admissions["ns", "r"]) == ("Running", [T0 + 2 * HOUR])


def test_c8_unpaid_work_is_paid_for_once_little_enough_of_it_is_left() -> None:
    """Two GPU-hours do not pay for an hour of four GPUs, but for its second half; nothing else happens."""
    lab = Lab(nodes("nv-a", 1), budget("org", envelope(8, maxGPUHours=2)))
    lab.submit(run("r", "org", 4, opportunistic=True, max_duration="1h"))
    assert lab.paid("r") == {"Opportunistic org/main": 4}
    lab.live(30 * MINUTE - SECOND)
    assert lab.paid("r") == {"Opportunistic org/main": 4}
    lab.live(30 * MINUTE)
    assert lab.paid("r") == {"Owned org/main": 4}
    assert lab.endings("r")[0] == ("Repaid", 30 * MINUTE)
    lab.live(2 * HOUR)
    assert used(lab) == 2 * GPU_HOUR
