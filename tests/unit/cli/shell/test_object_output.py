"""The outputs json, yaml and name of every verb hold API objects and nothing else."""

import json
from collections.abc import Iterator

import msgspec
import pytest

from jobtree.api.documents.document_stream import read_documents
from jobtree.api.kinds.run_plan import PLAN_API_VERSION, RunPlan
from jobtree.api.validation.object_parser import parse_object
from jobtree.cli.shell.root_command import SUMMARIES
from tests.unit.cli.cli_runner import CliRunner, CommandResult
from tests.unit.cli.manifests import API, Body, lasting, run

# Each verb that prints objects, with the kinds that it prints for a cluster with the Runs train and waits.
VERBS: dict[str, tuple[list[str], list[str]]] = {
    "submit": (["submit", "-f", "new.yaml"], ["Run"]),
    "plan": (["plan", "train"], ["Run", "Lease", "RunPlan"]),
    "plan -f": (["plan", "-f", "new.yaml"], ["Run", "Reservation", "RunPlan"]),
    "explain": (["explain", "train"], ["Run", "Lease"]),
    "explain waits": (["explain", "waits"], ["Run", "Reservation"]),
    "watch": (["watch", "train", "--once"], ["Run"]),
    "wait": (["wait", "train"], ["Run"]),
    "state": (["state", "--all"], ["Run", "Run"]),
    "reservations": (["reservations"], ["Reservation"]),
    "timeline": (["timeline"], ["Run", "Run", "Reservation"]),
    "leases": (["leases", "--owner", "org:lab"], ["Lease"]),
    "budgets": (["budgets", "usage"], ["Budget"]),
    "cancel": (["cancel", "train", "waits"], ["Run", "Run"]),
    "complete": (["complete", "train"], ["Run"]),
    "advance": (["advance", "2h"], ["Event", "Event", "Event"]),
    "fail": (["fail", "a01", "a02"], ["Node", "Node"]),
    "drain": (["drain", "a01"], ["Node"]),
    "heal": (["heal", "a01"], ["Node"]),
    "tree": (["tree", "train"], ["Run"]),
    "check": (["check"], ["Status"]),
    "audit": (["audit"], ["Status"]),
    "doctor": (["doctor"], ["Status"]),
    "topology": (["topology"], ["Node", "Node"]),
    "events": (["events", "train"], ["Event", "Event"]),
}
# The verbs that print one object; the others print a List.
SINGLE_OBJECT = {"submit", "watch", "wait", "complete", "drain", "heal", "check", "audit", "doctor"}


@pytest.fixture(autouse=True)
def _two_runs(cli: CliRunner) -> None:
    cli.submit(lasting(run("train"), "1h"))
    cli.submit(run("waits"))
    cli.write_file("new.yaml", run("new"))


def items(answer: CommandResult) -> Iterator[Body]:
    document = answer.json()
    if document["kind"] == "List":
        assert document["apiVersion"] == "v1"
        assert set(document) == {"apiVersion", "kind", "items"}
        yield from document["items"]
    else:
        yield document


@pytest.mark.parametrize("case", VERBS)
def test_json_output_holds_valid_api_objects(cli: CliRunner, case: str) -> None:
    words, kinds = VERBS[case]
    answer = cli.runs(*words, "-o", "json")
    assert answer.err == ""
    bodies = list(items(answer))
    assert [body["kind"] for body in bodies] == kinds
    assert (answer.json()["kind"] == "List") == (case not in SINGLE_OBJECT)
    for body in bodies:
        if body["apiVersion"] == API:
            parse_object(body, "stdout")
            assert "uid" in body["metadata"]
        elif body["kind"] == "RunPlan":
            assert body.pop("apiVersion") == PLAN_API_VERSION
            assert body.pop("kind") == "RunPlan"
            msgspec.convert(body, RunPlan)


