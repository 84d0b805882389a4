"""Promises and how they are kept: the second half of SCENARIOS.md 4, and 5, 6, 7, 15, 16, 17 on the core."""

from collections import Counter

import pytest

from jobtree.api.kinds.budget import Budget
from jobtree.api.kinds.policy import Policy
from jobtree.api.schema.quantities import HOUR, MINUTE, SECOND
from jobtree.core.lottery.draw import nonce_for, run_lottery
from jobtree.core.lottery.resolution_record import verify
from jobtree.core.model.reasons import Reason
from jobtree.core.operations.victims import PromiseCase
from jobtree.core.reporting.reservation_codec import reservation_object
from jobtree.messages.record_signature import sign
from tests.unit.core.build import T0, budget, envelope, nodes, run
from tests.unit.core.lab import LOTTERY_KEY, Lab

# 4. Co-funded, second half


def test_4_a_run_that_nobody_can_ever_pay_has_a_reservation_without_a_time_and_says_what_would_help() -> None:
    lender = envelope(64, sharing="none", lending={"allow": True, "to": ["org:ai:*"], "maxConcurrency": 64})
    lab = Lab(nodes("nv-a", 32), budget("org:ai:rai", 64), budget("org:ai:mm:vision", lender))
    lab.submit(run("co", "org:ai:rai", 128, group=32, sponsors=["org:ai:mm:vision"], max_borrow=8))
    assert (lab["co"].phase, lab.promised_at("co")) == ("Reserved", None)
    assert "BorrowLimit" in lab.reasons("co")
    found = lab.forecast("co")
    assert (found.deficit, found.funding_deficit) == (0, 56)
    assert [(one.kind, one.gpus) for one in found.remedies] == [("RaiseEnvelope", 56), ("AskSponsor", 56)]
    assert "org-ai-rai/main by 56" in found.remedies[0].message
    assert "maxBorrowGPUs" in found.remedies[1].message
    written = reservation_object(lab.world, lab["co"], lab.promise("co"))
    assert (written.metadata.name, written.spec.earliest_start) == ("co-1", None)


def test_4_what_can_never_be_paid_keeps_no_money_from_anybody() -> None:
    lab = Lab(nodes("nv-a", 32), budget("org", 64))
    lab.submit(run("never", "org", 128), run("younger", "org", 64, at=1))
    assert lab["younger"].phase == "Running"


def test_4_pods_that_no_envelope_can_pay_whole_keep_no_money_either() -> None:
    """One pod has one payer (C3): two envelopes of 4 never pay for a pod of 8, so nothing is kept for it."""
    lab = Lab(nodes("nv-a", 4), budget("org", 4), budget("org:c", 4))
    lab.submit(run("pods-of-8", "org:c", 8))
    assert (lab.promised_at("pods-of-8"), lab.promise("pods-of-8").funding) == (None, ())


def test_4_where_hours_are_missing_hours_are_asked_for() -> None:
    lab = Lab(nodes("nv-a", 2), budget("org", envelope(16, maxGPUHours=10)))
    lab.submit(run("long", "org", 8, max_duration="3h"))
    (remedy,) = lab.forecast("long").remedies
    assert (remedy.kind, remedy.gpu_hours) == ("RaiseEnvelope", 14)
    assert remedy.message == "raise maxGPUHours of envelope org/main by 14"
    written = reservation_object(lab.world, lab["long"], lab.promise("long")).status.forecast
    assert written is not None
    assert (written.remedies[0].gpus, written.remedies[0].gpu_hours) == (None, 14)
    lab.put(budget("org", envelope(16, maxGPUHours=24)))
    lab.settle()
    assert lab["long"].phase == "Running"


