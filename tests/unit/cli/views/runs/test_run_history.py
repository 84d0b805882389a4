"""``explain`` and ``leases`` print the leases of a Run, with times and payers."""

from tests.unit.cli.cli_runner import CliRunner
from tests.unit.cli.manifests import budget, envelope, nodes, run


def test_explain_lists_lease_changes_in_order_of_time(cli: CliRunner) -> None:
    cli.write_cluster(*nodes(1), budget("lab", envelope(8, maxGPUHours=8)))
    cli.submit(run("train"))
    cli.runs("advance", "90m")
    cli.runs("complete", "train")
    lines = cli.runs("explain", "train").out.splitlines()
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


def test_explain_lists_all_reasons_of_a_waiting_run(cli: CliRunner) -> None:
    cli.submit(run("train", 64))
    out = cli.runs("explain", "train").out
    assert "Why:\n  ConcurrencyExhausted: " in out
    assert "  NoFreeSlots: " in out
    assert "Leases:" not in out


def test_explain_joins_leases_that_change_together(cli: CliRunner) -> None:
    cli.write_cluster(*nodes(8), budget("lab", envelope(64)))
    cli.submit(run("train", 32, locality={"groupGPUs": 8}, spares=1))
    out = cli.runs("explain", "train").out
    assert "Start  +32 GPUs, Owned, paid by lab/own: it started (a01" in out
    assert "spare GPUs, Owned, paid by lab/own: it started" in out
    assert len(cli.runs("leases", "train", "-o", "name").out.splitlines()) > 4


def test_leases_are_listed_after_their_run_was_cancelled(cli: CliRunner) -> None:
    cli.submit(run("train"))
    cli.runs("advance", "1h")
    answer = cli.runs("cancel", "train")
    assert answer.out == "default/train is cancelled\n"
    history = cli.runs("explain", "train")
    assert (history.code, "Cancelled: it was cancelled" in history.out) == (0, True)
    table = cli.runs("leases", "train")
    assert table.code == 0
    assert "2026-01-05T10:00:00Z  Start   Cancelled" in table.out
    assert cli.runs("leases", "train", "--open").out == "no leases\n"


def test_explain_leaves_out_leases_of_an_earlier_run_of_the_same_name(cli: CliRunner) -> None:
    cli.submit(run("train"))
    cli.runs("advance", "1h")
    cli.runs("cancel", "train")
    cli.submit(run("train"))
    out = cli.runs("explain", "train").out
    assert "2026-01-05T09:00:00Z" not in out
    assert len(cli.runs("leases", "train", "-o", "name").out.splitlines()) == 2


def test_leases_lists_open_leases_of_an_owner(cli: CliRunner) -> None:
    cli.write_cluster(*nodes(3), budget("lab", envelope(64)), budget("other", envelope(8)))
    cli.submit(run("first"), run("second", 4), run("third", owner="org:other"))
    cli.runs("complete", "first")
    assert len(cli.runs("leases", "--owner", "org:lab").out.splitlines()) == 3
    assert len(cli.runs("leases", "--owner", "org:lab", "--open").out.splitlines()) == 2


def test_wide_tables_show_all_columns(cli: CliRunner) -> None:
    cli.submit(run("train"))
    assert "LEASE" in cli.runs("leases", "train", "-o", "wide").out
    state = cli.runs("state", "-o", "wide").out
    assert "Admitted: 8 GPUs, paid by lab/own" in state
    assert "lab/own (Owned 8)" in state


def test_slots_of_consecutive_nodes_are_joined(cli: CliRunner) -> None:
    cli.write_cluster(*nodes(4), budget("lab", envelope(64)))
    cli.submit(run("train", 32))
    assert "a01-a04#0-7" in cli.runs("leases", "train").out


def test_domains_are_named_in_full_when_fabric_names_repeat(cli: CliRunner) -> None:
    first, second = nodes(2)
    first["metadata"]["labels"]["region"] = "east"
    second["metadata"]["labels"]["region"] = "west"
    cli.write_cluster(first, second, budget("lab", envelope(64)))
    cli.submit(run("train"))
    assert "east/-/nv-a" in cli.runs("state").out
