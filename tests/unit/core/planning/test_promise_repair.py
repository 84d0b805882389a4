"""Promises that cannot be kept as made (R5): each moves with the reason that is true, or is withdrawn."""

import pytest

from jobtree.api.schema.quantities import HOUR, MINUTE, SECOND
from jobtree.core.lottery.resolution_record import verify
from jobtree.messages.record_signature import sign
from tests.unit.core.build import T0, budget, envelope, foreign_pod, node, nodes, run, tree
from tests.unit.core.lab import Lab


def promised(count: int = 4) -> Lab:
    """A full domain; ``b`` is promised all of it in two hours."""
    lab = Lab(nodes("nv-a", count), budget("org:a", 8 * count), budget("org:b", 8 * count))
    lab.submit(run("a", "org:a", 8 * count))
    lab.submit(run("b", "org:b", 8 * count, at=1))
    assert lab.promised_at("b") == 2 * HOUR
    return lab


def reasons(lab: Lab, name: str) -> list[str]:
    return [slip.reason for slip in lab.promise(name).slips]


def test_a_foreign_pod_on_promised_gpus_is_noticed_at_once() -> None:
    lab = promised()
    lab.advance(HOUR)
    lab.put(foreign_pod("nv-a-03", 1))
    lab.settle()
    assert (lab.promised_at("b"), reasons(lab, "b")) == (None, ["NodesLost"])


def test_a_foreign_pod_without_gpus_changes_nothing() -> None:
    lab = promised()
    lab.put(foreign_pod("nv-a-03", cpu="1"))
    lab.settle()
    assert (lab.promised_at("b"), reasons(lab, "b")) == (2 * HOUR, [])


# One second before it is due


def a_second_before() -> Lab:
    lab = promised()
    lab.live(2 * HOUR - SECOND)
    return lab


def test_a_reservation_whose_run_is_deleted_a_second_before_takes_nothing() -> None:
    lab = a_second_before()
    lab.world.drop_run(("ns", "b"))
    lab.settle()
    assert ("ns", "b") not in lab.world.runs
    lab.live(3 * HOUR)
    assert (lab["a"].phase, lab.endings("a"), lab.lotteries) == ("Running", [], [])


@pytest.mark.parametrize("deleted", [True, False])
def test_a_reservation_whose_slice_loses_a_node_a_second_before_slips(deleted: bool) -> None:
    lab = a_second_before()
    if deleted:
        lab.world.drop_node("nv-a-03")
    else:
        lab.put(node("nv-a-03", "nv-a", failed=True))
    lab.settle()
    assert reasons(lab, "b") == ["NodesLost"]
    lab.live(2 * HOUR + MINUTE)
    assert (lab["b"].phase, lab.lotteries) == ("Reserved", [])
    lab.put(node("nv-a-03", "nv-a"))
    lab.settle()
    running = [name for name in "ab" if lab[name].phase == "Running"]
    assert len(running) == 1, lab.story


@pytest.mark.parametrize("removed", ["envelope", "budget"])
def test_a_reservation_whose_envelope_is_removed_a_second_before_takes_nothing(removed: str) -> None:
    lab = a_second_before()
    if removed == "budget":
        lab.world.drop_budget("org-b")
    else:
        lab.put(budget("org:b"))
    lab.settle()
    assert (lab.promised_at("b"), reasons(lab, "b")) == (None, ["FundingLost"])
    lab.live(3 * HOUR)
    assert (lab["a"].phase, lab.endings("a"), lab.lotteries) == ("Running", [], [])


def test_a_lottery_key_that_changed_draws_nothing_and_its_record_says_so() -> None:
    lab = a_second_before()
    first = lab.promise("b")
    lab.world.lottery_key = b"another key"
    lab.live(2 * HOUR)
    assert (lab["a"].phase, lab["b"].phase, lab.endings("a")) == ("Running", "Reserved", [])
    (record,) = lab.lotteries
    assert (record.commitment, record.decision.packs, record.decision.draws) == (first.commitment, 0, ())
    wrong = verify(sign(record, lab.world.lottery_key))
    assert "the nonce is not the one that was committed to" in wrong
    second = lab.promise("b")
    assert (second.number, second.commitment != first.commitment) == (2, True)
    assert second.at is not None
    lab.live(second.at - T0)  # the next one is committed with the key that is there, and is drawn once
    assert (lab["b"].phase, lab["a"].phase, len(lab.lotteries)) == ("Running", "Reserved", 2)
    assert verify(sign(lab.lotteries[-1], lab.world.lottery_key)) == []


def test_a_clock_that_jumps_back_neither_hastens_nor_delays_a_promise() -> None:
    lab = promised()
    lab.advance(HOUR)
    lab.world.advance_clock(lab.world.now - 10 * HOUR)
    lab.settle()
    assert (lab.promised_at("b"), reasons(lab, "b")) == (2 * HOUR, [])
    lab.live(2 * HOUR)
    assert lab["b"].phase == "Running"


# A promise without a date gets one as soon as something new makes it possible (R9)


def undated(lab: Lab) -> Lab:
    """All money and GPUs are in use for ever; ``b`` waits for both."""
    lab.submit(run("a", "org", 16))
    lab.submit(run("b", "org:b", 16, at=1))
    assert lab.promised_at("b") is None
    return lab