def test_4_an_envelope_is_raised_by_what_older_runs_keep_as_well() -> None:
    """All 16 are in use and come back to ``older`` first: 8 more would be its, not the newcomer's."""
    lab = Lab(nodes("nv-a", 6), budget("org", 16))
    lab.submit(run("holder", "org", 16), run("older", "org", 16, at=1), run("wanted", "org", 8, at=2))
    (remedy,) = lab.forecast("wanted").remedies
    lab.put(budget("org", 16 + remedy.gpus - 1))
    lab.settle()
    assert lab["wanted"].phase == "Reserved"
    lab.put(budget("org", 16 + remedy.gpus))
    lab.settle()
    assert (remedy.gpus, lab["older"].phase, lab["wanted"].phase) == (24, "Running", "Running")


# 5. A window that opens tomorrow


def test_5_a_window_that_opens_tomorrow_sets_the_time_and_others_work_meanwhile() -> None:
    """The promise is made for the opening of the window (R3), and says so (R10)."""
    lab = Lab(nodes("nv-a", 625), budget("org:a", envelope(5000, start=15 * HOUR)))
    lab.put(budget("org:b", 5000))
    lab.submit(run("big", "org:a", 4096))
    assert lab.promised_at("big") == 15 * HOUR
    assert lab.promise("big").window_aligned
    written = reservation_object(lab.world, lab["big"], lab.promise("big"))
    assert written.status.forecast is not None
    assert written.status.forecast.confidence == "window-aligned"
    assert written.spec.earliest_start == "2026-01-06T00:00:00Z"
    lab.submit(run("hour", "org:b", 4096, max_duration="1h"))
    assert lab["hour"].phase == "Running"
    lab.world.advance_clock(T0 + HOUR)
    lab.finish("hour")
    assert (lab["hour"].phase, lab["big"].phase) == ("Completed", "Reserved")
    lab.live(15 * HOUR)
    assert lab["big"].phase == "Running"
    assert lab.admissions["ns", "big"] == [T0 + 15 * HOUR]


# 6. Structural cuts


def test_6_spares_are_dropped_and_elastic_runs_shrink_a_minute_later() -> None:
    """Spares are dropped (X2), then malleable Runs shrink (X3), as the remedies say beforehand (R8)."""
    lab = Lab(nodes("nv-a", 16), *(budget(f"org:{team}", 128) for team in "abc"))
    lab.submit(run("mm1", "org:a", 64, group=16, spares=1))
    lab.submit(run("research-demo", "org:b", 32, malleable=(16, 32, 16)))
    assert (lab.spares("mm1"), lab["research-demo"].width) == (32, 32)
    lab.advance(HOUR)
    lab.submit(run("new", "org:c", 48, at=HOUR))
    assert lab.promised_at("new") == HOUR + MINUTE
    found = lab.forecast("new")
    assert (found.deficit, found.funding_deficit) == (48, 0)
    assert lab.remedies("new") == [("DropSpares", 32, ["mm1"]), ("Shrink", 16, ["research-demo"])]
    assert [state.key[1] for state in found.conflict_set()] == ["mm1", "research-demo"]
    assert found.odds == {"mm1-uid": 0, "research-demo-uid": 0}
    lab.live(HOUR + MINUTE)
    widths = [lab[name].width for name in ("mm1", "research-demo", "new")]
    assert (widths, lab.spares("mm1")) == ([64, 16, 48], 0)
    assert lab.world.fleet.flavor("H100-80GB").free == 0
    assert {reason for reason, _ in lab.endings("mm1")} == {"DropSpare"}
    assert lab.endings("research-demo") == [("Shrink", HOUR + MINUTE)]
    assert lab.lotteries[-1].decision.draws == ()


# 7. The lottery


def seven(key: bytes = LOTTERY_KEY, on_notice: str = "Ignore") -> Lab:
    """One domain of 72 GPUs; two hours later B submits J4."""
    lab = Lab(nodes("nv-a", 9), budget("org:a", 64), budget("org:b", 64))
    lab.world.lottery_key = key
    lab.submit(
        run("j1", "org:a", 32, checkpoint="30m", on_notice=on_notice),
        run("j2", "org:b", 24, malleable=(8, 24, 8), on_notice=on_notice),
        run("j3", "org:a", 8, checkpoint="10m", on_notice=on_notice),
    )
    lab.advance(2 * HOUR)
    lab.submit(run("j4", "org:b", 32, at=2 * HOUR, on_notice=on_notice))
    return lab


