"""The options of every verb: before or after the verb, from the environment, and their precedence."""

import io

import pytest

from jobtree.cli.main import main
from tests.unit.cli.cli_runner import CliRunner
from tests.unit.cli.manifests import budget, envelope, nodes, run


@pytest.fixture(autouse=True)
def _runs_of_two_namespaces(cli: CliRunner) -> None:
    cli.write_cluster(
        *nodes(4),
        budget("lab", envelope(8)),
        budget("sub", envelope(8), owner="org:lab:sub"),
        budget("labour", envelope(8)),
        run("a", namespace="one"),
        run("b", namespace="two", owner="org:lab:sub"),
        run("c", namespace="two", owner="org:labour"),
    )


def names(cli: CliRunner, *words: str) -> list[str]:
    return [line.rpartition("/")[2] for line in cli.runs(*words, "-o", "name").out.splitlines()]


def test_options_are_accepted_before_and_after_the_verb(cli: CliRunner) -> None:
    state = str(cli.state)
    before = cli.without_state("--state", state, "-o", "json", "-n", "one", "state")
    after = cli.without_state("state", "--state", state, "-o", "json", "-n", "one")
    between = cli.without_state("--state", state, "budgets", "-o", "json", "usage")
    assert before.code == after.code == between.code == 0
    assert before.out == after.out
    assert between.json()["kind"] == "List"


def test_later_option_overrides_the_earlier_one(cli: CliRunner) -> None:
    assert cli.runs("-n", "one", "state", "-n", "two", "-o", "name").out.count("\n") == 2
    assert cli.without_state("--state", "missing.yaml", "state", "--state", str(cli.state)).code == 0


def test_state_file_is_read_from_the_environment(
    cli: CliRunner, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JOBTREE_STATE", str(cli.state))
    assert main(["state"]) == 0
    assert "one/a" in capsys.readouterr().out
    assert main(["--state", "missing.yaml", "state"]) == 3


def test_state_lists_all_namespaces_when_none_is_given(cli: CliRunner) -> None:
    assert names(cli, "state") == ["a", "b", "c"]
    assert names(cli, "state", "-n", "two") == ["b", "c"]
    assert names(cli, "state", "-n", "two", "--all") == ["a", "b", "c"]
    assert names(cli, "state", "-n", "three") == []


def test_owner_option_includes_owners_below_it(cli: CliRunner) -> None:
    assert names(cli, "state", "--owner", "org:lab") == ["a", "b"]
    assert names(cli, "state", "--owner", "org:lab:sub") == ["b"]
    assert names(cli, "state", "--owner", "org") == ["a", "b", "c"]
    assert names(cli, "state", "--owner", "org:lab", "-n", "one") == ["a"]
    assert names(cli, "budgets", "usage", "--owner", "org:lab") == ["lab", "sub"]
    assert len(names(cli, "leases", "--owner", "org:lab")) == 2


def test_submit_uses_the_given_namespace(cli: CliRunner) -> None:
    cli.runs("submit", "-n", "three", "-f", cli.write_file("d.yaml", run("d")))
    cli.runs("submit", "-f", cli.write_file("e.yaml", run("e")))
    out = cli.runs("state").out
    assert "three/d" in out
    assert "default/e" in out


def test_submit_reads_a_manifest_from_stdin(cli: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = '{"apiVersion": "rq.davidlangworthy.io/v1", "kind": "Run", "metadata": {"name": "piped"},'
    manifest += ' "spec": {"owner": "org:lab", "resources": {"gpuType": "H100-80GB", "totalGPUs": 8}}}'
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(manifest.encode())))
    answer = cli.runs("submit", "-f", "-")
    assert answer.code == 0
    assert answer.out.startswith("default/piped ")


def test_error_names_stdin_when_its_manifest_is_invalid(
    cli: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"{")))
    answer = cli.runs("submit", "-f", "-")
    assert answer.code == 2
    assert answer.err.startswith("error: stdin, document 1")


def test_lists_say_so_when_they_are_empty(cli: CliRunner) -> None:
    cli.write_cluster()
    assert cli.runs("state").out == "no Runs\n"
    assert cli.runs("budgets", "usage").out == "no envelopes\n"
    cli.write_cluster(budget("lab", envelope(8)))
    assert cli.runs("leases", "--owner", "org:lab").out == "no leases\n"


def test_help_is_printed_when_no_verb_is_given(cli: CliRunner) -> None:
    answer = cli.without_state()
    assert answer.code == 0
    assert answer.out == cli.without_state("--help").out
    assert "usage" in cli.without_state("budgets").out
