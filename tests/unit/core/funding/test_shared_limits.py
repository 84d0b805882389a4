"""Promises reserve a part of lending limits and of tree quotas (R2, C4, R6)."""

from typing import Any

from jobtree.api.schema.quantities import HOUR
from tests.unit.core.build import H100, budget, envelope, node, nodes, run, tree
from tests.unit.core.lab import Lab


def bank(**lending: object) -> Lab:
    """A lender that may lend only a part of its budget; half of one domain is in use for two hours."""
    lender = budget("bank", envelope(64, lending={"allow": True, "to": ["*"], **lending}))
    lab = Lab(nodes("nv-a", 2), budget("rich", 64), lender)
    lab.submit(run("full", "rich", 8, max_duration="2h"))
    lab.put(node("nv-b-00", "nv-b"))
    lab.submit(run("big", "guest", 16, at=1, spread=False, max_duration="2h", sponsors=["bank"]))
    assert lab.promised_at("big") == 2 * HOUR
    return lab


def slips_by(lab: Lab, offset: int) -> list[str]:
    """Returns the reasons of the slips of the big Run, which must run at that instant."""
    slips = [slip.reason for slip in lab.promise("big").slips]
    lab.live(offset)
    assert lab["big"].phase == "Running", lab.story
    return slips


def test_lending_concurrency_is_kept_for_a_promise() -> None:
    lab = bank(maxConcurrency=16)
    lab.submit(run("late", "other", 8, at=2, sponsors=["bank"]))
    assert (lab["late"].phase, lab.reasons("late")) == ("Reserved", ["BorrowLimit"])
    assert lab.whys("late")[0].where == "bank/main lending beside promises to others"
    assert lab.promised_at("late") == 4 * HOUR
    assert slips_by(lab, 2 * HOUR) == []


def test_run_that_ends_before_the_promise_borrows_its_part() -> None:
    lab = bank(maxConcurrency=16)
    lab.submit(run("short", "other", 8, at=2, max_duration="1h", sponsors=["bank"]))
    assert lab.paid("short") == {"Borrowed bank/main": 8}
    assert slips_by(lab, 2 * HOUR) == []


def test_lending_hours_are_kept_for_a_promise() -> None:
    lab = bank(maxGPUHours=36)
    lab.submit(run("short", "other", 8, at=2, max_duration="1h", sponsors=["bank"]))
    assert (lab["short"].phase, lab.reasons("short")) == ("Reserved", ["BorrowLimit"])
    lab.submit(run("small", "other", 4, at=3, max_duration="1h", sponsors=["bank"]))
    assert lab.paid("small") == {"Borrowed bank/main": 4}
    assert slips_by(lab, 2 * HOUR) == []


def test_lending_limit_does_not_limit_the_run_of_the_lender() -> None:
    lab = bank(maxConcurrency=16)
    lab.submit(run("own", "bank", 8, at=2))
    assert lab.paid("own") == {"Owned bank/main": 8}


def test_borrowed_charge_returns_at_a_known_end() -> None:
    lender = budget("bank", envelope(64, lending={"allow": True, "to": ["*"], "maxConcurrency": 8}))
    lab = Lab(nodes("nv-a", 2), lender)
    lab.submit(run("first", "guest", 8, max_duration="3h", sponsors=["bank"]))
    lab.submit(run("next", "other", 8, at=1, sponsors=["bank"]))
    assert lab.promised_at("next") == 3 * HOUR
    lab.live(3 * HOUR)
    assert lab.paid("next") == {"Borrowed bank/main": 8}


def test_run_with_a_checkpoint_borrows_promised_charge_provisionally() -> None:
    lab = bank(maxConcurrency=16)
    lab.submit(run("provisional", "other", 8, at=2, checkpoint="10m", sponsors=["bank"]))
    assert (lab["provisional"].phase, lab["provisional"].provisional) == ("Running", True)
    assert slips_by(lab, 2 * HOUR) == []
    assert [reason for reason, _ in lab.endings("provisional")] == ["Reclaimed"]


def stage(name: str, gpus: int, **fields: Any) -> dict[str, Any]:  # noqa: ANN401  fields of a stage
    return {"name": name, "resources": {"gpuType": H100, "totalGPUs": gpus}, **fields}


def test_quota_is_kept_for_a_promised_stage() -> None:
    lab = Lab(nodes("nv-a", 2), budget("rich", 64))
    lab.submit(run("full", "rich", 8, max_duration="2h"))
    lab.put(node("nv-b-00", "nv-b"))
    big = stage("big", 16, locality={"allowCrossGroupSpread": False}, runtime={"maxDuration": "1h"})
    lab.submit(tree("t", "rich", [big, stage("late", 8)], quota={"maxGPUs": 16}, at=1))
    assert (lab.promised_at("t-big"), lab["t-late"].phase) == (2 * HOUR, "Reserved")
    assert (lab.reasons("t-late"), lab.promised_at("t-late")) == (["TreeQuota"], 3 * HOUR)
    lab.live(2 * HOUR)
    assert lab["t-big"].phase == "Running"
    lab.live(3 * HOUR)
    assert lab["t-late"].phase == "Running"