def test_7_what_the_reservation_says_before_the_draw() -> None:
    """Remedies (R8), tickets by GPUs (X4) and kill probabilities (X9) are known before the draw."""
    lab = seven()
    assert lab.promised_at("j4") == 2 * HOUR + 30 * MINUTE
    found = lab.forecast("j4")
    assert found.deficit == 24
    assert lab.remedies("j4") == [("Shrink", 16, ["j2"]), ("Lottery", 8, ["j1", "j2", "j3"])]
    case = PromiseCase(lab.world, lab["j4"], lab.promise("j4")).case
    assert [(ticket.run, ticket.weight) for ticket in case.tickets] == [
        ("j1-uid", 32),
        ("j2-uid", 8),
        ("j3-uid", 8),
    ]
    assert found.odds == {"j1-uid": 667, "j2-uid": 167, "j3-uid": 167}


@pytest.mark.parametrize("loser", ["j1", "j2", "j3"])
def test_7_exactly_one_loses_and_nothing_is_cut_that_need_not_be(loser: str) -> None:
    """The draw ends one Run (X4), which queues with its creation time (X6); the rest is given back (X5)."""
    for number in range(100):
        lab = seven(b"key %d" % number)
        order = lab[loser].creation_order
        lab.live(2 * HOUR + 30 * MINUTE)
        assert (lab["j4"].phase, lab["j4"].width) == ("Running", 32)
        losers = [name for name in ("j1", "j2", "j3") if lab[name].lotteries_lost]
        assert len(losers) == 1
        if losers != [loser]:
            continue
        width = {"j1": 24, "j2": 0, "j3": 8}[loser]
        assert lab["j2"].width == width
        assert (lab[loser].phase, lab[loser].width, lab[loser].creation_order) == ("Reserved", 0, order)
        assert ("RandomPreempt", 2 * HOUR + 30 * MINUTE) in lab.endings(loser)
        others = [name for name in ("j1", "j3") if name != loser]
        assert all(lab[name].phase == "Running" for name in others)
        record = lab.lotteries[-1]
        assert record.decision.losers == (f"{loser}-uid",)
        assert verify(sign(record, lab.world.lottery_key)) == []
        return
    pytest.fail(f"{loser} never lost in a hundred lotteries")


def test_7_over_3000_run_uids_the_shares_of_the_losers_are_their_odds() -> None:
    lab = seven()
    case = PromiseCase(lab.world, lab["j4"], lab.promise("j4")).case
    lost: Counter[str] = Counter()
    for number in range(3000):
        _, decision = run_lottery(case, nonce_for(LOTTERY_KEY, f"uid-{number}", 1))
        assert decision.packs
        assert len(decision.losers) == 1
        lost.update(decision.losers)
    for uid, share in {"j1-uid": 2 / 3, "j2-uid": 1 / 6, "j3-uid": 1 / 6}.items():
        assert abs(lost[uid] / 3000 - share) < 0.03, lost


# 15. Through a promise


def through() -> Lab:
    lab = Lab(nodes("nv-a", 8), budget("org:a", 128), budget("org:b", 128))
    lab.submit(run("old", "org:a", 32))
    lab.advance(HOUR)
    lab.submit(run("big", "org:b", 64, at=HOUR))
    lab.submit(run("fragile", "org:a", 32, at=HOUR))
    return lab


def test_15_free_slots_are_held_for_a_promise_and_who_waits_behind_it_gets_one_of_its_own() -> None:
    lab = through()
    assert lab.promised_at("big") == 2 * HOUR
    assert lab["old"].phase == "Running"
    assert (lab["fragile"].phase, lab.reasons("fragile")) == ("Reserved", ["Held"])
    assert lab.promised_at("fragile") == 4 * HOUR


