"""Verbs on a simulated cluster: events, faults, replaced objects, and what the state file keeps."""

import pytest

from tests.unit.cli.cli_runner import CliRunner
from tests.unit.cli.manifests import budget, envelope, lasting, node, nodes, run

SUPERSEDED = "it starts before reservation {} is due"


def test_advance_prints_events_with_their_time(cli: CliRunner) -> None:
    cli.submit(lasting(run("train"), "1h"))
    cli.submit(run("next"))
    assert cli.runs("advance", "90m").out.splitlines() == [
        "2026-01-05T10:00:00Z  Completed   default/train  all its work is done",
        "2026-01-05T10:00:00Z  Admitted    default/next   8 GPUs paid by lab/own (Owned)",
        f"2026-01-05T10:00:00Z  Superseded  default/next   {SUPERSEDED.format('next-1')}",
        "it is 2026-01-05T10:30:00Z",
    ]
    assert cli.runs("advance", "--to", "2026-01-05T10:30:00Z").out == "it is 2026-01-05T10:30:00Z\n"


def test_fail_and_heal_print_their_consequences(cli: CliRunner) -> None:
    cli.submit(run("train"))
    failed = cli.runs("fail", "a01", "a02", "a01")
    assert failed.code == 0
    assert failed.out.splitlines() == [
        "a01-a02: out of service",
        "2026-01-05T09:00:00Z  CapacityLost  default/train  it lost its GPUs on a01 and got no others",
        "2026-01-05T09:00:00Z  Reserved      default/train  reservation train-1",
    ]
    assert cli.saved("Node", "a01")["spec"]["taints"]
    healed = cli.runs("heal", "a02")
    assert healed.out.splitlines() == [
        "a02: in service",
        "2026-01-05T09:00:00Z  Admitted    default/train  8 GPUs paid by lab/own (Owned)",
        f"2026-01-05T09:00:00Z  Superseded  default/train  {SUPERSEDED.format('train-1')}",
    ]
    assert "taints" not in cli.saved("Node", "a02")["spec"]


def test_cancel_prints_the_start_of_the_next_run(cli: CliRunner) -> None:
    cli.submit(run("train"))
    cli.submit(run("next"))
    assert cli.runs("cancel", "train", "train").out.splitlines() == [
        "default/train is cancelled",
        "2026-01-05T09:00:00Z  Admitted    default/next  8 GPUs paid by lab/own (Owned)",
        f"2026-01-05T09:00:00Z  Superseded  default/next  {SUPERSEDED.format('next-1')}",
    ]


def test_complete_changes_all_runs_or_none(cli: CliRunner) -> None:
    cli.write_cluster(*nodes(2), budget("lab", envelope(16)))
    cli.submit(run("one"), run("two"), run("three"))
    before = cli.state.read_bytes()
    assert cli.runs("complete", "one", "four").code == 3
    assert cli.state.read_bytes() == before
    assert cli.runs("complete", "one", "two").code == 0


@pytest.mark.parametrize(
    "words",
    [
        ["state"],
        ["plan", "train"],
        ["explain", "train"],
        ["leases", "train"],
        ["budgets", "usage"],
        ["watch", "train", "--once"],
        ["check"],
        ["submit", "--dry-run", "-f", "submitted.yaml", "--replace"],
    ],
)
def test_reading_verbs_do_not_write_the_state_file(cli: CliRunner, words: list[str]) -> None:
    cli.submit(run("train"))
    before = cli.state.stat()
    assert cli.runs(*words).code == 0
    after = cli.state.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_symbolic_link_to_the_state_file_is_kept(cli: CliRunner) -> None:
    link = cli.directory / "link.yaml"
    link.symlink_to(cli.state)
    assert cli.without_state("--state", str(link), "advance", "1h").code == 0
    assert link.is_symlink()
    assert "10:00:00Z" in cli.state.read_text()


def test_state_file_is_unchanged_when_it_is_read_and_saved(cli: CliRunner) -> None:
    cli.write_cluster(*nodes(3), budget("lab", envelope(8, maxGPUHours=100)), budget("other", envelope(8)))
    cli.submit(lasting(run("train", runtime={"checkpoint": "10m"}), "5h"), run("wide", 64))
    cli.submit(run("late", owner="org:other", runtime={"maxDuration": "10m"}))
    cli.submit(run("unpaid", funding={"allowOpportunistic": True}))
    cli.runs("advance", "1h")
    first = cli.state.read_text()
    assert "reason: DurationExceeded" in first
    cli.runs("advance", "0s")
    assert cli.state.read_text() == first


def test_null_fields_are_treated_as_absent(cli: CliRunner) -> None:
    body = run("train")
    body["metadata"] |= {"creationTimestamp": None, "uid": None, "namespace": None}
    cli.submit(body)
    metadata = cli.saved("Run", "train")["metadata"]
    assert metadata["creationTimestamp"] == "2026-01-05T09:00:00Z"
    assert metadata["uid"]
    lease = cli.saved("Run", "train")["status"]["allocation"]["leases"][0]["name"]
    uid = cli.saved("Lease", lease)["metadata"]["uid"]
    cli.state.write_text(cli.state.read_text().replace(uid, "null"))
    assert cli.runs("complete", "train").code == 0


