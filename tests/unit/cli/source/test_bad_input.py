"""Whatever is wrong with a manifest or a state file: an error that names it, exit code 2, nothing saved."""

import subprocess
import sys
from pathlib import Path

import pytest

from jobtree.api.documents.document_stream import dump_yaml
from tests.unit.cli.desk import API, FLAVOR, T0, Body, Desk, budget, envelope, node, nodes, run

DAY = {"start": "2026-01-05T00:00:00Z", "end": "2026-01-06T00:00:00Z"}

REFUSED = {
    "a window that ends before it starts": (
        [budget("new", envelope(4, start="2026-01-06T00:00:00Z", end=T0))],
        'spec.envelopes[0].end: "2026-01-05T09:00:00Z" is not allowed: must be after start',
    ),
    "more hours than concurrency × window": (
        [budget("new", envelope(4, maxGPUHours=97, **DAY))],
        "maxGPUHours: 97 is not allowed: must be at most concurrency × window (4 GPUs × 1d = 96 GPU-hours)",
    ),
    "a family that is a cycle": (
        [
            budget("one", owner="org:one", parents=["org:two"]),
            budget("two", owner="org:two", parents=["org:one"]),
        ],
        "spec.parents: org:one → org:two → org:one is a cycle",
    ),
    "a cap over an unknown envelope": (
        [
            budget(
                "new", envelope(4), aggregateCaps=[{"name": "all", "envelopes": ["other"], "maxCredits": 1}]
            )
        ],
        'spec.aggregateCaps[0].envelopes[0]: "other" is not allowed: must be the name of an envelope',
    ),
    "a width that is not min + k × step": (
        [run("odd", 24, malleable={"minTotalGPUs": 8, "maxTotalGPUs": 40, "stepGPUs": 32})],
        "spec.resources.totalGPUs: 24 is not allowed: must be minTotalGPUs + k × stepGPUs",
    ),
    "two objects of one name": ([run("same"), run("same")], "Run default/same is there already"),
    "a Lease": (
        [{"apiVersion": API, "kind": "Lease", "metadata": {"name": "mine"}, "spec": {}}],
        "a Lease is written by Jobtree alone",
    ),
    "an unknown kind": (
        [{"apiVersion": API, "kind": "Job", "metadata": {"name": "x"}}],
        'kind: "Job" is not allowed',
    ),
    "another version": ([{**run("x"), "apiVersion": "v2"}], 'apiVersion: "v2" is not allowed'),
    "no name": ([{**run("x"), "metadata": {}}], "metadata.name: a Run must have a name"),
    "a clock": (
        [{"apiVersion": f"sim.{API}", "kind": "Clock", "spec": {"now": T0}}],
        "a Clock belongs in the state file",
    ),
    "a tree, for now": (
        [{**run("tree"), "spec": {"owner": "org:lab", "stages": [{"name": "a", **run("x", 8)["spec"]}]}}],
        "spec.stages",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_manifest_is_refused_with_its_rule_and_nothing_is_saved(desk: Desk, case: str) -> None:
    bodies, said = REFUSED[case]
    before = desk.state.read_bytes()
    answer = desk.submit(run("innocent"), *bodies)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: ")
    assert said in answer.err
    assert "Traceback" not in answer.err
    assert desk.state.read_bytes() == before


@pytest.mark.parametrize(
    ("body", "reason", "remedy"),
    [
        (
            run("wide", 64, locality={"groupGPUs": 32}),
            "GroupTooLarge (have 16, need 32)",
            "it needs a domain of 32 GPUs: 16 more than the largest has",
        ),
        (
            run("typo", resources={"gpuType": "H100-80G", "totalGPUs": 8}),
            "NoSuchFlavor (have 0, need 8)",
            f"did you mean {FLAVOR}?",
        ),
    ],
)
def test_what_may_become_possible_waits_with_its_reason(
    desk: Desk, body: Body, reason: str, remedy: str
) -> None:
    name = body["metadata"]["name"]
    assert desk.submit(body).code == 0
    assert desk.saved("Run", name)["status"]["phase"] == "Reserved"
    answer = desk.runs("plan", name)
    assert answer.code == 1
    assert reason in answer.out
    assert remedy in answer.out


def test_an_empty_manifest_is_refused(desk: Desk) -> None:
    answer = desk.runs("submit", "-f", desk.file("empty.yaml"))
    assert answer.code == 2
    assert "empty.yaml contains no objects" in answer.err


def test_a_namespace_said_twice_must_be_the_same(desk: Desk) -> None:
    path = desk.file("run.yaml", run("train", namespace="one"))
    answer = desk.runs("submit", "-n", "two", "-f", path)
    assert answer.code == 2
    assert "metadata.namespace: one differs from --namespace two" in answer.err
    assert desk.runs("submit", "-n", "one", "-f", path).code == 0


LEASE = {
    "apiVersion": API,
    "kind": "Lease",
    "metadata": {"name": "train-1"},
    "spec": {
        "runRef": {"namespace": "default", "name": "train", "uid": "u"},
        "owner": "org:lab",
        "payer": {"owner": "org:lab", "budget": "lab", "envelope": "own"},
        "class": "Owned",
        "role": "Active",
        "group": 0,
        "flavor": FLAVOR,
        "slots": ["gone#0-7"],
        "start": T0,
        "rate": "1",
        "reason": "Start",
    },
}

BROKEN_FILES = {
    "not YAML": ("apiVersion: v1\n  kind: [", "is not YAML"),
    "no object": ("- just\n- a list\n", "must be a mapping with apiVersion and kind"),
    "not text": ("\x00\x01", "is not YAML"),
    "an unknown kind": (
        dump_yaml([{"apiVersion": API, "kind": "Runn", "metadata": {"name": "x"}}]),
        '"Runn"',
    ),
    "two objects of one name": (dump_yaml([node("a01"), node("a01")]), "Node a01 is there already"),
    "two clocks": (
        dump_yaml([{"apiVersion": f"sim.{API}", "kind": "Clock", "spec": {"now": T0}}] * 2),
        "a state file has one Clock",
    ),
    "a lease on a node that is gone": (
        dump_yaml([*nodes(1), budget("lab", envelope()), run("train"), LEASE]),
        "spec.slots: node gone is not in the file, but this lease is open",
    ),
    "a lease of a Run that is gone": (
        dump_yaml([node("gone"), budget("lab", envelope()), LEASE]),
        "spec.runRef: Run default/train is not in the file",
    ),
    "a duration that is none": (
        dump_yaml(
            [
                {
                    **run("x"),
                    "metadata": {"name": "x", "annotations": {"sim.rq.davidlangworthy.io/duration": "soon"}},
                }
            ]
        ),
        "metadata.annotations[sim.rq.davidlangworthy.io/duration]: 'soon' is not a duration",
    ),
}


@pytest.mark.parametrize("case", BROKEN_FILES)
@pytest.mark.parametrize("words", [["state", "--all"], ["advance", "1h"], ["check"]])
def test_a_broken_state_file_is_refused_by_every_verb(desk: Desk, case: str, words: list[str]) -> None:
    text, said = BROKEN_FILES[case]
    desk.state.write_text(text)
    answer = desk.runs(*words)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"error: {desk.state}")
    assert said in answer.err
    assert "Traceback" not in answer.err
    assert desk.state.read_text() == text


HOLDER = """
import fcntl, sys
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_file_locked_by_another_process_is_a_conflict_for_writers_only(desk: Desk, tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "cluster.yaml.lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        before = desk.state.read_bytes()
        answer = desk.runs("advance", "1h")
        assert (answer.code, answer.out) == (4, "")
        assert "is locked by another command: wait until it is done, then try again" in answer.err
        assert desk.state.read_bytes() == before
        assert desk.runs("state").code == 0
        assert desk.runs("plan", "-f", desk.file("run.yaml", run("train"))).code == 0
    assert desk.runs("advance", "1h").code == 0
