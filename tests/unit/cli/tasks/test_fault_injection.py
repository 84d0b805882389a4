"""``advance --faults`` fails and heals nodes while time passes, and prints both."""

import json

from tests.unit.cli.cli_runner import CliRunner
from tests.unit.cli.manifests import run


def test_outages_of_a_file_are_printed_before_their_consequences(cli: CliRunner) -> None:
    cli.submit(run("train"))
    outages = cli.directory / "outages.csv"
    outages.write_text("node,start_s,end_s\na01,3600,7200\na02,3600,\n")
    answer = cli.runs("advance", "3h", "--faults", str(outages))
    assert answer.code == 0, answer.err
    events = [line.split()[:3] for line in answer.out.splitlines()[:-1]]
    assert events[:2] == [
        ["2026-01-05T10:00:00Z", "NodeFailed", "node/a01"],
        ["2026-01-05T10:00:00Z", "NodeFailed", "node/a02"],
    ]
    assert ["2026-01-05T10:00:00Z", "CapacityLost", "default/train"] in events
    assert ["2026-01-05T11:00:00Z", "NodeHealed", "node/a01"] in events
    assert ["2026-01-05T11:00:00Z", "Admitted", "default/train"] in events
    assert cli.saved("Node", "a02")["spec"]["taints"]


def test_outages_are_applied_once_when_the_clock_advances_in_two_steps(cli: CliRunner) -> None:
    outages = cli.directory / "outages.csv"
    outages.write_text("node,start_s,end_s\na01,3600,7200\n")
    first = cli.runs("advance", "90m", "--faults", str(outages)).out.splitlines()[:-1]
    second = cli.runs("advance", "90m", "--faults", str(outages)).out.splitlines()[:-1]
    assert [line.split()[1] for line in (*first, *second)] == ["NodeFailed", "NodeHealed"]


def test_seed_gives_the_same_faults_each_time(cli: CliRunner) -> None:
    before = cli.state.read_text()
    outputs = []
    for _ in range(2):
        cli.state.write_text(before)
        outputs.append(cli.runs("advance", "30d", "--faults", "7", "--fault-rate", "50").out)
    assert outputs[0] == outputs[1]
    assert "NodeFailed" in outputs[0]


def test_faults_are_events_of_nodes_in_json(cli: CliRunner) -> None:
    answer = cli.runs("-o", "json", "advance", "30d", "--faults", "7", "--fault-rate", "50")
    kinds = {item["involvedObject"]["kind"] for item in json.loads(answer.out)["items"]}
    assert kinds == {"Node"}


def test_faults_option_is_refused_when_it_is_neither_seed_nor_file(cli: CliRunner) -> None:
    answer = cli.runs("advance", "1h", "--faults", "nowhere.csv")
    assert (answer.code, "must be a whole number" in answer.err) == (3, True)


def test_invalid_outages_are_refused_with_their_line(cli: CliRunner) -> None:
    outages = cli.directory / "outages.csv"
    outages.write_text("node,start_s,end_s\na01,soon,7200\n")
    answer = cli.runs("advance", "1h", "--faults", str(outages))
    assert answer.code != 0
    assert 'line 2: start_s: "soon" is not allowed: must be a number of seconds' in answer.err


def test_fault_rate_is_refused_without_a_seed(cli: CliRunner) -> None:
    assert cli.runs("advance", "1h", "--fault-rate", "3").code == 2
    assert cli.runs("advance", "1h", "--faults", "1", "--fault-rate", "0").code == 2
