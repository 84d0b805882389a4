"""Promised starts that last: by whom they are paid, and when their Run may be stopped (R5, R7, C11)."""

import msgspec

from jobtree.api.schema.quantities import HOUR, MINUTE
from jobtree.core.reporting.object_status import KnownRisks, run_status
from jobtree.core.runs.notice import immune_until
from jobtree.core.runs.run_state import RunState
from tests.unit.core.build import T0, budget, node, nodes, run
from tests.unit.core.lab import Lab

FAMILY = (budget("org"), budget("org:a", 8), budget("org:b", 8), budget("org:kin"))


def test_a_promised_start_is_paid_by_its_own_envelope_and_the_family_moves() -> None:
    """A relative uses a's envelope when the promise is due, and b's is free: the relative is paid by b then.

    The relative runs on nodes of 4 GPUs, so a recall before that makes no room for a pod of 8.
    """
    lab = Lab(nodes("nv-a", 2), nodes("nv-s", 2, gpus=4), *FAMILY, budget("x", 8))
    lab.submit(run("busy", "org:b", 8))
    lab.submit(run("guest", "x", 8, at=1, max_duration="1h"))
    lab.submit(run("kin", "org:kin", 8, at=2, per_pod=4))
    lab.submit(run("mine", "org:a", 8, at=3))
    assert (lab.paid("kin"), lab.promised_at("mine")) == ({"Shared org-a/main": 8}, HOUR)
    (place,) = lab.on("busy")
    lab.put(node(place, cordoned=True))
    lab.finish("busy")
    lab.live(HOUR)
    assert lab.paid("mine") == {"Owned org-a/main": 8}
    assert lab.paid("kin") == {"Shared org-b/main": 8}


def family_pays_early() -> Lab:
    """A Run of a is promised a's envelope in two hours. After 70 minutes b's envelope and a node are free."""
    lab = Lab(nodes("nv-a", 3), *FAMILY, budget("x", 8))
    lab.submit(run("first", "org:a", 8, max_duration="2h"))
    lab.submit(run("busy", "org:b", 8, at=1))
    lab.submit(run("guest", "x", 8, at=2, max_duration="1h"))
    lab.submit(run("mine", "org:a", 8, at=3, checkpoint="10m"))
    assert lab.promised_at("mine") == 2 * HOUR
    lab.live(70 * MINUTE)
    lab.finish("busy")
    return lab


def test_a_firm_promise_is_kept_while_the_family_pays_for_an_early_start() -> None:
    lab = family_pays_early()
    assert (lab.phase("mine"), lab.paid("mine")) == ("Running", {"Shared org-b/main": 8})
    assert (lab["mine"].provisional, lab.promised_at("mine")) == (False, 2 * HOUR)


def test_a_confirmed_run_is_paid_by_whom_it_was_promised() -> None:
    lab = family_pays_early()
    lab.live(2 * HOUR)
    assert (lab.phase("mine"), lab.paid("mine")) == ("Running", {"Owned org-a/main": 8})
    assert (lab["mine"].promise, lab["mine"].promised_start) == (None, T0 + 2 * HOUR)


def test_an_early_start_is_immune_as_if_it_began_at_its_promised_date() -> None:
    """Its immunity of two hours begins when it was promised to start, also after a restart of the manager."""
    lab = Lab(nodes("nv-a", 1), budget("org:a", 8), budget("x", 8))
    lab.submit(run("guest", "x", 8, max_duration="5h"))
    lab.submit(run("early", "org:a", 8, at=1))
    assert lab.promised_at("early") == 2 * HOUR
    lab.advance(HOUR)
    lab.finish("guest")
    early = lab["early"]
    assert (early.since, immune_until(lab.world.policy, early, lab.world.now)) == (T0 + HOUR, T0 + 4 * HOUR)
    status = run_status(lab.world, early, KnownRisks(lab.world.now))
    restarted = RunState(msgspec.structs.replace(early.run_object, status=status), lab.world.now)
    assert (restarted.since, restarted.promised_start) == (T0 + HOUR, T0 + 2 * HOUR)


def protected() -> Lab:
    """A relative's Run has its promised start on a's money. A minute later a needs money and place."""
    lab = Lab(nodes("nv-a", 1), budget("org"), budget("org:a", 8), budget("org:kin"), budget("x", 8))
    lab.submit(run("guest", "x", 8, max_duration="1h"))
    lab.submit(run("kin", "org:kin", 8, at=1))
    lab.live(HOUR + MINUTE)
    assert lab.paid("kin") == {"Shared org-a/main": 8}
    lab.submit(run("mine", "org:a", 8, at=HOUR + MINUTE))
    return lab


def test_a_promised_start_keeps_its_slots_for_half_an_hour() -> None:
    lab = protected()
    lab.live(HOUR + 30 * MINUTE - 1)
    assert (lab.phase("kin"), lab.phase("mine")) == ("Running", "Pending")
    lab.live(HOUR + 30 * MINUTE)
    assert (lab.phase("kin"), lab.paid("mine")) == ("Pending", {"Owned org-a/main": 8})
    assert lab.endings("kin")[-1] == ("Recalled", HOUR + 30 * MINUTE)


def test_the_owner_gets_its_budget_at_once_where_nobody_has_to_stop() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org"), budget("org:a", 8), budget("org:kin"), budget("x", 8))
    lab.submit(run("guest", "x", 8, max_duration="1h"))
    lab.submit(run("kin", "org:kin", 8, at=1))
    lab.live(HOUR + MINUTE)
    lab.put(nodes("nv-b", 1))
    lab.submit(run("mine", "org:a", 8, at=HOUR + MINUTE))
    assert lab.paid("mine") == {"Owned org-a/main": 8}
    assert (lab.phase("kin"), lab["kin"].opportunistic_gpus) == ("Running", 8)


def test_provisional_work_ends_where_the_other_free_nodes_are_promised_whole() -> None:
    """R6, X1: at its date ``two`` has room on a free node, but ``wide`` is promised all of that one."""
    lab = Lab(nodes("nv-a", 3), node("b", "nv-b", 2), budget("rich", 64), budget("a", 2), budget("e", 16))
    lab.submit(run("busy", "a", 2, max_duration="1h"))
    lab.put(node("b", "nv-b", 2, cordoned=True))
    lab.submit(run("base", "rich", 1), run("half", "rich", 7, at=1, max_duration="1h"))
    lab.submit(run("full", "rich", 8, at=2, max_duration="90m"), run("e", "e", 8, at=3, max_duration="90m"))
    lab.submit(run("wide", "e", 16, at=4), run("two", "a", 2, at=5))
    assert (lab.promised_at("wide"), lab.promised_at("two")) == (90 * MINUTE, HOUR)
    lab.live(20 * MINUTE)
    lab.finish("half", "full")
    lab.submit(run("filler", "rich", 7, at=20 * MINUTE, checkpoint="10m"))
    assert (lab["filler"].provisional, lab.on("filler").keys()) == (True, lab.on("base").keys())
    lab.live(HOUR)
    assert lab.paid("two") == {"Owned a/main": 2}, lab.story
    lab.live(90 * MINUTE)
    assert lab.paid("wide") == {"Owned e/main": 16}, lab.story
