"""Timers: which instants become due by themselves, in which order, and how outdated timers are corrected."""

from typing import Any

import msgspec
import pytest

from jobtree.api.kinds.run import Follow
from jobtree.api.kubernetes.node import Node
from jobtree.api.schema.quantities import HOUR, MINUTE, SECOND
from jobtree.core.accounts.envelope_accounts import EnvelopeState
from jobtree.core.model.promise import Promise
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.timers import (
    STALE_RATIO,
    TimerKind,
    exhaustion_instants,
    funding_ends_at,
    may_grow_at,
)
from jobtree.core.world.world import World
from tests.unit.core.build import H100, NAMESPACE, T0, budget, cap, envelope, node, nodes, run, tree
from tests.unit.core.lab import Lab


def running(name: str = "r", **fields: Any) -> Lab:  # noqa: ANN401  fields of a Run
    """A lab in which a Run of 8 GPUs started at T0."""
    lab = Lab(nodes("nv-a", 2), budget("org", 16))
    lab.submit(run(name, "org", 8, **fields))
    assert lab.phase(name) == "Running"
    return lab


def first(lab: Lab) -> tuple[TimerKind, int] | None:
    """Returns the kind and the instant (after T0) of the first timer, sweeps aside."""
    lab.world.timers.schedule_sweep(None)
    timer = lab.world.timers.next_due(1 << 62)
    return None if timer is None else (timer[1][0], timer[0] - T0)


# The first timer


def test_next_instant_is_none_when_nothing_becomes_due() -> None:
    lab = running()
    assert (lab.world.timers.next_instant(), first(lab)) == (None, None)


def test_next_due_returns_only_a_timer_that_is_due_by_then() -> None:
    timers = running(max_duration="2h").world.timers
    assert timers.next_instant() == T0 + 2 * HOUR
    assert timers.next_due(T0 + 2 * HOUR - 1) is None
    assert timers.next_due(T0 + 2 * HOUR) == (T0 + 2 * HOUR, (TimerKind.RUN, NAMESPACE, "r"))


def test_first_timer_is_the_earliest_of_all() -> None:
    lab = running(max_duration="3h")
    lab.submit(run("shorter", "org", 4, max_duration="1h"), run("longer", "org", 4, max_duration="2h"))
    assert lab.world.timers.next_due(1 << 62) == (T0 + HOUR, (TimerKind.RUN, NAMESPACE, "shorter"))


def test_run_is_due_before_its_payer_at_the_same_instant() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", envelope(8, end=2 * HOUR)))
    lab.submit(run("r", "org", 8, max_duration="2h"))
    assert first(lab) == (TimerKind.RUN, 2 * HOUR)
    lab.world.runs[NAMESPACE, "r"].enter_phase("Completed", T0)
    assert first(lab) == (TimerKind.ENVELOPE, 2 * HOUR)


def test_timer_is_corrected_when_its_instant_has_moved_later() -> None:
    """No change schedules a later instant; the timer is corrected once it is first."""
    lab = running(max_duration="1h")
    lab["r"].apply_edit(run("r", "org", 8, max_duration="3h"))
    assert first(lab) == (TimerKind.RUN, 3 * HOUR)


def test_timer_moves_earlier_when_its_run_is_scheduled_again() -> None:
    lab = running(max_duration="3h")
    lab["r"].apply_edit(run("r", "org", 8, max_duration="1h"))
    lab.world.timers.schedule_run(lab["r"])
    assert first(lab) == (TimerKind.RUN, HOUR)


def test_timer_is_dropped_when_its_run_has_no_duration_any_more() -> None:
    lab = running(max_duration="1h")
    lab["r"].apply_edit(run("r", "org", 8))
    assert first(lab) is None
    assert lab.world.timers._scheduled == {}


def test_run_is_not_scheduled_any_more_when_it_has_no_instant() -> None:
    lab = running(max_duration="1h")
    lab["r"].enter_phase("Completed", T0)
    lab.world.timers.schedule_run(lab["r"])
    assert lab.world.timers._scheduled == {}


