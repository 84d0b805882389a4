"""What others would have to give back is looked at when a Run arrives, and in sweeps (R14)."""

from jobtree.api.kinds.policy import Policy
from jobtree.api.schema.quantities import HOUR, MINUTE
from tests.unit.core.build import T0, budget, node, nodes, run
from tests.unit.core.lab import Lab


def family(policy: Policy | None = None) -> Lab:
    """One node in use by a relative on the owner's budget, and a Run of the owner that lacks room as well."""
    lab = Lab(nodes("nv-a", 1), budget("org", 8), budget("org:kin", 1), policy=policy)
    lab.submit(run("kin", "org:kin", 8))
    lab.submit(run("own", "org", 8, at=1))
    assert (lab.paid("kin"), lab.phase("own")) == ({"Shared org/main": 8}, "Pending")
    return lab


def test_an_owner_recalls_in_the_next_sweep_what_room_would_have_let_it_recall_now() -> None:
    lab = family()
    lab.advance(MINUTE)
    lab.put(node("nv-a-99", domain="nv-a"))
    lab.settle()
    assert (lab.phase("own"), lab.paid("kin")) == ("Pending", {"Shared org/main": 8})
    lab.sweep()
    assert lab.world.now == T0 + 5 * MINUTE
    assert (lab.paid("own"), lab.phase("kin")) == ({"Owned org/main": 8}, "Running")


def test_the_policy_sets_the_interval_of_sweeps() -> None:
    lab = family(Policy(sweep_ms=2 * MINUTE))
    lab.put(node("nv-a-99", domain="nv-a"))
    lab.live(2 * MINUTE - 1)
    assert lab.phase("own") == "Pending"
    lab.live(2 * MINUTE)
    assert lab.phase("own") == "Running"


def test_an_owner_that_arrives_recalls_at_once() -> None:
    lab = Lab(nodes("nv-a", 2), budget("org", 8), budget("org:kin", 1))
    lab.submit(run("kin", "org:kin", 8))
    lab.submit(run("own", "org", 8, at=1))
    assert lab.paid("own") == {"Owned org/main": 8}


def test_an_edited_run_is_looked_at_like_one_that_arrives() -> None:
    lab = family()
    lab.put(node("nv-a-99", domain="nv-a"))
    lab.settle()
    lab.put(run("own", "org", 8, at=1, max_duration="1h"))
    lab.settle()
    assert lab.phase("own") == "Running"


def test_a_start_that_takes_nothing_from_others_waits_for_no_sweep() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", 16))
    lab.submit(run("first", "org", 8), run("second", "org", 8, at=1))
    lab.advance(MINUTE)
    lab.put(node("nv-a-99", domain="nv-a"))
    lab.settle()
    assert lab.phase("second") == "Running"


def paid_in_part() -> Lab:
    """A gang on two nodes, of which its budget pays for one, and a Run of another team that needs both."""
    lab = Lab(nodes("nv-a", 2), nodes("nv-b", 1), budget("org", 16), budget("lab", 16))
    lab.submit(run("gang", "org", 16, spread=False), run("beside", "lab", 8))
    lab.put(budget("org", 8))
    lab.settle()
    assert (lab["gang"].is_partly_opportunistic, lab["gang"].opportunistic_gpus) == (True, 8)
    return lab


def test_a_gang_that_is_paid_in_part_gives_way_to_a_run_that_arrives() -> None:
    lab = paid_in_part()
    lab.finish("beside")
    lab.submit(run("other", "lab", 16, at=1, spread=False))
    assert (lab.phase("other"), lab.phase("gang")) == ("Running", "Pending")


def test_a_gang_that_is_paid_in_part_gives_way_to_a_waiting_run_in_a_sweep() -> None:
    lab = paid_in_part()
    lab.submit(run("other", "lab", 16, at=1, spread=False))
    lab.finish("beside")  # now there is budget for the whole of it
    assert (lab.phase("other"), lab.phase("gang")) == ("Pending", "Running")
    lab.sweep()
    assert (lab.phase("other"), lab.phase("gang")) == ("Running", "Pending")


def test_nobody_sweeps_while_no_run_waits() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", 8))
    lab.submit(run("only", "org", 8))
    assert lab.world.timers.next_instant() is None


def test_a_world_in_which_nothing_happens_is_swept_once() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", 8))
    lab.submit(run("first", "org", 8, max_duration="1d"), run("second", "org", 8, at=1, max_duration="1d"))
    due = lab.world.timers.next_instant()
    assert due == T0 + 5 * MINUTE
    lab.advance(5 * MINUTE)
    assert lab.world.timers.next_instant() == T0 + (lab.promised_at("second") or 0) > T0 + HOUR
    lab.submit(run("third", "org", 8, at=2))
    lab.put(node("nv-a-99", domain="nv-a"))
    lab.settle()
    assert lab.world.timers.next_instant() == T0 + 10 * MINUTE
