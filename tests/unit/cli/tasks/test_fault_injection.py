"""``advance --faults``: nodes fail and heal on the way, and the command says so."""

import json

from tests.unit.cli.desk import Desk, run


def test_a_file_of_outages_is_replayed_and_told_among_what_follows_from_it(desk: Desk) -> None:
    desk.submit(run("train"))
    outages = desk.directory / "outages.csv"
    outages.write_text("node,start_s,end_s\na01,3600,7200\na02,3600,\n")
    answer = desk.runs("advance", "3h", "--faults", str(outages))
    assert answer.code == 0, answer.err
    told = [line.split()[:3] for line in answer.out.splitlines()[:-1]]
    assert told[:2] == [
        ["2026-01-05T10:00:00Z", "NodeFailed", "node/a01"],
        ["2026-01-05T10:00:00Z", "NodeFailed", "node/a02"],
    ]
    assert ["2026-01-05T10:00:00Z", "CapacityLost", "default/train"] in told
    assert ["2026-01-05T11:00:00Z", "NodeHealed", "node/a01"] in told
    assert ["2026-01-05T11:00:00Z", "Admitted", "default/train"] in told
    assert desk.saved("Node", "a02")["spec"]["taints"]


def test_two_steps_of_a_replay_are_one(desk: Desk) -> None:
    outages = desk.directory / "outages.csv"
    outages.write_text("node,start_s,end_s\na01,3600,7200\n")
    first = desk.runs("advance", "90m", "--faults", str(outages)).out.splitlines()[:-1]
    second = desk.runs("advance", "90m", "--faults", str(outages)).out.splitlines()[:-1]
    assert [line.split()[1] for line in (*first, *second)] == ["NodeFailed", "NodeHealed"]


def test_a_seed_gives_the_same_faults_every_time(desk: Desk) -> None:
    before = desk.state.read_text()
    told = []
    for _ in range(2):
        desk.state.write_text(before)
        told.append(desk.runs("advance", "30d", "--faults", "7", "--fault-rate", "50").out)
    assert told[0] == told[1]
    assert "NodeFailed" in told[0]


def test_faults_are_events_of_nodes_for_scripts(desk: Desk) -> None:
    answer = desk.runs("-o", "json", "advance", "30d", "--faults", "7", "--fault-rate", "50")
    kinds = {item["involvedObject"]["kind"] for item in json.loads(answer.out)["items"]}
    assert kinds == {"Node"}


def test_what_is_neither_a_seed_nor_a_file_is_refused(desk: Desk) -> None:
    answer = desk.runs("advance", "1h", "--faults", "nowhere.csv")
    assert (answer.code, "must be a whole number" in answer.err) == (3, True)


def test_a_broken_file_is_refused_with_its_line(desk: Desk) -> None:
    outages = desk.directory / "outages.csv"
    outages.write_text("node,start_s,end_s\na01,soon,7200\n")
    answer = desk.runs("advance", "1h", "--faults", str(outages))
    assert answer.code != 0
    assert 'line 2: start_s: "soon" is not allowed: must be a number of seconds' in answer.err


def test_a_rate_without_a_seed_is_refused(desk: Desk) -> None:
    assert desk.runs("advance", "1h", "--fault-rate", "3").code == 2
    assert desk.runs("advance", "1h", "--faults", "1", "--fault-rate", "0").code == 2
