"""Promised starts, as the verbs print them."""

from pathlib import Path

import pytest

from jobtree.api.documents.document_stream import read_documents
from tests.unit.cli.cli_runner import CliRunner
from tests.unit.cli.manifests import Body, budget, envelope, lasting, node, nodes, run

ELASTIC = {"minTotalGPUs": 8, "maxTotalGPUs": 24, "stepGPUs": 8}


@pytest.fixture(name="full")
def _full(cli: CliRunner) -> CliRunner:
    """Scenario 7 after j4 was submitted."""
    cli.write_cluster(*nodes(9), budget("a", envelope(64)), budget("b", envelope(64)))
    cli.submit(
        run("j1", 32, "org:a", runtime={"checkpoint": "30m"}),
        run("j2", 24, "org:b", malleable=ELASTIC),
        run("j3", 8, "org:a", runtime={"checkpoint": "10m"}),
    )
    cli.runs("advance", "2h")
    cli.submit(run("j4", 32, "org:b"))
    return cli


def facts(text: str) -> dict[str, str]:
    """Returns the facts of the only Reservation in the output."""
    _, _, section = text.partition("Reservation ")
    lines = [line for line in section.splitlines()[1:] if line.startswith("    ")]
    return {line[4:21].strip(): line[21:] for line in lines}


@pytest.mark.parametrize("words", [["plan", "j4"], ["explain", "j4"]])
def test_plan_and_explain_print_the_facts_of_a_promise(full: CliRunner, words: list[str]) -> None:
    assert facts(full.runs(*words).out) == {
        "earliestStart": "2026-01-05T11:30:00Z (in 30m00s), guaranteed",
        "intendedSlice": "domain=nv-a (nodes a01-a09)",
        "width": "32 GPUs in pods of 8",
        "paid by": "b/own (32)",
        "deficit": "24 GPUs in domain=nv-a",
        "conflictSet": "[run/j1, run/j2, run/j3]",
        "remedies": "shrink j2 (16), lottery conflict set [j1, j2, j3] (8)",
        "odds": "of being stopped: default/j1 0.667, default/j2 0.167, default/j3 0.167",
    }


def test_plan_of_a_file_prints_the_promise_and_does_not_make_it(full: CliRunner) -> None:
    before = full.state.read_bytes()
    promise = facts(full.runs("plan", "-f", full.write_file("new.yaml", run("j5", 8, "org:b"))).out)
    assert promise["paid by"] == "b/own (8)"
    assert full.state.read_bytes() == before


def test_conflict_set_has_namespaces_when_names_repeat(cli: CliRunner) -> None:
    cli.write_cluster(*nodes(2), budget("a", envelope(16)), budget("b", envelope(16)))
    cli.submit(run("twin", 8, "org:a", namespace="one"), run("twin", 8, "org:a", namespace="two"))
    cli.runs("advance", "2h")
    cli.submit(run("wide", 16, "org:b"))
    promise = facts(cli.runs("plan", "wide").out)
    assert promise["conflictSet"] == "[run/one/twin, run/two/twin]"
    assert promise["remedies"] == "lottery conflict set [one/twin, two/twin] (16)"


def test_reservations_are_listed_by_date(full: CliRunner) -> None:
    full.submit(run("late", 256, "org:b"))
    rows = [line.split() for line in full.runs("reservations").out.splitlines()]
    due = "2026-01-05T11:30:00Z"
    assert rows[1] == ["default/j4-1", "j4", due, "30m00s", "nv-a", "32", "24", "3", "Pending"]
    assert rows[2][:3] == ["default/late-1", "late", "none"]
    assert full.runs("reservations", "--owner", "org:a").out == "no Reservations\n"
    assert len(full.runs("reservations", "--owner", "org:b", "-o", "json").json()["items"]) == 2
    assert full.runs("reservations", "-n", "elsewhere").out == "no Reservations\n"


def test_ended_reservations_are_listed_with_all(full: CliRunner) -> None:
    full.runs("cancel", "j4")
    assert full.runs("reservations").out == "no Reservations\n"
    assert full.runs("reservations", "--all").out.splitlines()[1].endswith("Cancelled")


