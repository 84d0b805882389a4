"""Promised starts, as every verb shows them."""

from pathlib import Path

import pytest

from jobtree.api.documents.document_stream import read_documents
from tests.unit.cli.desk import Body, Desk, budget, envelope, lasting, node, nodes, run

ELASTIC = {"minTotalGPUs": 8, "maxTotalGPUs": 24, "stepGPUs": 8}


@pytest.fixture(name="full")
def _full(desk: Desk) -> Desk:
    """Scenario 7 at the moment when j4 has come."""
    desk.cluster(*nodes(9), budget("a", envelope(64)), budget("b", envelope(64)))
    desk.submit(
        run("j1", 32, "org:a", runtime={"checkpoint": "30m"}),
        run("j2", 24, "org:b", malleable=ELASTIC),
        run("j3", 8, "org:a", runtime={"checkpoint": "10m"}),
    )
    desk.runs("advance", "2h")
    desk.submit(run("j4", 32, "org:b"))
    return desk


def facts(text: str) -> dict[str, str]:
    """The facts of the one Reservation in the output."""
    _, _, told = text.partition("Reservation ")
    lines = [line for line in told.splitlines()[1:] if line.startswith("    ")]
    return {line[4:21].strip(): line[21:] for line in lines}


@pytest.mark.parametrize("words", [["plan", "j4"], ["explain", "j4"]])
def test_what_is_promised_in_the_words_of_the_contract(full: Desk, words: list[str]) -> None:
    assert facts(full.runs(*words).out) == {
        "earliestStart": "2026-01-05T11:30:00Z (in 30m00s), guaranteed",
        "slice": "domain=nv-a (nodes a01-a09)",
        "width": "32 GPUs in pods of 8",
        "paid by": "b/own (32)",
        "deficit": "24 GPUs in domain=nv-a",
        "conflict set": "[run/j1, run/j2, run/j3]",
        "remedies": "shrink j2 (16), lottery conflict set [j1, j2, j3] (8)",
        "odds": "of being stopped: default/j1 0.667, default/j2 0.167, default/j3 0.167",
    }


def test_a_plan_of_a_file_shows_it_too_and_makes_no_promise(full: Desk) -> None:
    before = full.state.read_bytes()
    found = facts(full.runs("plan", "-f", full.file("new.yaml", run("j5", 8, "org:b"))).out)
    assert found["paid by"] == "b/own (8)"
    assert full.state.read_bytes() == before


def test_runs_of_one_name_are_told_apart(desk: Desk) -> None:
    desk.cluster(*nodes(2), budget("a", envelope(16)), budget("b", envelope(16)))
    desk.submit(run("twin", 8, "org:a", namespace="one"), run("twin", 8, "org:a", namespace="two"))
    desk.runs("advance", "2h")
    desk.submit(run("wide", 16, "org:b"))
    found = facts(desk.runs("plan", "wide").out)
    assert found["conflict set"] == "[run/one/twin, run/two/twin]"
    assert found["remedies"] == "lottery conflict set [one/twin, two/twin] (16)"


def test_the_backlog_next_to_start_first(full: Desk) -> None:
    full.submit(run("late", 256, "org:b"))
    rows = [line.split() for line in full.runs("reservations").out.splitlines()]
    due = "2026-01-05T11:30:00Z"
    assert rows[1] == ["default/j4-1", "j4", due, "30m00s", "nv-a", "32", "24", "3", "Pending"]
    assert rows[2][:3] == ["default/late-1", "late", "none"]
    assert full.runs("reservations", "--owner", "org:a").out == "no Reservations\n"
    assert len(full.runs("reservations", "--owner", "org:b", "-o", "json").json()["items"]) == 2
    assert full.runs("reservations", "-n", "elsewhere").out == "no Reservations\n"


def test_those_that_ended_are_listed_on_request(full: Desk) -> None:
    full.runs("cancel", "j4")
    assert full.runs("reservations").out == "no Reservations\n"
    assert full.runs("reservations", "--all").out.splitlines()[1].endswith("Cancelled")