def test_outdated_timers_are_removed_when_there_are_too_many() -> None:
    lab = running(max_duration="100h")
    timers = lab.world.timers
    for hours in range(99, 0, -1):
        lab["r"].apply_edit(run("r", "org", 8, max_duration=f"{hours}h"))
        timers.schedule_run(lab["r"])
        assert len(timers._heap) <= STALE_RATIO * (len(timers._scheduled) + 1)
        assert first(lab) == (TimerKind.RUN, hours * HOUR)


# Runs and promises


def test_run_is_due_only_while_it_runs() -> None:
    lab = running(max_duration="1h")
    lab.finish("r")
    assert first(lab) is None


def promised() -> Lab:
    """A Run that is promised its start at the end of the running one, in an hour."""
    lab = Lab(nodes("nv-a", 1), budget("org", 16))
    lab.submit(run("full", "org", 8, max_duration="1h"), run("waiting", "org", 8, at=1))
    assert lab.promised_at("waiting") == HOUR
    lab["full"].enter_phase("Completed", T0)  # its own timer would be first
    return lab


def change_promise(lab: Lab, **fields: Any) -> None:  # noqa: ANN401  fields of a promise
    promise: Promise = msgspec.structs.replace(lab.promise("waiting"), **fields)
    lab["waiting"].set_promise(promise)
    lab.world.timers.schedule_run(lab["waiting"])


def test_promise_is_due_at_its_date() -> None:
    assert first(promised()) == (TimerKind.PROMISE, HOUR)


def test_overdue_promise_is_due_now() -> None:
    lab = promised()
    lab.world.timers.now = T0 + 3 * HOUR
    assert first(lab) == (TimerKind.PROMISE, 3 * HOUR)


def test_promise_without_a_date_is_never_due() -> None:
    lab = promised()
    change_promise(lab, at=None)
    assert first(lab) is None


def test_promise_is_never_due_when_its_run_is_finished() -> None:
    lab = promised()
    lab["waiting"].enter_phase("Failed", T0)
    assert first(lab) is None


def followed(**follow: Any) -> Lab:  # noqa: ANN401  fields of follow
    """A Run that waits for a failed Run."""
    lab = running("up")
    down = run("down", "org", 8, after=["up"])
    spec = msgspec.structs.replace(down.spec, follow=Follow(after=("up",), **follow))
    lab.submit(msgspec.structs.replace(down, spec=spec))
    lab.finish("up", succeeded=False)
    return lab


def test_waiting_run_is_due_when_the_grace_of_its_failed_upstream_ends() -> None:
    """J1: it fails then, unless somebody submits the upstream Run again."""
    lab = followed(upstream_failure_grace="10m")
    assert first(lab) == (TimerKind.FOLLOW, 10 * MINUTE)
    lab["down"].cancel()
    assert first(lab) is None


# Nodes


def unready_node(name: str, since: int) -> Node:
    return msgspec.structs.replace(node(name), not_ready_since_ms=since)


def test_node_is_due_when_its_grace_ends() -> None:
    world = World(now=T0)
    world.put_node(unready_node("n", T0 - MINUTE))
    at = T0 - MINUTE + world.policy.node_grace_ms
    assert world.timers.next_due(1 << 62) == (at, (TimerKind.NODE, "n", ""))


def test_node_is_not_due_when_it_is_ready_or_its_grace_has_ended() -> None:
    world = World(now=T0)
    world.put_node(node("ready"))
    world.put_node(unready_node("n", T0))
    world.advance_clock(T0 + world.policy.node_grace_ms)
    world.timers.schedule_node("n")
    assert world.timers.next_instant() is None


# Envelopes and quotas


def payer(lab: Lab, name: str = "main") -> EnvelopeState:
    return lab.world.budgets.envelopes["org", name]


