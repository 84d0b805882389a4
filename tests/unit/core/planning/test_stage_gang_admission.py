"""Stages that start together (J3): one gang for admission, Reservation, resolution and lottery."""

from typing import Any

import pytest

from jobtree.api.kinds.run import Run
from jobtree.api.schema.quantities import HOUR, MINUTE, SECOND
from jobtree.core.reporting.reservation_codec import (
    promise_from_reservation,
    promised_together,
    reservation_object,
)
from jobtree.core.reporting.stage_gang_forecast import added_odds, joint_forecast
from tests.unit.core.build import H100, budget, envelope, node, nodes, run, tree
from tests.unit.core.lab import Lab

RICH = budget("org", 10_000)
A, B = "t-a", "t-b"
A100 = "A100-40GB"


def stage(name: str, gpus: int = 8, beside: list[str] | None = None, **fields: Any) -> dict[str, Any]:  # noqa: ANN401  fields of a stage
    resources = {"gpuType": H100, "totalGPUs": gpus} if gpus else {"totalGPUs": 0, "pods": 1}
    return {"name": name, "resources": resources, "with": beside or [], **fields}


def pair(gpus: int = 8, *, at: int = 1, more: int | None = None, **fields: Any) -> Run:  # noqa: ANN401  of both stages
    stages = [stage("a", gpus, **fields), stage("b", more or gpus, beside=["a"], **fields)]
    return tree("t", "org", stages, at=at)


def phases(lab: Lab, *names: str) -> list[str]:
    return [lab[name].phase for name in names]


def test_j3_both_start_at_once_where_both_fit() -> None:
    lab = Lab(RICH, nodes("nv-a", 2))
    lab.submit(pair())
    assert phases(lab, A, B) == ["Running", "Running"]
    assert lab[A].since == lab[B].since


def test_j3_neither_starts_where_only_one_fits() -> None:
    lab = Lab(RICH, nodes("nv-a", 2))
    lab.submit(run("holds", "org", 8, max_duration="1h"))
    lab.submit(pair())
    assert (phases(lab, A, B), lab.leases(A), lab.leases(B)) == (["Reserved", "Reserved"], [], [])
    lab.live(HOUR)
    assert (phases(lab, A, B), lab[A].since) == (["Running", "Running"], lab[B].since)


def test_j3_neither_starts_where_only_one_can_be_paid() -> None:
    lab = Lab(budget("org", 8), nodes("nv-a", 2))
    lab.submit(pair())
    assert phases(lab, A, B) == ["Reserved", "Reserved"]
    assert "ConcurrencyExhausted" in lab.reasons(A)
    lab.put(budget("org", 16))
    lab.settle()
    assert phases(lab, A, B) == ["Running", "Running"]


def test_j3_with_joins_a_chain_of_stages_into_one_gang() -> None:
    stages = [stage("a"), stage("b", beside=["a"]), stage("c", beside=["b"]), stage("d")]
    lab = Lab(RICH, nodes("nv-a", 4))
    lab.submit(run("holds", "org", 16, max_duration="1h"))
    lab.submit(tree("t", "org", stages, at=1))
    assert phases(lab, "t-a", "t-b", "t-c", "t-d") == ["Reserved", "Reserved", "Reserved", "Running"]
    assert lab["t-c"].gang == (("ns", "t-a"), ("ns", "t-b"), ("ns", "t-c"))


def test_j3_a_member_without_gpus_starts_with_the_others() -> None:
    stages = [stage("serve", 0), stage("train", 8, beside=["serve"])]
    lab = Lab(RICH, nodes("nv-a", 1))
    lab.submit(run("holds", "org", 8, max_duration="1h"))
    lab.submit(tree("t", "org", stages, at=1))
    assert lab["t-serve"].phase != "Running"
    lab.live(HOUR)
    assert phases(lab, "t-serve", "t-train") == ["Running", "Running"]


