"""A Run that has to stop for a recall has its notice first (C11, R3)."""

import pytest

from jobtree.api.schema.quantities import HOUR, MINUTE
from jobtree.core.model.promise import RECALL
from jobtree.core.reporting.reservation_codec import promise_from_reservation, reservation_object
from tests.unit.core.build import T0, budget, node, nodes, run
from tests.unit.core.lab import Lab

FAMILY = (budget("org"), budget("org:own", 8), budget("org:kin", 8))


def recalled(checkpoint: str | None = "20m", node_count: int = 2, **kin: object) -> Lab:
    """A relative runs on all GPUs, half of them on the budget of org:own. After an hour org:own needs it."""
    lab = Lab(nodes("nv-a", node_count), *FAMILY)
    lab.submit(run("kin", "org:kin", 16, checkpoint=checkpoint, **kin))  # type: ignore[arg-type]
    lab.live(HOUR)
    lab.submit(run("own", "org:own", 8, at=HOUR))
    return lab


@pytest.mark.parametrize(("checkpoint", "notice"), [(None, 5), ("1m", 5), ("20m", 20), ("3h", 30)])
def test_the_notice_is_the_checkpoint_within_the_policys_bounds(checkpoint: str | None, notice: int) -> None:
    lab = recalled(checkpoint)
    assert lab.promised_at("own") == HOUR + notice * MINUTE
    lab.live(HOUR + notice * MINUTE - 1)
    assert (lab.phase("kin"), lab.phase("own")) == ("Running", "Pending")
    lab.live(HOUR + notice * MINUTE)
    assert (lab.phase("kin"), lab.paid("own")) == ("Pending", {"Owned org-own/main": 8})
    assert {reason for reason, _ in lab.endings("kin")} == {"Recalled"}


def test_the_run_that_stops_is_told_with_certainty() -> None:
    lab = recalled()
    forecast = lab.forecast("own")
    assert (lab.remedies("own"), forecast.odds) == ([("Recall", 16, ["kin"])], {lab["kin"].uid: 1000})


def test_the_notice_counts_from_the_start_of_a_run_that_has_just_begun() -> None:
    lab = Lab(nodes("nv-a", 2), *FAMILY)
    lab.submit(run("kin", "org:kin", 16, checkpoint="20m"), run("own", "org:own", 8, at=1))
    assert lab.promised_at("own") == 20 * MINUTE


def test_nobody_stops_where_there_is_room() -> None:
    lab = recalled(node_count=3)
    assert (lab.paid("own"), lab.phase("kin")) == ({"Owned org-own/main": 8}, "Running")
    assert lab["kin"].opportunistic_gpus == 8


def test_nobody_stops_if_the_owners_run_is_cancelled_in_time() -> None:
    lab = recalled()
    lab.world.drop_run(("ns", "own"))
    lab.live(2 * HOUR)
    assert (lab.phase("kin"), lab.endings("kin")) == ("Running", [])


def test_nobody_stops_if_other_gpus_come_free_meanwhile() -> None:
    lab = recalled()
    lab.put(node("nv-a-99", domain="nv-a"))
    lab.sweep()
    assert (lab.paid("own"), lab.phase("kin")) == ({"Owned org-own/main": 8}, "Running")


def test_others_do_not_count_on_what_a_recall_frees() -> None:
    """The recall stops 16 GPUs for 8. If it does not happen, a promise on the other 8 would be broken."""
    lab = recalled()
    lab.put(budget("lab", 8))
    lab.submit(run("other", "lab", 8, at=HOUR))
    assert lab.promise("other").disruption != RECALL
    assert lab.promised_at("other") == 2 * HOUR  # by lottery, once the relative is not immune any more


def test_a_run_that_stopped_and_started_again_is_not_stopped_for_the_former_recall() -> None:
    lab = recalled()
    since = lab["kin"].since
    assert lab.promise("own").recalls == ((("ns", "kin"), since),)
    assert lab.world.promise_index.recalled_at(lab["kin"]) == T0 + HOUR + 20 * MINUTE
    lab["kin"].since = T0 + HOUR + MINUTE
    assert lab.world.promise_index.recalled_at(lab["kin"]) is None


def test_a_malleable_run_shrinks_at_once() -> None:
    lab = recalled(malleable=(8, 16, 8))
    assert (lab.paid("own"), lab["kin"].width) == ({"Owned org-own/main": 8}, 8)


def test_a_restarted_manager_knows_who_was_told() -> None:
    lab = recalled()
    own, promise = lab["own"], lab.promise("own")
    reservation = reservation_object(lab.world, own, promise)
    assert promise_from_reservation(reservation, own).recalls == promise.recalls