def test_a_budget_that_is_raised_brings_a_date_at_once() -> None:
    lab = undated(Lab(nodes("nv-a", 2), budget("org", 16)))
    lab.put(budget("org", 32))
    lab.settle()
    assert (lab.promised_at("b"), reasons(lab, "b")) == (2 * HOUR, [])


def test_nodes_that_arrive_bring_a_date_at_once() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", 64))
    lab.submit(run("big", "org", 16))
    assert (lab.promised_at("big"), lab.reasons("big")) == (None, ["NoFreeSlots"])
    lab.submit(run("small", "org", 8, at=1))
    lab.put(node("nv-a-01", "nv-a"))
    lab.settle()
    assert lab["small"].phase == "Running"
    assert lab.promised_at("big") == 2 * HOUR


def test_a_running_run_that_will_end_sooner_brings_a_date_at_once() -> None:
    lab = Lab(nodes("nv-a", 2), budget("org", envelope(16, maxGPUHours=100)))
    lab.submit(run("a", "org", 16, max_duration="6h"))
    lab.submit(run("b", "org", 16, at=1, max_duration="1h"))
    assert lab.promised_at("b") is None
    lab.put(run("a", "org", 16, max_duration="5h"))
    lab.settle()
    assert lab.promised_at("b") == 5 * HOUR


def test_money_that_comes_back_brings_a_date_at_once_though_there_is_no_place() -> None:
    lab = Lab(nodes("nv-a", 4), budget("org:a", 16), budget("org:c", 16))
    lab.submit(run("a", "org:a", 16), run("c", "org:c", 16))
    lab.submit(run("b", "org:a", 32, at=1))
    lab.submit(run("d", "org:a", 16, at=2))
    assert (lab.promised_at("b"), lab.promised_at("d")) == (None, None)
    lab.put(node("nv-a-00", "nv-a", cordoned=True))
    lab.finish("a")
    assert lab.promised_at("d") == 2 * HOUR


def test_stages_that_start_together_get_their_date_together() -> None:
    lab = Lab(nodes("nv-a", 2), budget("org", 16))
    lab.submit(run("a", "org", 16))
    stages = [
        {"name": name, "resources": {"gpuType": "H100-80GB", "totalGPUs": 8}, "with": others}
        for name, others in (("x", []), ("y", ["x"]))
    ]
    lab.submit(tree("t", "org:t", stages, at=1))
    assert (lab.promised_at("t-x"), lab.promised_at("t-y")) == (None, None)
    lab.put(budget("org", 32))
    lab.settle()
    assert (lab.promised_at("t-x"), lab.promised_at("t-y")) == (2 * HOUR, 2 * HOUR)


def test_what_brings_no_date_moves_no_promise() -> None:
    lab = undated(Lab(nodes("nv-a", 2), budget("org", 16)))
    lab.put(budget("org", 17))
    assert [action.kind for action in lab.settle().actions] == []
    assert lab.promised_at("b") is None


def test_a_promise_counts_on_other_payers_when_an_edit_takes_its_own_away() -> None:
    """Nobody else may start with what the new envelope keeps for it."""
    lab = promised()
    lab.put(budget("org:b", envelope(32, "other")))
    lab.settle()
    assert (lab.promised_at("b"), lab.promise("b").funding) == (2 * HOUR, ((("org-b", "other"), 32),))
    assert reasons(lab, "b") == []
    lab.put(node("nv-a-04", "nv-a"))
    lab.submit(run("c", "org:b", 8, at=2))
    assert lab["c"].phase == "Reserved"


def test_a_promise_counts_on_other_payers_when_an_edit_takes_its_nodes_from_its_own() -> None:
    """C3: an envelope pays only on the nodes of its selector, so it cannot pay where the promise is."""
    lab = promised()
    lab.put(
        budget("org:b", envelope(32, "main", selector={"fabric.domain": "nv-z"}), envelope(32, "other")),
    )
    lab.settle()
    assert (lab.promised_at("b"), lab.promise("b").funding) == (2 * HOUR, ((("org-b", "other"), 32),))


def test_a_provisional_run_whose_promise_moves_does_not_cost_a_younger_run_its_date() -> None:
    """R5, C14: ``early`` runs until its own date on budget that ``young`` was promised from then on.

    The cut of org:x makes the promise of ``early`` move behind all others.
    """
    own = budget("org:x", 16), budget("org:y", 8), budget("org:z", 8)
    lab = Lab(nodes("nv-a", 4), budget("org"), *own, budget("rich", 32))
    lab.submit(run("x", "org:x", 8, at=1, max_duration="3h"))
    lab.submit(run("other", "rich", 8, at=2, max_duration="3h"))
    lab.submit(run("y", "org:y", 8, at=3, max_duration="2h"))
    lab.submit(run("wide", "org:z", 16, at=4, checkpoint="10m", max_duration="2h"))
    lab.submit(run("early", "org:z", 8, at=5, checkpoint="10m"))
    lab.put(budget("org:y", 1))
    lab.settle()
    lab.live(30 * MINUTE)
    lab.submit(run("young", "org:z", 8, at=30 * MINUTE, max_duration="4h"))
    assert (lab["early"].provisional, lab.promised_at("young")) == (True, 4 * HOUR)
    lab.put(budget("org:x", 1))
    lab.settle()
    assert reasons(lab, "early")[-1] == "OwnerNeeds", lab.story
    assert (lab.promised_at("young"), reasons(lab, "young")) == (4 * HOUR, []), lab.story
