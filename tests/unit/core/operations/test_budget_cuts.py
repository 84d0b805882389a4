"""An edited budget (C10): what it no longer pays for is paid elsewhere or demoted, and nobody is killed."""

import pytest

from jobtree.api.kinds.policy import Policy
from jobtree.api.schema.quantities import HOUR, MINUTE
from jobtree.core.accounts.envelope_accounts import GPU_HOUR
from tests.unit.core.build import H100, T0, budget, cap, envelope, node, nodes, run
from tests.unit.core.lab import Lab


def three_runs() -> Lab:
    lab = Lab(nodes("nv-a", 4), budget("org", 24))
    for number in range(3):
        lab.world.advance_clock(T0 + number * MINUTE)
        lab.submit(run(f"r{number}", "org", 8, at=number * MINUTE))
    lab.world.advance_clock(T0 + HOUR)
    return lab


@pytest.mark.parametrize(
    ("gpus", "unpaid"), [(24, [0, 0, 0]), (23, [0, 0, 8]), (16, [0, 0, 8]), (8, [0, 8, 8]), (7, [8, 8, 8])]
)
def test_of_a_cut_budget_the_newest_leases_are_demoted(gpus: int, unpaid: list[int]) -> None:
    lab = three_runs()
    lab.put(budget("org", gpus))
    lab.settle()
    assert [lab[f"r{number}"].opportunistic_gpus for number in range(3)] == unpaid
    assert [lab.phase(f"r{number}") for number in range(3)] == ["Running"] * 3


@pytest.mark.parametrize(("gpus", "unpaid"), [(24, 0), (23, 8), (16, 8), (15, 16), (8, 16), (7, 24), (0, 24)])
def test_only_the_pods_above_the_cut_are_demoted(gpus: int, unpaid: int) -> None:
    """C10: one Run of three pods. The pods of the highest ranks are demoted, and all go on."""
    lab = Lab(nodes("nv-a", 3), budget("org", 24))
    lab.submit(run("wide", "org", 24))
    lab.advance(HOUR)
    places = list(lab.on("wide"))
    lab.put(budget("org", gpus) if gpus else budget("org", envelope(8, "other", start=99 * HOUR)))
    lab.settle()
    assert (lab.phase("wide"), lab["wide"].opportunistic_gpus) == ("Running", unpaid)
    assert list(lab.on("wide", "Opportunistic")) == places[3 - unpaid // 8 :]
    lab.put(budget("org", 24))
    lab.settle()
    assert lab["wide"].opportunistic_gpus == 0


def test_only_the_spares_above_the_cut_are_dropped() -> None:
    lab = Lab(nodes("nv-a", 4), budget("org", 24))
    lab.submit(run("spared", "org", 16, per_pod=8, spares=2))
    assert lab.spares("spared") == 16
    lab.put(budget("org", 18))
    lab.settle()
    assert (lab["spared"].opportunistic_gpus, lab.spares("spared")) == (0, 8)


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
    assert [lab[f"r{number}"].opportunistic_gpus for number in range(3)] == [8, 0, 0]
    assert lab.envelope("org").account.charge == 0
    assert [lab.phase(f"r{number}") for number in range(3)] == ["Running"] * 3


def test_a_budget_that_is_deleted_demotes_all_it_paid_for() -> None:
    lab = three_runs()
    used = lab.envelope("org").account.used(lab.world.now)
    lab.world.drop_budget("org")
    lab.settle()
    assert [lab[f"r{number}"].opportunistic_gpus for number in range(3)] == [8, 8, 8]
    assert lab.envelope("org").account.used(lab.world.now) == used
    lab.put(budget("org", 24))
    lab.settle()
    assert [lab[f"r{number}"].opportunistic_gpus for number in range(3)] == [0, 0, 0]
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
    assert [lab[f"r{number}"].opportunistic_gpus for number in range(3)] == [0, 0, 8]

    lending = {"allow": True, "to": ["*"]}
    lab = Lab(nodes("nv-a", 2), budget("bank", envelope(16, lending=lending)))
    lab.submit(run("guest", "x", 8, sponsors=["bank"]), run("own", "bank", 8, at=1))
    lab.put(budget("bank", envelope(16, lending={**lending, "maxConcurrency": 4})))
    lab.settle()
    assert (lab["guest"].opportunistic_gpus, lab["own"].opportunistic_gpus) == (8, 0)


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
    assert lab["r"].opportunistic_gpus == 8
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
