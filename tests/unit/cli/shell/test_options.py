"""The options that every verb takes: before the verb or after it, from the environment, and which wins."""

import io

import pytest

from jobtree.cli.main import main
from tests.unit.cli.desk import Desk, budget, envelope, nodes, run


@pytest.fixture(autouse=True)
def _runs_of_two_namespaces(desk: Desk) -> None:
    desk.cluster(
        *nodes(4),
        budget("lab", envelope(8)),
        budget("sub", envelope(8), owner="org:lab:sub"),
        budget("labour", envelope(8)),
        run("a", namespace="one"),
        run("b", namespace="two", owner="org:lab:sub"),
        run("c", namespace="two", owner="org:labour"),
    )


def names(desk: Desk, *words: str) -> list[str]:
    return [line.rpartition("/")[2] for line in desk.runs(*words, "-o", "name").out.splitlines()]


def test_options_stand_before_or_after_the_verb(desk: Desk) -> None:
    state = str(desk.state)
    before = desk.bare("--state", state, "-o", "json", "-n", "one", "state")
    after = desk.bare("state", "--state", state, "-o", "json", "-n", "one")
    between = desk.bare("--state", state, "budgets", "-o", "json", "usage")
    assert before.code == after.code == between.code == 0
    assert before.out == after.out
    assert between.json()["kind"] == "List"


def test_the_later_one_wins(desk: Desk) -> None:
    assert desk.runs("-n", "one", "state", "-n", "two", "-o", "name").out.count("\n") == 2
    assert desk.bare("--state", "missing.yaml", "state", "--state", str(desk.state)).code == 0


def test_the_state_file_may_come_from_the_environment(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JOBTREE_STATE", str(desk.state))
    assert main(["state"]) == 0
    assert "one/a" in capsys.readouterr().out
    assert main(["--state", "missing.yaml", "state"]) == 3


def test_reading_covers_all_namespaces_unless_told(desk: Desk) -> None:
    assert names(desk, "state") == ["a", "b", "c"]
    assert names(desk, "state", "-n", "two") == ["b", "c"]
    assert names(desk, "state", "-n", "two", "--all") == ["a", "b", "c"]
    assert names(desk, "state", "-n", "three") == []


def test_an_owner_stands_for_all_below_it(desk: Desk) -> None:
    assert names(desk, "state", "--owner", "org:lab") == ["a", "b"]
    assert names(desk, "state", "--owner", "org:lab:sub") == ["b"]
    assert names(desk, "state", "--owner", "org") == ["a", "b", "c"]
    assert names(desk, "state", "--owner", "org:lab", "-n", "one") == ["a"]
    assert names(desk, "budgets", "usage", "--owner", "org:lab") == ["lab", "sub"]
    assert len(names(desk, "leases", "--owner", "org:lab")) == 2


def test_new_runs_go_to_the_namespace_asked_for(desk: Desk) -> None:
    desk.runs("submit", "-n", "three", "-f", desk.file("d.yaml", run("d")))
    desk.runs("submit", "-f", desk.file("e.yaml", run("e")))
    out = desk.runs("state").out
    assert "three/d" in out
    assert "default/e" in out


def test_a_manifest_may_come_from_stdin(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = '{"apiVersion": "rq.davidlangworthy.io/v1", "kind": "Run", "metadata": {"name": "piped"},'
    manifest += ' "spec": {"owner": "org:lab", "resources": {"gpuType": "H100-80GB", "totalGPUs": 8}}}'
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(manifest.encode())))
    answer = desk.runs("submit", "-f", "-")
    assert answer.code == 0
    assert answer.out.startswith("default/piped ")


def test_bad_stdin_is_called_stdin(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"{")))
    answer = desk.runs("submit", "-f", "-")
    assert answer.code == 2
    assert answer.err.startswith("error: stdin, document 1")


def test_nothing_to_show_is_said(desk: Desk) -> None:
    desk.cluster()
    assert desk.runs("state").out == "no Runs\n"
    assert desk.runs("budgets", "usage").out == "no envelopes\n"
    assert desk.runs("leases", "--owner", "org:lab").out == "no leases\n"


def test_help_without_a_verb(desk: Desk) -> None:
    answer = desk.bare()
    assert answer.code == 0
    assert answer.out == desk.bare("--help").out
    assert "usage" in desk.bare("budgets").out