def test_15_a_run_with_a_checkpoint_starts_on_held_slots_provisionally_and_goes_first() -> None:
    """Provisional work (R6) ends before the lottery is held (X1)."""
    lab = through()
    lab.submit(run("resumable", "org:a", 32, at=HOUR, checkpoint="10m"))
    assert (lab["resumable"].phase, lab["resumable"].provisional) == ("Running", True)
    assert lab.paid("resumable") == {"Owned org-a/main": 32}
    odds = lab.forecast("big").odds
    assert (odds["resumable-uid"], odds["old-uid"]) == (1000, 1000)
    assert lab.promise("resumable").number == 1  # it keeps a Reservation of its own
    orders = {name: lab[name].creation_order for name in ("old", "resumable")}
    lab.live(2 * HOUR)
    assert (lab["big"].phase, lab["big"].width) == ("Running", 64)
    assert lab.endings("resumable") == [("Reclaimed", 2 * HOUR)]
    assert lab.endings("old") == [("RandomPreempt", 2 * HOUR)]
    assert (lab["old"].lotteries_lost, lab["resumable"].lotteries_lost) == (1, 0)
    for name, order in orders.items():
        assert (lab[name].phase, lab[name].creation_order) == ("Reserved", order)
    assert lab.promised_at("fragile") == 4 * HOUR
    assert lab.promise("fragile").slips == ()
    assert lab.promise("old").precedence > lab.promise("fragile").precedence  # behind promises already made


def test_15_provisional_run_that_completes_is_not_called_cancelled() -> None:
    lab = through()
    lab.submit(run("resumable", "org:a", 32, at=HOUR, checkpoint="10m"))
    ended = next(action for action in lab.finish("resumable").actions if action.promise is not None)
    assert (ended.kind, ended.cause.reason) == ("Supersede", Reason.FINISHED)
    assert "cancelled" not in str(ended.cause)


def test_15_who_waits_behind_a_promise_is_told_who_will_hold_the_gpus_then() -> None:
    """The fragile one is due when big may be drawn: old and resumable are gone by then, not at risk."""
    lab = through()
    lab.submit(run("resumable", "org:a", 32, at=HOUR, checkpoint="10m"))
    assert lab.remedies("fragile") == [("Lottery", 32, ["big"])]
    assert lab.forecast("fragile").odds == {"big-uid": 1000}
    assert set(lab.forecast("big").odds) == {"old-uid", "resumable-uid"}


def test_15_a_promise_that_comes_due_without_a_lottery_takes_what_will_be_free() -> None:
    """Of two nodes ``soon`` gets the one that comes free; ``far`` then waits for it or the other."""
    lab = Lab(nodes("nv-a", 2), budget("org:a", 64), budget("org:b", 64))
    lab.submit(run("short", "org:a", 8, max_duration="1h"), run("long", "org:a", 8))
    lab.submit(run("soon", "org:b", 8, at=1), run("far", "org:b", 16, at=2))
    assert (lab.promised_at("soon"), lab.promised_at("far")) == (HOUR, 3 * HOUR)
    assert lab.remedies("far") == [("Lottery", 16, ["long", "soon"])]


def test_15_provisional_work_is_in_nobodys_way_twice_here_and_where_it_is_promised() -> None:
    lab = Lab(nodes("nv-a", 2), budget("org:a", 64))
    lab.submit(run("first", "org:a", 8, max_duration="2h"))
    lab.submit(run("gang", "org:a", 16, at=1, max_duration="1h"))
    lab.submit(run("passing", "org:a", 8, at=2, checkpoint="30m", max_duration="20h"))
    assert (lab["passing"].provisional, lab.promised_at("passing")) == (True, 3 * HOUR)
    lab.advance(HOUR)
    lab.submit(run("next", "org:a", 8, at=HOUR, max_duration="10h"))
    assert (lab.promised_at("next"), lab.promise("next").disruption) == (3 * HOUR, 0), (
        "no lottery is needed then"
    )
    lab.live(3 * HOUR)
    assert [lab[name].phase for name in ("passing", "next")] == ["Running", "Running"], lab.story
    assert not any(one.decision.losers for one in lab.lotteries)