def test_verdict_of_a_finished_run_is_kept(cli: CliRunner) -> None:
    """The Run failed because it reached its maxDuration (F7)."""
    cli.submit(run("train", runtime={"maxDuration": "1h"}))
    cli.runs("advance", "2h")
    cli.runs("advance", "2h")
    status = cli.saved("Run", "train")["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "DurationExceeded")
    assert status["message"] == "DurationExceeded: it reached its maxDuration (1h)"


def test_budget_cut_in_the_file_is_applied_when_the_file_is_read(cli: CliRunner) -> None:
    cli.submit(run("train"))
    cli.runs("advance", "1h")
    cli.state.write_text(cli.state.read_text().replace("concurrency: 8", "concurrency: 4"))
    out = cli.runs("state").out
    assert "Opportunistic 8" in out
    assert cli.runs("check").code == 0
    assert cli.runs("advance", "1h").code == 0
    assert cli.runs("check").code == 0


def test_submit_replaces_objects_as_kubectl_apply_does(cli: CliRunner) -> None:
    cli.submit(run("train"))
    uid = cli.saved("Run", "train")["metadata"]["uid"]
    cli.submit(run("next", 16))
    again = cli.write_file("next.yaml", run("next", 8), node("a02", rack="r2"))
    assert cli.runs("submit", "-f", again, "--replace").code == 0
    assert cli.saved("Node", "a02")["metadata"]["labels"]["rack"] == "r2"
    assert cli.saved("Run", "next")["spec"]["resources"]["totalGPUs"] == 8
    wider = cli.runs("submit", "-f", cli.write_file("train.yaml", run("train", 16)), "--replace")
    assert wider.code == 2
    assert "while a Run is running, only malleable.desiredTotalGPUs" in wider.err
    same = cli.runs("submit", "-f", cli.write_file("train.yaml", run("train", 8)), "--replace")
    assert same.code == 0
    assert cli.saved("Run", "train")["metadata"]["uid"] == uid
    assert cli.saved("Run", "train")["status"]["phase"] == "Running"


def test_waiting_run_keeps_its_reservation_when_the_edit_does_not_affect_planning(cli: CliRunner) -> None:
    cli.submit(run("train", runtime={"maxDuration": "1h"}))
    cli.submit(run("next"))
    before = cli.saved("Reservation", "next-1")
    other = cli.write_file("next.yaml", run("next", runtime={"maxRestarts": 9}))
    assert "Edited" not in cli.runs("submit", "-f", other, "--replace").out
    assert cli.saved("Run", "next")["spec"]["runtime"]["maxRestarts"] == 9
    assert cli.saved("Reservation", "next-1") == before
    more = cli.write_file("next.yaml", run("next", 64))
    cli.runs("submit", "-f", more, "--replace")
    assert [slip["reason"] for slip in cli.saved("Reservation", "next-1")["status"]["slips"]] == ["Edited"]


def test_submit_refuses_to_replace_a_lease(cli: CliRunner) -> None:
    cli.submit(run("train"))
    lease = cli.saved("Run", "train")["status"]["allocation"]["leases"][0]["name"]
    path = cli.write_file("lease.yaml", cli.saved("Lease", lease))
    answer = cli.runs("submit", "-f", path, "--replace")
    assert answer.code == 2
    assert "a Lease cannot be replaced: only Jobtree writes it" in answer.err


def test_dry_run_says_that_nothing_was_saved(cli: CliRunner) -> None:
    path = cli.write_file("run.yaml", run("train"))
    answer = cli.runs("submit", "--dry-run", "-f", path)
    assert answer.out.splitlines()[-1] == "dry run: nothing was saved"
    assert cli.runs("state").out == "no Runs\n"


def test_usage_lists_classes_and_caps(cli: CliRunner) -> None:
    cap = {
        "name": "all",
        "flavor": "H100-80GB",
        "envelopes": ["own"],
        "maxConcurrency": 12,
        "maxGPUHours": 40,
    }
    cli.write_cluster(*nodes(3), budget("lab", envelope(16, maxGPUHours=100), aggregateCaps=[cap]))
    cli.submit(run("train", 8, spares=1), run("child", 1, owner="org:lab:child"))
    cli.runs("advance", "1h")
    out = cli.runs("budgets", "usage").out
    rows = {line[:11]: line.split() for line in out.splitlines()}
    assert rows["lab/own    "][3:6] == ["11", "2", "1"], "the cap leaves 1, and the owner takes back 1"
    assert "cap all; 1 in use by the family, until the owner needs them" in out
    assert rows["cap lab/all"][4:6] == ["11", "1"]


def test_init_writes_an_example_cluster(cli: CliRunner) -> None:
    answer = cli.without_state("init", "lab.yaml")
    assert answer.code == 0
    assert "export JOBTREE_STATE=lab.yaml" in answer.out
    text = (cli.directory / "lab.yaml").read_text()
    assert text.count("# ") > 5
    assert cli.without_state("--state", "lab.yaml", "check").code == 0
    assert "Running" in cli.without_state("--state", "lab.yaml", "state").out
    assert "--force" in cli.without_state("init", "lab.yaml").err
    assert cli.without_state("init", "lab.yaml", "--force").code == 0
    assert cli.without_state("init").code == 4  # the default is cluster.yaml, which exists


def test_lost_work_is_saved_and_printed_by_explain(cli: CliRunner) -> None:
    cli.submit(run("r"))
    cli.runs("advance", "1h")
    (slot,) = cli.saved("Run", "r")["status"]["allocation"]["leases"][0]["slots"]
    cli.runs("fail", slot.partition("#")[0])
    assert cli.saved("Run", "r")["metadata"]["annotations"]["sim.rq.davidlangworthy.io/lost"] == "28800000"
    cli.runs("advance", "1h")
    assert "lost     8 GPU-hours of work that had to be done again" in cli.runs("explain", "r").out
