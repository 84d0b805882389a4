"""Runs are found by name, phase and team, on many nodes at once, and after they are gone."""

import pytest

from jobtree.cli.main import main
from jobtree.cli.source.name_ranges import expanded
from tests.unit.cli.cli_runner import CliRunner
from tests.unit.cli.manifests import budget, envelope, lasting, nodes, run


def listed(cli: CliRunner, *words: str) -> list[str]:
    out = cli.runs("state", *words).out
    return [line.split()[0] for line in out.splitlines()[1:]]


def test_state_lists_runs_by_name_and_phase(cli: CliRunner) -> None:
    cli.submit(run("train"), run("other", namespace="ml"), run("third", namespace="ml"))
    assert listed(cli, "third", "train") == ["ml/third", "default/train"]
    assert listed(cli, "-A", "--phase", "reserved") == ["ml/other", "ml/third"]
    assert cli.runs("state", "tran").err.startswith("error: there is no Run tran: did you mean train?")


def test_finished_runs_are_hidden_after_a_day_unless_asked_for(cli: CliRunner) -> None:
    cli.submit(lasting(run("old"), "1h"))
    cli.runs("advance", "24h")
    assert listed(cli) == ["default/old"], "finished less than a day ago"
    cli.runs("advance", "2h")
    answer = cli.runs("state")
    assert (answer.out, answer.err) == (
        "no Runs\n",
        "1 Run finished more than a day ago: --finished lists all\n",
    )
    for words in (("--finished",), ("old",), ("--phase", "Completed")):
        assert listed(cli, *words) == ["default/old"]
    assert "run.rq.davidlangworthy.io/old" in cli.runs("state", "-o", "name").out


def test_state_is_listed_again_after_a_change(cli: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.submit(run("train"))
    changes = iter([["complete", "train"]])

    def pause(_: float) -> None:
        words = next(changes, None)
        if words is None:
            raise KeyboardInterrupt
        main(["--state", str(cli.state), *words])

    monkeypatch.setattr("jobtree.cli.tasks.run_list.time.sleep", pause)
    answer = cli.runs("state", "--watch")
    assert answer.code == 130
    assert answer.out.count("RUN ") == 2
    assert "Completed" in answer.out


def test_all_unfinished_runs_of_a_team_are_cancelled(cli: CliRunner) -> None:
    cli.write_cluster(*nodes(2), budget("lab", envelope(16)), budget("other", envelope(8)))
    cli.submit(run("a"), run("b", owner="org:lab:child"), run("c", owner="org:other"))
    cli.runs("complete", "a")
    answer = cli.runs("cancel", "--owner", "org:lab")
    assert answer.out.splitlines()[0] == "default/b is cancelled"
    assert listed(cli) == ["default/a", "default/c"]
    assert cli.runs("cancel", "--owner", "org:labb").code == 3
    assert cli.runs("cancel").code == 2


def test_ranges_of_nodes_are_accepted_as_they_are_printed(cli: CliRunner) -> None:
    cli.write_cluster(*nodes(12, "gpu-a-"), *nodes(2, "b"))
    assert cli.runs("fail", "gpu-a-[09-11]").out == "gpu-a-[09-11]: out of service\n"
    assert cli.runs("heal", "gpu-a-[09-10], gpu-a-11").out == "gpu-a-[09-11]: in service\n"
    assert cli.runs("drain", "b01-b02").out == "b01-b02: drained\n"
    assert cli.runs("drain", "b[01-03]").err.startswith("error: there is no node b03")


def test_a_name_that_looks_like_a_range_is_a_name() -> None:
    assert expanded(["a1-a3"], {"a1-a3"}) == ["a1-a3"]
    assert expanded(["a1-a3"], set()) == ["a1", "a2", "a3"]
    assert expanded(["n-[08-10].zone"], set()) == ["n-08.zone", "n-09.zone", "n-10.zone"]


def test_many_nodes_are_labelled_at_once(cli: CliRunner) -> None:
    answer = cli.runs("topology", "label", "a[01-02]", "region=west", "rack=r1")
    assert (answer.code, answer.out) == (0, "a01-a02: region=west rack=r1\n")
    assert cli.saved("Node", "a02")["metadata"]["labels"]["region"] == "west"
    assert cli.runs("topology", "label", "a01").code == 2
    assert cli.runs("topology", "labels").code == 2


def test_events_of_a_run_go_back_to_its_creation_and_outlive_it(cli: CliRunner) -> None:
    cli.submit(run("train"))
    cli.submit(run("next"))
    cli.runs("advance", "1h")
    cli.runs("complete", "train")
    names = [line.split()[1] for line in cli.runs("events", "train").out.splitlines()]
    assert names == ["Created", "Start", "Completed", "Completed"]
    assert [line.split()[1] for line in cli.runs("events", "next").out.splitlines()] == [
        "Created",
        "Reserved",
        "Start",
    ]
    cli.runs("cancel", "train")
    assert "it started (a01#0-7)" in cli.runs("events", "train").out
    assert cli.runs("events", "train", "-o", "json").json()["items"][0]["reason"] == "Start"
    assert cli.runs("events", "trein").err.startswith("error: there is no Run trein: did you mean train?")