def test_state_prints_the_eta_of_waiting_runs(full: CliRunner) -> None:
    titles, *rows = full.runs("state").out.splitlines()
    assert titles.split()[-2:] == ["REASON", "ETA"]
    assert rows[3].split()[-2:] == ["NoFreeSlots", "2026-01-05T11:30:00Z"]


def test_explain_and_watch_print_the_risk_of_a_run(full: CliRunner) -> None:
    explained = full.runs("explain", "j1").out
    assert "At risk:\n  2026-01-05T11:30:00Z (in 30m00s)  reservation j4-1: it is stopped with" in explained
    watched = full.runs("watch", "j3", "--once").out
    assert "at risk: j4-1 at 2026-01-05T11:30:00Z, kill probability 0.167" in watched
    assert "reservation j4-1 starts it in 30m00s" in full.runs("watch", "j4", "--once").out


def test_plan_prints_a_slip_with_its_reason(cli: CliRunner) -> None:
    cli.write_cluster(*nodes(4), budget("lab", envelope(16)), budget("b", envelope(32)))
    cli.submit(run("old", 16, runtime={"maxDuration": "1h"}))
    cli.submit(run("wide", 32, "org:b"))
    cli.runs("fail", "a04")
    assert "NodesLost" in facts(cli.runs("plan", "wide").out)["slipped"]


def test_plan_prints_the_gpus_of_each_domain_of_a_slice(cli: CliRunner) -> None:
    cli.write_cluster(node("a1", "A"), node("b1", "B"), budget("lab", envelope(8)), budget("b", envelope(16)))
    cli.submit(run("old", 8, runtime={"maxDuration": "1h"}))
    cli.submit(run("wide", 16, "org:b"))
    promise = facts(cli.runs("plan", "wide").out)
    assert promise["intendedSlice"] == "domain=A (nodes a1): 8 GPUs; domain=B (nodes b1): 8 GPUs"


def test_sample_reservation_is_activated_with_a_lottery(cli: CliRunner) -> None:
    sample = Path(__file__).parents[4] / "config" / "samples" / "reservations" / "nearly-full-cluster.yaml"
    cli.state.write_text(sample.read_text(encoding="utf-8"), encoding="utf-8")
    assert facts(cli.runs("plan", "translate").out)["remedies"] == (
        "shrink asr (16), lottery conflict set [asr, clip, probe] (8)"
    )
    assert "RandomPreempt" in cli.runs("advance", "30m").out
    assert cli.runs("explain", "translate", "--verify").code == 0
    bodies: list[Body] = [document.body for document in read_documents(cli.state.read_bytes(), "file")]
    waiting = [body for body in bodies if body["kind"] == "Run" and body["status"]["phase"] == "Reserved"]
    assert len(waiting) == 1


def test_expected_start_is_printed_when_past_durations_are_known(cli: CliRunner) -> None:
    cli.write_cluster(*nodes(1), budget("lab", envelope(8)), budget("b", envelope(8)))
    for number in range(5):
        cli.submit(lasting(run(f"past-{number}"), "10m"))
        cli.runs("advance", "10m")
    cli.submit(run("holder"))
    cli.submit(run("next", 8, "org:b"))
    promise = facts(cli.runs("plan", "next").out)
    assert promise["earliestStart"].startswith("2026-01-05T11:50:00Z")
    assert promise["expectedStart"] == "p50 2026-01-05T10:00:00Z, p90 2026-01-05T10:00:00Z"
    assert "2026-01-05T10:00:00Z" in cli.runs("reservations", "-o", "wide").out
    forecast = cli.saved("Reservation", "next-1")["status"]["forecast"]
    assert forecast["expectedStart"] == {"p50": "2026-01-05T10:00:00Z", "p90": "2026-01-05T10:00:00Z"}
    cli.runs("advance", "20m")  # the holder now runs longer than any past Run, so there is no forecast
    assert "expectedStart" not in facts(cli.runs("plan", "next").out)
