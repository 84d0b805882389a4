"""explain and leases: what a Run held, when, and who paid."""

from tests.unit.cli.desk import Desk, budget, envelope, nodes, run


def test_the_story_of_a_run_in_the_order_in_which_it_happened(desk: Desk) -> None:
    desk.cluster(*nodes(1), budget("lab", envelope(8, maxGPUHours=8)))
    desk.submit(run("train"))
    desk.runs("advance", "90m")
    desk.runs("complete", "train")
    lines = desk.runs("explain", "train").out.splitlines()
    assert lines[0] == "default/train is Completed since 2026-01-05T10:30:00Z (0s)"
    held = lines[lines.index("Leases:") + 1 : lines.index("Who paid:")]
    assert [line.split()[:3] for line in held] == [
        ["2026-01-05T09:00:00Z", "Start", "+8"],
        ["2026-01-05T10:00:00Z", "BudgetExhausted", "-8"],
        ["2026-01-05T10:00:00Z", "Demote", "+8"],
        ["2026-01-05T10:30:00Z", "Completed", "-8"],
    ]
    assert lines[lines.index("Who paid:") + 1 :] == [
        "  Opportunistic  no envelope, recorded under lab/own of org:lab: 4 GPU-hours in all",
        "  Owned          lab/own of org:lab: 8 GPU-hours in all",
    ]


def test_a_waiting_run_has_all_its_reasons_and_no_leases(desk: Desk) -> None:
    desk.submit(run("train", 64))
    out = desk.runs("explain", "train").out
    assert "Why:\n  ConcurrencyExhausted: " in out
    assert "  NoFreeSlots: " in out
    assert "Leases:" not in out


def test_many_leases_that_move_together_are_told_once(desk: Desk) -> None:
    desk.cluster(*nodes(8), budget("lab", envelope(64)))
    desk.submit(run("train", 32, locality={"groupGPUs": 8}, spares=1))
    out = desk.runs("explain", "train").out
    assert "Start  +32 GPUs, Owned, paid by lab/own: it started (a01" in out
    assert "spare GPUs, Owned, paid by lab/own: it started" in out
    assert len(desk.runs("leases", "train", "-o", "name").out.splitlines()) > 4


def test_leases_outlive_their_run(desk: Desk) -> None:
    desk.submit(run("train"))
    desk.runs("advance", "1h")
    answer = desk.runs("cancel", "train")
    assert answer.out == "default/train is cancelled\n"
    assert desk.runs("explain", "train").code == 3
    table = desk.runs("leases", "train")
    assert table.code == 0
    assert "2026-01-05T10:00:00Z  Start   Cancelled" in table.out
    assert desk.runs("leases", "train", "--open").out == "no leases\n"


def test_a_run_of_the_same_name_has_its_own_story(desk: Desk) -> None:
    desk.submit(run("train"))
    desk.runs("advance", "1h")
    desk.runs("cancel", "train")
    desk.submit(run("train"))
    out = desk.runs("explain", "train").out
    assert "2026-01-05T09:00:00Z" not in out
    assert len(desk.runs("leases", "train", "-o", "name").out.splitlines()) == 2


def test_open_leases_of_a_team(desk: Desk) -> None:
    desk.cluster(*nodes(3), budget("lab", envelope(64)), budget("other", envelope(8)))
    desk.submit(run("first"), run("second", 4), run("third", owner="org:other"))
    desk.runs("complete", "first")
    assert len(desk.runs("leases", "--owner", "org:lab").out.splitlines()) == 3
    assert len(desk.runs("leases", "--owner", "org:lab", "--open").out.splitlines()) == 2


def test_wide_tables_show_all(desk: Desk) -> None:
    desk.submit(run("train"))
    assert "LEASE" in desk.runs("leases", "train", "-o", "wide").out
    state = desk.runs("state", "-o", "wide").out
    assert "Admitted: 8 GPUs, paid by lab/own" in state
    assert "lab/own (Owned 8)" in state


def test_slots_of_nodes_in_a_row_are_run_together(desk: Desk) -> None:
    desk.cluster(*nodes(4), budget("lab", envelope(64)))
    desk.submit(run("train", 32))
    assert "a01-a04#0-7" in desk.runs("leases", "train").out


def test_domains_are_named_in_full_where_fabrics_repeat(desk: Desk) -> None:
    first, second = nodes(2)
    first["metadata"]["labels"]["region"] = "east"
    second["metadata"]["labels"]["region"] = "west"
    desk.cluster(first, second, budget("lab", envelope(64)))
    desk.submit(run("train"))
    assert "east/-/nv-a" in desk.runs("state").out