def test_the_eta_of_every_waiting_run(full: Desk) -> None:
    titles, *rows = full.runs("state").out.splitlines()
    assert titles.split()[-2:] == ["REASON", "ETA"]
    assert rows[3].split()[-2:] == ["NoFreeSlots", "2026-01-05T11:30:00Z"]


def test_who_may_lose_is_told(full: Desk) -> None:
    told = full.runs("explain", "j1").out
    assert "At risk:\n  2026-01-05T11:30:00Z (in 30m00s)  reservation j4-1: it is stopped with" in told
    watched = full.runs("watch", "j3", "--once").out
    assert "at risk: j4-1 at 2026-01-05T11:30:00Z, kill probability 0.167" in watched
    assert "reservation j4-1 starts it in 30m00s" in full.runs("watch", "j4", "--once").out


def test_a_slip_is_shown_with_its_reason(desk: Desk) -> None:
    desk.cluster(*nodes(4), budget("lab", envelope(16)), budget("b", envelope(32)))
    desk.submit(run("old", 16, runtime={"maxDuration": "1h"}))
    desk.submit(run("wide", 32, "org:b"))
    desk.runs("fail", "a04")
    assert "NodesLost" in facts(desk.runs("plan", "wide").out)["slipped"]


def test_a_slice_over_several_domains_says_how_much_is_where(desk: Desk) -> None:
    desk.cluster(node("a1", "A"), node("b1", "B"), budget("lab", envelope(8)), budget("b", envelope(16)))
    desk.submit(run("old", 8, runtime={"maxDuration": "1h"}))
    desk.submit(run("wide", 16, "org:b"))
    found = facts(desk.runs("plan", "wide").out)
    assert found["slice"] == "domain=A (nodes a1): 8 GPUs; domain=B (nodes b1): 8 GPUs"


def test_the_sample_comes_due(desk: Desk) -> None:
    sample = Path(__file__).parents[4] / "config" / "samples" / "reservations" / "reservation-example.yaml"
    desk.state.write_text(sample.read_text(encoding="utf-8"), encoding="utf-8")
    assert facts(desk.runs("plan", "translate").out)["remedies"] == (
        "shrink asr (16), lottery conflict set [asr, clip, probe] (8)"
    )
    assert "RandomPreempt" in desk.runs("advance", "30m").out
    assert desk.runs("explain", "translate", "--verify").code == 0
    phases: list[Body] = [one.body for one in read_documents(desk.state.read_bytes(), "file")]
    waiting = [one for one in phases if one["kind"] == "Run" and one["status"]["phase"] == "Reserved"]
    assert len(waiting) == 1


def test_an_earlier_start_is_expected_where_durations_are_known(desk: Desk) -> None:
    desk.cluster(*nodes(1), budget("lab", envelope(8)), budget("b", envelope(8)))
    for number in range(5):
        desk.submit(lasting(run(f"past-{number}"), "10m"))
        desk.runs("advance", "10m")
    desk.submit(run("holder"))
    desk.submit(run("next", 8, "org:b"))
    told = facts(desk.runs("plan", "next").out)
    assert told["earliestStart"].startswith("2026-01-05T11:50:00Z")
    assert told["expectedStart"] == "p50 2026-01-05T10:00:00Z, p90 2026-01-05T10:00:00Z"
    assert "2026-01-05T10:00:00Z" in desk.runs("reservations", "-o", "wide").out
    forecast = desk.saved("Reservation", "next-1")["status"]["forecast"]
    assert forecast["expectedStart"] == {"p50": "2026-01-05T10:00:00Z", "p90": "2026-01-05T10:00:00Z"}
    desk.runs("advance", "20m")  # it outlived all that were seen: nobody can say any more
    assert "expectedStart" not in facts(desk.runs("plan", "next").out)
