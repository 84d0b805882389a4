"""Errors in a manifest or a state file are named, the exit code is 2, and nothing is saved."""

import subprocess
import sys
from pathlib import Path

import pytest

from jobtree.api.documents.document_stream import dump_yaml
from tests.unit.cli.cli_runner import CliRunner
from tests.unit.cli.manifests import API, FLAVOR, T0, Body, budget, envelope, node, nodes, run

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
    "two objects of one name": ([run("same"), run("same")], "Run default/same already exists"),
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
    "a tree with a field that stages do not have": (
        [{**run("tree"), "spec": {"owner": "org:lab", "stages": [{"name": "a", **run("x", 8)["spec"]}]}}],
        "spec.stages",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_submit_refuses_an_invalid_manifest_and_saves_nothing(cli: CliRunner, case: str) -> None:
    bodies, message = REFUSED[case]
    before = cli.state.read_bytes()
    answer = cli.submit(run("innocent"), *bodies)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: ")
    assert message in answer.err
    assert "Traceback" not in answer.err
    assert cli.state.read_bytes() == before


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
def test_submit_accepts_a_run_that_waits_for_other_nodes(
    cli: CliRunner, body: Body, reason: str, remedy: str
) -> None:
    name = body["metadata"]["name"]
    assert cli.submit(body).code == 0
    assert cli.saved("Run", name)["status"]["phase"] == "Reserved"
    answer = cli.runs("plan", name)
    assert answer.code == 1
    assert reason in answer.out
    assert remedy in answer.out


def test_submit_refuses_an_empty_manifest(cli: CliRunner) -> None:
    answer = cli.runs("submit", "-f", cli.write_file("empty.yaml"))
    assert answer.code == 2
    assert "empty.yaml contains no objects" in answer.err


def test_submit_refuses_a_namespace_that_differs_from_the_option(cli: CliRunner) -> None:
    path = cli.write_file("run.yaml", run("train", namespace="one"))
    answer = cli.runs("submit", "-n", "two", "-f", path)
    assert answer.code == 2
    assert "metadata.namespace: one differs from --namespace two" in answer.err
    assert cli.runs("submit", "-n", "one", "-f", path).code == 0


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
    "no kind": ("foo: bar\n", "kind: is required"),
    "a clock without its version": ("kind: Clock\n", f"apiVersion: null is not allowed: must be sim.{API}"),
    "two objects of one name": (dump_yaml([node("a01"), node("a01")]), "Node a01 already exists"),
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
    "an invalid duration": (
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
def test_verbs_refuse_a_broken_state_file(cli: CliRunner, case: str, words: list[str]) -> None:
    text, message = BROKEN_FILES[case]
    cli.state.write_text(text)
    answer = cli.runs(*words)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"error: {cli.state}")
    assert message in answer.err
    assert "Traceback" not in answer.err
    assert cli.state.read_text() == text


HOLDER = """
import fcntl, sys
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


def test_only_writing_verbs_fail_when_another_process_locks_the_file(cli: CliRunner, tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "cluster.yaml.lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        before = cli.state.read_bytes()
        answer = cli.runs("advance", "1h")
        assert (answer.code, answer.out) == (4, "")
        assert "is locked by another command: wait until it is done, then try again" in answer.err
        assert cli.state.read_bytes() == before
        assert cli.runs("state").code == 0
        assert cli.runs("plan", "-f", cli.write_file("run.yaml", run("train"))).code == 0
    assert cli.runs("advance", "1h").code == 0