def test_j3_malleable_members_start_at_their_minimum_where_the_full_width_does_not_fit() -> None:
    flexible = {"minTotalGPUs": 8, "maxTotalGPUs": 16, "stepGPUs": 8}
    lab = Lab(RICH, nodes("nv-a", 3))
    lab.submit(pair(16, malleable=flexible))
    assert (phases(lab, A, B), lab[A].width, lab[B].width) == (["Running", "Running"], 8, 8)


def test_j3_a_gang_waits_for_what_any_of_its_members_waits_for() -> None:
    stages = [stage("first"), stage("a", after=["first"]), stage("b", beside=["a"])]
    lab = Lab(RICH, nodes("nv-a", 4))
    lab.submit(tree("t", "org", stages))
    assert phases(lab, A, B) == ["Waiting", "Waiting"]
    lab.finish("t-first")
    assert phases(lab, A, B) == ["Running", "Running"]


def test_j3_a_gang_fails_as_a_whole_with_what_one_of_its_members_waits_for() -> None:
    stages = [stage("first"), stage("a", after=["first"]), stage("b", beside=["a"])]
    lab = Lab(RICH, nodes("nv-a", 4))
    lab.submit(tree("t", "org", stages))
    lab.finish("t-first", succeeded=False)
    lab.live(30 * MINUTE)
    assert phases(lab, A, B, "t") == ["Failed", "Failed", "Failed"]


def test_j3_unpaid_work_gives_way_to_a_gang_and_only_as_much_as_needed() -> None:
    lab = Lab(budget("org", 16), budget("lab", 1), nodes("nv-a", 3))
    for number in range(3):
        lab.submit(run(f"u{number}", "lab", 8, opportunistic=True, at=number))
    lab.submit(pair(at=10))
    assert phases(lab, A, B) == ["Running", "Running"]
    assert [lab.phase(f"u{number}") for number in range(3)] == ["Running", "Pending", "Pending"]


def test_j3_half_paid_work_is_not_ended_for_the_money_of_its_other_half() -> None:
    """There is place for the gang: what it lacks is money, and nobody gives way for that (C13, I12)."""
    lab = Lab(nodes("nv-a", 4), budget("org", 16))
    lab.submit(run("older", "org", 16, group=8))
    lab.put(budget("org", 8))
    lab.settle()
    assert (lab["older"].width, lab["older"].opportunistic_gpus) == (16, 8)
    lab.submit(pair(4))
    assert (lab["older"].phase, phases(lab, A, B)) == ("Running", ["Reserved", "Reserved"])
    assert lab.endings("older") == [("BudgetExhausted", 0)]


def test_j3_a_gang_starts_on_what_it_recalls_after_a_notice() -> None:
    lab = Lab(nodes("nv-a", 2), budget("org", 16), budget("org:c"))
    lab.submit(run("child", "org:c", 16))
    lab.submit(pair())
    assert (lab.promised_at(A), lab.promised_at(B), lab.phase("child")) == (5 * MINUTE, 5 * MINUTE, "Running")
    lab.live(5 * MINUTE)
    assert (phases(lab, A, B), lab.phase("child")) == (["Running", "Running"], "Pending")
    assert lab.endings("child") == [("Recalled", 5 * MINUTE)]


def test_j3_a_gang_recalls_money_for_every_flavor_of_its_members() -> None:
    parent = budget("org", envelope(8, "h"), envelope(8, "a", flavor=A100))
    lab = Lab(nodes("nv-a", 2), nodes("nv-b", 2, flavor=A100), parent, budget("org:c"))
    lab.submit(run("ch", "org:c", 8), run("ca", "org:c", 8, flavor=A100))
    other = {**stage("b", beside=["a"]), "resources": {"gpuType": A100, "totalGPUs": 8}}
    lab.submit(tree("t", "org", [stage("a"), other], at=1))
    assert phases(lab, A, B) == ["Running", "Running"]
    assert (lab["ch"].opportunistic_gpus, lab["ca"].opportunistic_gpus) == (8, 8)