def settling(owner: str, *budgets: Budget) -> Lab:
    """A provisional Run whose promise is due in two hours, and nobody any longer to whom it gave way."""
    lab = Lab(nodes("nv-a", 2), budget("org:a", 8), *budgets, budget("g", envelope(8, start=HOUR)))
    lab.submit(run("long", "org:a", 8))
    lab.submit(run("guest", "g", 8, at=1, max_duration="1h"))
    lab.submit(run("passing", owner, 8, at=2, checkpoint="10m"))
    assert (lab["passing"].provisional, lab.promised_at("passing")) == (True, 2 * HOUR)
    lab.advance(MINUTE)
    lab.world.drop_run(("ns", "guest"))
    lab.settle()
    return lab


@pytest.mark.parametrize("name", ["q1", "q2", "q3", "q4", "q5", "q6"])
def test_15_who_settles_on_its_promise_is_not_drawn_at_that_instant(name: str) -> None:
    lab = settling("org:p", budget("org:p", 8), budget("org:q", 8))
    lab.submit(run(name, "org:q", 8, at=MINUTE))
    assert (lab.promised_at(name), lab.promise(name).disruption) == (2 * HOUR, 2)
    lab.live(2 * HOUR)
    assert [lab[one].phase for one in ("passing", name, "long")] == ["Running", "Running", "Reserved"]


def test_15_money_is_not_recalled_from_who_settles_on_its_promise_at_that_instant_but_then() -> None:
    lab = settling("org:kin", budget("org"), budget("org:kin"), budget("org:own", 8))
    lab.put(nodes("nv-b", 1))
    lab.world.advance_clock(T0 + 2 * HOUR)
    lab.submit(run("own", "org:own", 8, at=2 * HOUR))
    assert (lab["passing"].phase, lab["passing"].opportunistic_gpus, lab["own"].phase) == (
        "Running",
        0,
        "Reserved",
    )
    lab.live(2 * HOUR + SECOND)
    assert (lab["passing"].opportunistic_gpus, lab["own"].phase) == (8, "Running"), lab.story


def test_15_too_close_to_the_promise_nothing_starts_provisionally() -> None:
    """At least max(checkpoint, minNotice) must remain (R6): here 9 of the 10 minutes do."""
    lab = through()
    lab.advance(2 * HOUR - 9 * MINUTE)
    lab.submit(run("late", "org:a", 32, at=2 * HOUR - 9 * MINUTE, checkpoint="10m"))
    assert lab["late"].phase == "Reserved"


def test_15_what_is_certain_to_end_in_time_flows_around_the_promise() -> None:
    lab = through()
    lab.submit(run("short", "org:a", 32, at=HOUR, max_duration="1h"))
    lab.submit(run("long", "org:a", 32, at=HOUR, max_duration="61m"))
    assert (lab["short"].phase, lab["short"].provisional) == ("Running", False)
    assert lab["long"].phase == "Reserved"
    lab.live(2 * HOUR)
    assert lab["big"].phase == "Running"
    assert lab.promise("fragile").slips == ()


# Starting sooner (R7)


def test_what_comes_free_goes_at_once_to_whom_it_is_promised_though_others_are_promised_the_rest() -> None:
    """q1 takes nothing more from q2 by starting now than by starting when it is due."""
    lab = Lab(nodes("nv-a", 2), budget("org:a", 64), budget("org:b", 64))
    lab.submit(run("a1", "org:a", 8), run("a2", "org:a", 8))
    lab.submit(run("q1", "org:b", 8, at=1), run("q2", "org:b", 8, at=2))
    assert [lab.promised_at(name) for name in ("q1", "q2")] == [2 * HOUR, 4 * HOUR]
    lab.live(HOUR)
    lab.finish("a1")
    assert (lab["q1"].phase, lab["q2"].phase) == ("Running", "Reserved")
    assert (lab.promised_at("q2"), lab.promise("q2").slips) == (4 * HOUR, ())