def lab_with_leases(*grants: dict[str, object], caps: list[dict[str, object]] | None = None) -> Lab:
    """An open-ended Run of 8 GPUs, which the first of these envelopes pays for."""
    lab = Lab(nodes("nv-a", 2), budget("org", *grants, caps=caps))
    lab.submit(run("r", "org", 8))
    assert lab.phase("r") == "Running"
    return lab


def test_envelope_is_due_when_its_window_opens() -> None:
    assert first(Lab(budget("org", envelope(8, start=HOUR, end=3 * HOUR)))) == (TimerKind.ENVELOPE, HOUR)


def test_envelope_is_due_when_its_window_closes_only_while_it_pays() -> None:
    grant = envelope(8, end=3 * HOUR)
    assert first(Lab(budget("org", grant))) is None
    assert first(lab_with_leases(grant)) == (TimerKind.ENVELOPE, 3 * HOUR)


@pytest.mark.parametrize(
    ("grant", "caps", "end"),
    [
        (envelope(8), None, None),
        (envelope(8, maxGPUHours=16), None, 2 * HOUR),
        (envelope(8, maxGPUHours=16, end=HOUR), None, HOUR),
        (envelope(8, maxCredits=24), None, 3 * HOUR),
        (envelope(8), [cap("c", "main", flavor=H100, maxGPUHours=32)], 4 * HOUR),
        (envelope(8), [cap("c", "main", maxCredits=40)], 5 * HOUR),
        (envelope(8, maxGPUHours=64), [cap("c", "main", maxCredits=40)], 5 * HOUR),
    ],
    ids=["no limit", "hours", "window first", "credits", "hours of a cap", "credits of a cap", "first limit"],
)
def test_funding_of_open_ended_leases_ends_at_the_first_limit(
    grant: dict[str, object], caps: list[dict[str, object]] | None, end: int | None
) -> None:
    lab = lab_with_leases(grant, caps=caps)
    assert funding_ends_at(payer(lab)) == (None if end is None else T0 + end)
    assert first(lab) == (None if end is None else (TimerKind.ENVELOPE, end))


def test_limit_that_others_use_up_ends_nothing_when_all_leases_are_declared() -> None:
    caps = [cap("c", "a", "b", flavor=H100, maxGPUHours=80)]
    lab = Lab(nodes("nv-a", 2), budget("org", envelope(8, "a"), envelope(8, "b"), caps=caps))
    lab.submit(run("declared", "org", 8, max_duration="2h"))
    lab.submit(run("open-ended", "org", 8, at=1))
    assert list(exhaustion_instants(payer(lab, "a"))) == []
    assert funding_ends_at(payer(lab, "a")) is None
    assert funding_ends_at(payer(lab, "b")) == T0 + 8 * HOUR


def test_lending_hours_end_only_borrowed_leases() -> None:
    lending = {"allow": True, "to": ["*"], "maxGPUHours": 16}
    lab = Lab(nodes("nv-a", 1), budget("org", envelope(8, lending=lending, maxGPUHours=80)))
    lab.submit(run("r", "guest", 8, sponsors=["org"]))
    assert sorted(exhaustion_instants(payer(lab))) == [(T0 + 2 * HOUR, True), (T0 + 10 * HOUR, False)]


def test_funding_ends_no_earlier_than_the_edit_that_ended_it() -> None:
    lab = lab_with_leases(envelope(8))
    lab.world.advance_clock(T0 + 3 * HOUR)
    lab.world.put_budget(budget("org", envelope(8, maxGPUHours=8)))
    assert first(lab) == (TimerKind.ENVELOPE, 3 * HOUR)


def test_envelopes_under_one_cap_are_scheduled_together() -> None:
    """A lease of one envelope brings the end of the cap nearer for the leases of the other."""
    caps = [cap("c", "a", "b", flavor=H100, maxGPUHours=80)]
    lab = Lab(nodes("nv-a", 2), budget("org", envelope(8, "a"), envelope(8, "b"), caps=caps))
    lab.submit(run("first", "org", 8))
    assert first(lab) == (TimerKind.ENVELOPE, 10 * HOUR)
    lab.submit(run("second", "org", 8, at=1))
    assert first(lab) == (TimerKind.ENVELOPE, 5 * HOUR)
    ends = {subject[2]: at - T0 for subject, at in lab.world.timers._scheduled.items()}
    assert ends == {"a": 5 * HOUR, "b": 5 * HOUR}