@pytest.mark.parametrize("case", VERBS)
def test_yaml_output_equals_json_output(cli: CliRunner, case: str) -> None:
    words, kinds = VERBS[case]
    before = cli.state.read_bytes()
    as_json = list(items(cli.runs(*words, "-o", "json")))
    cli.state.write_bytes(before)
    as_yaml = [document.body for document in read_documents(cli.runs(*words, "-o", "yaml").out, "stdout")]
    assert as_yaml == as_json
    assert len(as_yaml) == len(kinds)


@pytest.mark.parametrize("case", VERBS)
def test_name_output_has_one_line_for_each_object(cli: CliRunner, case: str) -> None:
    words, kinds = VERBS[case]
    lines = cli.runs(*words, "-o", "name").out.splitlines()
    kinds = [kind for kind in kinds if kind != "RunPlan"]  # an answer, which nobody can get by name
    assert len(lines) == len(kinds)
    singular = {"Lease": "gpulease"}
    group = "." + API.partition("/")[0]
    for line, kind in zip(lines, kinds, strict=True):
        in_group = kind in ("Run", "Budget", "Lease", "Reservation")
        assert line.startswith(f"{singular.get(kind, kind.lower())}{group if in_group else ''}/")


def test_every_verb_is_in_the_table_or_prints_no_objects() -> None:
    assert set(SUMMARIES) - {case.split()[0] for case in VERBS} == {
        "import",  # see test_import.py
        "init",
        "completion",
        "version",
        "verify",  # see test_record_proof.py
        "grow",  # see test_width_change.py
        "shrink",
        "pods",  # of live clusters: see tests/live
        "logs",
        "snapshot",
        "simulate",  # see test_simulate.py
        "schema",  # see test_schema.py
    }


def test_printed_names_are_accepted_as_arguments(cli: CliRunner) -> None:
    names = cli.runs("state", "-o", "name").out.split()
    assert names == ["run.rq.davidlangworthy.io/train", "run.rq.davidlangworthy.io/waits"]
    assert cli.runs("cancel", *names).code == 0
    assert cli.runs("state").out == "no Runs\n"


def test_status_is_computed_for_the_present_time(cli: CliRunner) -> None:
    cli.runs("advance", "30m")
    (body,) = items(cli.runs("budgets", "usage", "-o", "json"))
    (usage,) = body["status"]["envelopes"]
    assert (usage["usedGPUs"], usage["freeGPUs"], usage["usedGPUHours"]) == ("8", "0", "4")
    train, waits = items(cli.runs("state", "-o", "json"))
    assert train["status"]["width"] == {"min": 8, "max": 8, "desired": 8, "allocated": 8}
    assert waits["status"]["reason"] == "ConcurrencyExhausted"


def test_event_names_reason_run_and_time(cli: CliRunner) -> None:
    completed, *_ = items(cli.runs("advance", "2h", "-o", "json"))
    assert completed["reason"] == "Completed"
    assert completed["involvedObject"]["name"] == "train"
    assert completed["firstTimestamp"] == "2026-01-05T10:00:00Z"


def test_check_lists_broken_invariants_as_causes(cli: CliRunner) -> None:
    cli.runs("cancel", "waits")  # its start could end one of the two leases and so repair the cluster
    cli.duplicate_lease("train")
    answer = cli.runs("check", "-o", "json")
    assert answer.code == 1
    assert answer.json()["status"] == "Failure"
    assert {cause["reason"] for cause in answer.json()["details"]["causes"]} >= {"I1"}


def test_version_and_init_print_json(cli: CliRunner) -> None:
    assert cli.without_state("version").out.startswith("jobtree ")
    assert set(cli.without_state("version", "-o", "json").json()) == {"clientVersion"}
    kinds = [body["kind"] for body in items(cli.without_state("init", "other.yaml", "-o", "json"))]
    assert kinds == ["Clock", *["Node"] * 8, "Budget", "Budget", "Run"]
    assert json.loads(cli.without_state("--state", "other.yaml", "state", "-o", "json").out)["items"]