def test_j3_a_gang_that_lacks_only_place_recalls_nothing() -> None:
    lab = Lab(nodes("nv-a", 2), budget("org", 32), budget("org:c"))
    lab.submit(run("child", "org:c", 16))
    lab.submit(pair())
    assert (phases(lab, A, B), lab.endings("child")) == (["Reserved", "Reserved"], [])


# One Reservation


def gang_that_waits() -> Lab:
    lab = Lab(RICH, nodes("nv-a", 2), nodes("nv-b", 1))
    lab.submit(run("holds", "org", 24, per_pod=8, max_duration="1h"))
    lab.submit(pair(8, more=16))
    return lab


def test_j3_one_reservation_one_instant_one_commitment() -> None:
    lab = gang_that_waits()
    a, b = lab.promise(A), lab.promise(B)
    assert (a.name, a.at, a.commitment, a.named_after) == (b.name, b.at, b.commitment, "t")
    assert lab.promised_at(A) == HOUR
    assert a.name == "t-1"
    assert a.precedence != b.precedence


def test_j3_the_widest_member_is_placed_first_whatever_order_they_are_written_in() -> None:
    lab = gang_that_waits()
    assert lab.promise(B).precedence < lab.promise(A).precedence
    assert (dict(lab.promise(B).domain_gpus), dict(lab.promise(A).domain_gpus)) == (
        {"us/a/nv-a": 16},
        {"us/a/nv-b": 8},
    )


def test_j3_the_reservation_names_the_tree_its_members_and_the_slices_of_all() -> None:
    lab = gang_that_waits()
    wire = reservation_object(lab.world, lab[A], lab.promise(A))
    assert (wire.spec.run_ref.name, wire.spec.members) == ("t", ("a", "b"))
    assert sum(share.gpus for share in wire.spec.intended_slice.domains) == 24
    assert [one.stage for one in wire.status.members] == ["a", "b"]


def test_j3_each_members_part_is_read_back_from_the_one_reservation() -> None:
    lab = gang_that_waits()
    wire = reservation_object(lab.world, lab[A], lab.promise(A))
    for name, member in ((A, "a"), (B, "b")):
        assert promise_from_reservation(wire, lab[name], member) == lab.promise(name)


def test_j3_the_forecast_adds_up_what_all_of_them_lack() -> None:
    lab = gang_that_waits()
    party = promised_together(lab.world, lab[A], lab.promise(A))
    assert joint_forecast(lab.world, party).deficit == 24


def test_j3_the_chance_to_lose_to_any_of_several_draws() -> None:
    """Who lost the first draw cannot lose the next, so the probabilities add up."""
    assert added_odds([{"x": 500}, {"x": 400, "y": 200}]) == {"x": 900, "y": 200}


def test_j3_a_lost_node_moves_the_promise_of_all_members() -> None:
    lab = Lab(RICH, nodes("nv-a", 2))
    lab.submit(run("short", "org", 8, max_duration="1h"), run("long", "org", 8, max_duration="90m"))
    lab.submit(pair())
    assert lab.promised_at(A) == lab.promised_at(B) == 90 * MINUTE
    lab.put(node("nv-a-00", failed=True))
    lab.settle()
    assert lab.promised_at(A) == lab.promised_at(B) is None
    assert [len(lab.promise(name).slips) for name in (A, B)] == [1, 1]


def test_j3_a_gang_that_no_fleet_could_hold_waits_without_a_date() -> None:
    lab = Lab(RICH, nodes("nv-a", 1))
    lab.submit(pair())
    assert (lab.promised_at(A), lab.promised_at(B)) == (None, None)
    lab.put(nodes("nv-b", 1))
    lab.settle()
    assert phases(lab, A, B) == ["Running", "Running"]


def test_j3_reservations_of_a_tree_are_numbered_and_never_reused() -> None:
    lab = Lab(RICH, nodes("nv-a", 2))
    lab.submit(run("holds", "org", 8, max_duration="1h"))
    lab.submit(pair())
    lab.live(HOUR)
    assert phases(lab, A, B) == ["Running", "Running"]
    (on,) = lab.on(A)
    lab.put(node(on, failed=True))
    lab.settle()
    assert (lab.promise(A).name, lab.promise(B).name) == ("t-2", "t-2")