def test_quota_is_due_when_its_hours_run_out() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", 8))
    stages = [{"name": "s", "resources": {"gpuType": H100, "totalGPUs": 8}}]
    lab.submit(tree("t", "org", stages, quota={"maxGPUHours": 24}))
    assert lab.world.timers.next_due(1 << 62) == (T0 + 3 * HOUR, (TimerKind.QUOTA, NAMESPACE, "t"))


# Growth, recalls and payers


def test_run_that_wants_to_grow_is_due_once_in_a_checkpoint_interval() -> None:
    """E1; the Run started an hour after T0, and its nodes are full."""
    lab = Lab(nodes("nv-a", 1), budget("org", 16))
    lab.world.advance_clock(T0 + HOUR)
    lab.submit(run("r", "org", 8, malleable=(8, 16, 8), checkpoint="30m"))
    assert may_grow_at(lab["r"]) == T0 + HOUR + 30 * MINUTE
    assert first(lab) == (TimerKind.GROWTH, HOUR + 30 * MINUTE)
    lab.world.advance_clock(T0 + HOUR + 30 * MINUTE)
    assert first(lab) is None, "it may grow from now on"


def test_run_that_lacks_no_gpus_is_not_due_for_growth() -> None:
    assert first(running(malleable=(8, 8, 8))) is None


def test_run_without_a_checkpoint_that_lacks_a_spare_is_due_after_a_minute() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", 16))
    lab.submit(run("r", "org", 8, per_pod=8, spares=1))
    assert first(lab) == (TimerKind.GROWTH, MINUTE)


def test_family_charge_of_a_promised_start_is_due_after_a_second_and_its_slots_after_half_an_hour() -> None:
    """R5: until then, the owner that pays cannot recall it, and cannot take its slots."""
    lab = Lab(nodes("nv-a", 1), budget("org"), budget("org:own", 8), budget("org:kin"))
    lab.submit(run("earlier", "org:own", 8, max_duration="1h"), run("kin", "org:kin", 8, at=1))
    lab.live(HOUR)
    assert lab.paid("kin") == {"Shared org-own/main": 8}
    assert first(lab) == (TimerKind.RECALL, HOUR + SECOND)
    lab.world.advance_clock(T0 + HOUR + SECOND)
    assert first(lab) == (TimerKind.RECALL, HOUR + 30 * MINUTE)
    lab.world.advance_clock(T0 + HOUR + 30 * MINUTE)
    assert first(lab) is None


def opportunistic() -> tuple[Lab, RunState]:
    lab = Lab(nodes("nv-a", 1), budget("org", 1))
    lab.submit(run("r", "org", 8, opportunistic=True))
    assert lab["r"].opportunistic_gpus == 8
    return lab, lab["r"]


def test_opportunistic_run_is_due_when_its_gpus_may_find_a_payer() -> None:
    lab, state = opportunistic()
    state.set_payable_at(T0 + HOUR)
    lab.world.timers.schedule_run(state)
    assert first(lab) == (TimerKind.REPAY, HOUR)


def test_run_is_not_due_for_a_payer_when_it_has_no_opportunistic_gpus_any_more() -> None:
    lab, state = opportunistic()
    state.set_payable_at(T0 + HOUR)
    lab.world.timers.schedule_run(state)
    for name in list(state.leases):
        lab.world.open_leases.undo_open(name)
    assert first(lab) is None


def test_timers_of_a_run_are_dropped_when_it_is_deleted() -> None:
    lab = followed(upstream_failure_grace="10m")
    lab.world.drop_run((NAMESPACE, "down"))
    assert lab.world.timers._scheduled == {}
    assert first(lab) is None
