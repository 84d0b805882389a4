"""-o json, yaml and name of every verb: API objects and nothing else."""

import json
from collections.abc import Iterator

import pytest

from jobtree.api.documents.document_stream import read_documents
from jobtree.api.validation.object_parser import parse_object
from jobtree.cli.shell.root_command import SUMMARIES
from tests.unit.cli.desk import API, Answer, Body, Desk, lasting, run

# Every verb that prints objects, with the kinds it prints, in a cluster with the Runs train and waits.
VERBS: dict[str, tuple[list[str], list[str]]] = {
    "submit": (["submit", "-f", "new.yaml"], ["Run"]),
    "plan": (["plan", "train"], ["Run", "Lease"]),
    "plan -f": (["plan", "-f", "new.yaml"], ["Run", "Reservation"]),
    "explain": (["explain", "train"], ["Run", "Lease"]),
    "explain waits": (["explain", "waits"], ["Run", "Reservation"]),
    "watch": (["watch", "train", "--once"], ["Run"]),
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
    "topology": (["topology"], ["Node", "Node"]),
}
ALONE = {"submit", "watch", "complete", "drain", "heal", "check", "audit"}  # one object, asked for as one


@pytest.fixture(autouse=True)
def _two_runs(desk: Desk) -> None:
    desk.submit(lasting(run("train"), "1h"))
    desk.submit(run("waits"))
    desk.file("new.yaml", run("new"))


def items(answer: Answer) -> Iterator[Body]:
    whole = answer.json()
    if whole["kind"] == "List":
        assert whole["apiVersion"] == "v1"
        assert set(whole) == {"apiVersion", "kind", "items"}
        yield from whole["items"]
    else:
        yield whole


@pytest.mark.parametrize("case", VERBS)
def test_json_is_api_objects(desk: Desk, case: str) -> None:
    words, kinds = VERBS[case]
    answer = desk.runs(*words, "-o", "json")
    assert answer.err == ""
    found = list(items(answer))
    assert [body["kind"] for body in found] == kinds
    assert (answer.json()["kind"] == "List") == (case not in ALONE)
    for body in found:
        if body["apiVersion"] == API:
            parse_object(body, "stdout")
            assert "uid" in body["metadata"]


@pytest.mark.parametrize("case", VERBS)
def test_yaml_says_the_same(desk: Desk, case: str) -> None:
    words, kinds = VERBS[case]
    before = desk.state.read_bytes()
    as_json = list(items(desk.runs(*words, "-o", "json")))
    desk.state.write_bytes(before)
    as_yaml = [document.body for document in read_documents(desk.runs(*words, "-o", "yaml").out, "stdout")]
    assert as_yaml == as_json
    assert len(as_yaml) == len(kinds)


@pytest.mark.parametrize("case", VERBS)
def test_names_are_one_a_line(desk: Desk, case: str) -> None:
    words, kinds = VERBS[case]
    lines = desk.runs(*words, "-o", "name").out.splitlines()
    assert len(lines) == len(kinds)
    singular = {"Lease": "gpulease"}
    group = "." + API.partition("/")[0]
    for line, kind in zip(lines, kinds, strict=True):
        known = kind in ("Run", "Budget", "Lease", "Reservation")
        assert line.startswith(f"{singular.get(kind, kind.lower())}{group if known else ''}/")


def test_every_verb_is_covered_here_or_prints_no_objects() -> None:
    assert set(SUMMARIES) - {case.split()[0] for case in VERBS} == {
        "import",  # see test_import.py
        "init",
        "completion",
        "version",
        "verify",  # see test_verify.py
        "grow",  # see test_resize.py
        "shrink",
        "pods",  # of live clusters: see tests/live
        "logs",
        "snapshot",
        "simulate",  # see test_simulate.py
    }


def test_names_can_be_given_back(desk: Desk) -> None:
    names = desk.runs("state", "-o", "name").out.split()
    assert names == ["run.rq.davidlangworthy.io/train", "run.rq.davidlangworthy.io/waits"]
    assert desk.runs("cancel", *names).code == 0
    assert desk.runs("state").out == "no Runs\n"


def test_the_status_is_as_of_now(desk: Desk) -> None:
    desk.runs("advance", "30m")
    (body,) = items(desk.runs("budgets", "usage", "-o", "json"))
    (usage,) = body["status"]["envelopes"]
    assert (usage["usedGPUs"], usage["freeGPUs"], usage["usedGPUHours"]) == ("8", "0", "4")
    train, waits = items(desk.runs("state", "-o", "json"))
    assert train["status"]["width"] == {"min": 8, "max": 8, "desired": 8, "allocated": 8}
    assert waits["status"]["reason"] == "ConcurrencyExhausted"


def test_an_event_says_what_happened_to_which_run(desk: Desk) -> None:
    completed, *_ = items(desk.runs("advance", "2h", "-o", "json"))
    assert completed["reason"] == "Completed"
    assert completed["involvedObject"]["name"] == "train"
    assert completed["firstTimestamp"] == "2026-01-05T10:00:00Z"


def test_broken_invariants_are_causes_of_a_status(desk: Desk) -> None:
    desk.runs("cancel", "waits")  # it would take what nobody can pay for twice, and mend the cluster
    desk.double_lease("train")
    answer = desk.runs("check", "-o", "json")
    assert answer.code == 1
    assert answer.json()["status"] == "Failure"
    assert {cause["reason"] for cause in answer.json()["details"]["causes"]} >= {"I1"}


def test_version_and_init(desk: Desk) -> None:
    assert desk.bare("version").out.startswith("jobtree ")
    assert set(desk.bare("version", "-o", "json").json()) == {"clientVersion"}
    kinds = [body["kind"] for body in items(desk.bare("init", "other.yaml", "-o", "json"))]
    assert kinds == ["Clock", *["Node"] * 8, "Budget", "Budget", "Run"]
    assert json.loads(desk.bare("--state", "other.yaml", "state", "-o", "json").out)["items"]