def test_but_a_start_that_is_promised_for_later_waits_where_it_would_take_more_from_others() -> None:
    """q2 is due when q1 may be drawn; before that it would take what q1 counts on."""
    lab = Lab(nodes("nv-a", 2), budget("org:a", 64), budget("org:b", 64))
    lab.submit(run("a1", "org:a", 8), run("a2", "org:a", 8))
    lab.submit(run("q1", "org:b", 16, at=1), run("q2", "org:b", 8, at=2))
    assert [lab.promised_at(name) for name in ("q1", "q2")] == [2 * HOUR, 4 * HOUR]
    lab.live(HOUR)
    lab.finish("a1")
    assert (lab["q1"].phase, lab["q2"].phase) == ("Reserved", "Reserved")
    lab.live(2 * HOUR)
    assert (lab["q1"].phase, lab["q2"].phase) == ("Running", "Reserved")


# 16. No ping-pong


@pytest.mark.parametrize("on_notice", ["Ignore", "Checkpoint"])
def test_16_preemptions_become_rarer_and_nobody_waits_for_ever(on_notice: str) -> None:
    lab = seven(on_notice=on_notice)
    names = ("j1", "j2", "j3", "j4")
    lab.live(48 * HOUR)
    preempted = sorted(
        record.end - T0
        for record in lab.records.values()
        if record.end is not None and record.reason == "RandomPreempt"
    )
    losses = Counter(
        number
        for number, half in enumerate((24 * HOUR, 48 * HOUR))
        for at in preempted
        if half - 24 * HOUR < at <= half
    )
    assert losses[1] < losses[0], preempted
    for name in names:
        state = lab[name]
        shrinks = {end for reason, end in lab.endings(name) if reason == "Shrink"}
        assert len(lab.admissions["ns", name]) + len(shrinks) == state.attempt >= 1
        assert state.phase == "Running" or lab.promised_at(name) is not None
        assert not state.promise or state.promise.slips == (), state.promise
    for record in lab.lotteries:
        assert verify(sign(record, LOTTERY_KEY)) == []


def test_16_each_lottery_lost_doubles_the_time_before_the_next() -> None:
    """Immunity doubles with each lottery lost, at most 16-fold (R4)."""
    lab = seven()
    lab.live(48 * HOUR)
    for name in ("j1", "j2", "j3", "j4"):
        mine = [record for record in lab.history(name) if record.lease.role == "Active"]
        ends = sorted({record.end for record in mine if record.end and record.reason == "RandomPreempt"})
        for lost, end in enumerate(ends):
            began = max(start for start in lab.admissions["ns", name] if start < end)
            assert end - began >= 2 * HOUR << min(lost, 4), (name, lost, lab.story)


# 17. The big one is not starved of money


def test_17_freed_money_is_kept_for_the_big_run_and_younger_ones_run_provisionally() -> None:
    lab = Lab(nodes("nv-a", 16), budget("org", 64))
    lab.submit(*(run(f"s{number}", "org", 8) for number in range(8)))
    lab.advance(MINUTE)
    lab.submit(run("big", "org", 64, at=MINUTE))
    assert (lab.promised_at("big"), lab.promise("big").funding) == (None, ((("org", "main"), 64),))
    for number in range(8):
        now = (number + 1) * HOUR
        lab.live(now)
        lab.finish(f"s{number}")
        if number == 7:
            break
        lab.submit(run(f"y{number}", "org", 8, at=now, checkpoint="10m"))
        assert (lab[f"y{number}"].phase, lab[f"y{number}"].provisional) == ("Running", True)
        lab.submit(run(f"z{number}", "org", 8, at=now))
        assert lab[f"z{number}"].phase == "Reserved"  # C12: no overtaking with money
        assert lab.envelope("org").account.charge == 64_000
    assert (lab["big"].phase, lab["big"].width) == ("Running", 64)
    assert lab.admissions["ns", "big"] == [T0 + 8 * HOUR]
    for number in range(7):
        assert lab.endings(f"y{number}") == [("Reclaimed", 8 * HOUR)]
        assert lab[f"y{number}"].phase == "Reserved"