# Together in a lottery


@pytest.mark.parametrize("seed", range(6))
def test_j3_they_lose_together_whichever_of_them_is_drawn(seed: int) -> None:
    lab = Lab(RICH, nodes("nv-a", 2))
    lab.world.lottery_key = bytes([seed])
    lab.submit(pair(at=0))
    lab.submit(run("wins", "org", 8, at=5))
    assert lab.promised_at("wins") is not None
    lab.live(lab.promised_at("wins") or 0)
    assert lab["wins"].phase == "Running"
    assert phases(lab, A, B) == ["Reserved", "Reserved"]
    assert (lab[A].lotteries_lost, lab[B].lotteries_lost) == (1, 1)
    assert {reason for name in (A, B) for reason, _ in lab.endings(name)} == {"RandomPreempt"}


def test_j3_all_stages_of_a_gang_that_could_lose_are_in_the_conflict_set() -> None:
    lab = Lab(RICH, nodes("nv-a", 2))
    lab.submit(pair(at=0))
    lab.submit(run("wins", "org", 8, at=5))
    forecast = lab.forecast("wins")
    assert [conflict.key[1] for conflict in forecast.conflict_set()] == [A, B]
    assert [forecast.odds[lab[name].uid] for name in (A, B)] == [1000, 1000]


def test_j3_a_gang_takes_by_lottery_what_all_its_members_need_at_one_instant() -> None:
    lab = Lab(RICH, nodes("nv-a", 2))
    lab.submit(run("x", "org", 8), run("y", "org", 8))
    lab.submit(pair())
    due = lab.promised_at(A)
    assert due == lab.promised_at(B) == 2 * HOUR
    lab.live(due)
    assert phases(lab, A, B) == ["Running", "Running"]
    assert phases(lab, "x", "y") == ["Reserved", "Reserved"]
    assert [record.reservation for record in lab.lotteries] == ["t-1", "t-1"]


def test_j3_one_that_ends_does_not_end_the_other() -> None:
    lab = Lab(RICH, nodes("nv-a", 2))
    lab.submit(pair())
    lab.finish(A)
    assert phases(lab, A, B, "t") == ["Completed", "Running", "Pending"]
    lab.finish(B)
    assert lab["t"].phase == "Completed"


def test_j3_one_that_queues_again_after_the_other_ended_starts_alone() -> None:
    lab = Lab(RICH, nodes("nv-a", 2))
    lab.submit(pair())
    (on,) = lab.on(B)
    lab.finish(A)
    lab.live(MINUTE)
    for name in ("nv-a-00", "nv-a-01"):
        lab.put(node(name, failed=True))
    lab.settle()
    assert lab.phase(B) == "Pending"
    lab.put(node(on))
    lab.settle()
    assert phases(lab, A, B) == ["Completed", "Running"]


def test_j3_cancelling_the_tree_takes_its_one_reservation() -> None:
    lab = gang_that_waits()
    lab.world.drop_run(("ns", "t"))
    lab.settle()
    assert [state.key[1] for state in lab.world.runs.values()] == ["holds"]
    assert lab.world.promise_order == []


def test_j3_c13_who_has_the_place_of_an_unpaid_stage_has_that_of_the_others_too() -> None:
    lab = Lab(nodes("nv-a", 2), budget("org"), budget("org:a", 8), budget("org:b", 8), budget("rich", 16))
    lab.submit(tree("t", "org:b", [stage("a"), stage("b", beside=["a"])]))
    lab.put(nodes("nv-b", 1), nodes("nv-c", 1))
    lab.advance(SECOND)
    lab.submit(run("recalls", "org:a", 8, at=SECOND))
    assert sorted(lab[name].opportunistic_gpus for name in (A, B)) == [0, 8]
    lab.submit(run("whole", "rich", 16, at=SECOND, group=16))
    assert (lab.phase("whole"), phases(lab, A, B)) == ("Running", ["Reserved", "Reserved"])