def test_17_a_provisional_run_that_is_done_stays_done() -> None:
    """What ended is not ended again for the Run that the money is kept for."""
    lab = Lab(nodes("nv-a", 16), budget("org", 16))
    lab.submit(run("a", "org", 8), run("b", "org", 8), run("big", "org", 16, at=1))
    lab.advance(HOUR)
    lab.finish("a")
    lab.submit(run("y", "org", 8, at=HOUR, checkpoint="10m"))
    assert lab["y"].provisional
    lab.advance(2 * HOUR)
    lab.finish("y")
    assert not lab.world.provisional_runs
    lab.finish("b")
    assert (lab["big"].phase, lab["y"].phase) == ("Running", "Completed")


# What holds between promises, however late things are noticed


def test_a_promise_made_later_at_the_same_instant_ranks_behind_whatever_the_order_of_the_runs() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", 64))
    lab.submit(run("first", "org", 8))
    lab.submit(run("r9", "org", 8))
    lab.submit(run("r10", "org", 8))  # by name it comes before r9
    assert lab["r10"].creation_order < lab["r9"].creation_order
    assert lab.promise("r10").precedence > lab.promise("r9").precedence
    assert (lab.promised_at("r9"), lab.promised_at("r10")) == (2 * HOUR, 4 * HOUR)


def test_a_promise_that_is_noticed_late_comes_after_all_that_was_due_meanwhile() -> None:
    """The start takes effect now, but hours ran out two hours after T0: no overdraft (C7)."""
    lab = Lab(nodes("nv-a", 2), budget("org:a", envelope(16, maxGPUHours=32)), budget("org:b", 8))
    lab.submit(run("a", "org:a", 16, malleable=(8, 16, 8)))
    lab.submit(run("b", "org:b", 8, at=1))
    assert lab.promised_at("b") == MINUTE
    lab.advance(9 * HOUR)
    assert lab.endings("a")[0] == ("BudgetExhausted", 2 * HOUR)
    account = lab.envelope("org-a").account
    assert account.used(lab.world.now) == account.max_use
    assert (lab["b"].phase, lab.admissions["ns", "b"]) == ("Running", [T0 + 9 * HOUR])


def test_a_budget_that_would_keep_a_run_going_changes_when_its_gpus_are_certain_to_be_free() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", 8), budget("org:a", envelope(8, sharing="none", end=HOUR)))
    lab.world.drop_budget("org")
    lab.put(budget("lab", 8))
    lab.submit(run("a", "org:a", 8))
    lab.submit(run("b", "lab", 8, at=1))
    assert lab.promised_at("b") == HOUR
    lab.put(budget("org", 8))  # now a's family can pay for it when its own window closes
    lab.settle()
    assert lab.promised_at("b") == 2 * HOUR
    assert [slip.reason for slip in lab.promise("b").slips] == ["CrowdedOut"]


def test_promises_fill_one_island_before_they_touch_the_next_as_runs_do() -> None:
    """Each of them takes 8 GPUs by lottery wherever it goes: then pack order decides (R1, P3)."""
    two_islands = (nodes("nv-a", 2), nodes("nv-b", 2), budget("org:a", 32), budget("org:b", 32))
    lab = Lab(*two_islands, policy=Policy(peace_ms=0))
    lab.submit(*(run(f"holder-{number}", "org:a", 8) for number in range(4)))
    lab.submit(*(run(f"wanted-{number}", "org:b", 8, at=1) for number in range(3)))
    islands = [lab.promise(f"wanted-{number}").domain_gpus[0][0][-4:] for number in range(3)]
    assert islands == ["nv-a", "nv-a", "nv-b"]
