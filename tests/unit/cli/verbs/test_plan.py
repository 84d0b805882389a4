"""``plan`` says what would happen, with slots and payers, and changes nothing."""

from tests.unit.cli.cli_runner import CliRunner
from tests.unit.cli.manifests import budget, envelope, nodes, run


def test_plan_prints_slots_and_payers(cli: CliRunner) -> None:
    answer = cli.runs("plan", "-f", cli.write_file("run.yaml", run("train")))
    assert answer.out.splitlines() == [
        "default/train would start now: 8 GPUs of H100-80GB",
        "GROUP  ROLE    GPUS  DOMAIN  SLOTS    PAYER    CLASS",
        "    0  Active     8  nv-a    a01#0-7  lab/own  Owned",
        "width 8, charge 8, pods of 8 GPUs",
    ]


def test_plan_does_not_change_the_state_file(cli: CliRunner) -> None:
    before = cli.state.read_bytes()
    assert cli.runs("plan", "-f", cli.write_file("run.yaml", run("train"))).code == 0
    assert cli.state.read_bytes() == before
    assert cli.runs("state").out == "no Runs\n"


def test_plan_equals_what_submit_does(cli: CliRunner) -> None:
    path = cli.write_file("run.yaml", run("train", 8, spares=1))
    planned = cli.runs("plan", "-f", path, "-o", "json").json()
    cli.runs("submit", "-f", path)
    running = cli.runs("plan", "train", "-o", "json").json()
    answers = [listed["items"][-1]["status"].pop("answer") for listed in (planned, running)]
    assert answers == ["StartsNow", "Running"]
    assert running == planned


def test_plan_prints_the_phase_when_the_run_runs_or_is_finished(cli: CliRunner) -> None:
    cli.submit(run("train"))
    cli.runs("advance", "1h")
    running = cli.runs("plan", "train")
    assert running.code == 0
    assert "default/train has run since 2026-01-05T09:00:00Z" in running.out
    cli.runs("complete", "train")
    finished = cli.runs("plan", "train")
    assert finished.code == 1
    assert "default/train is Completed: Completed: all its work is done" in finished.out


def test_plan_lists_consequences_for_other_runs(cli: CliRunner) -> None:
    cli.write_cluster(*nodes(2), budget("p", envelope(8)))
    cli.submit(run("child", owner="org:p:c"))
    answer = cli.runs("plan", "-f", cli.write_file("run.yaml", run("parent", owner="org:p")))
    assert answer.code == 0
    assert "this would also happen:" in answer.out
    assert "Demoted  default/child  Recalled: no envelope can pay for 8 of its GPUs" in answer.out


def test_plan_lists_what_a_changed_budget_would_start(cli: CliRunner) -> None:
    cli.submit(run("first"))
    cli.submit(run("second"))
    raised = cli.runs("plan", "-f", cli.write_file("budget.yaml", budget("lab", envelope(16))))
    assert raised.code == 0
    assert "this would happen:" in raised.out
    assert "Admitted    default/second  8 GPUs paid by lab/own (Owned)" in raised.out
    same = cli.runs("plan", "-f", cli.write_file("budget.yaml", budget("lab", envelope(8))))
    assert same.out == "nothing would change for any Run\n"


def test_plan_of_a_file_replaces_the_run_of_the_same_name(cli: CliRunner) -> None:
    cli.submit(run("train", 16))
    assert cli.runs("plan", "train").code == 1
    assert cli.runs("plan", "-f", cli.write_file("smaller.yaml", run("train", 8))).code == 0


def test_plan_says_would_start_for_an_unplanned_run_of_the_file(cli: CliRunner) -> None:
    cli.write_cluster(*nodes(1), budget("lab", envelope(8)), run("train"))
    assert "would start now" in cli.runs("plan", "train").out
    cli.runs("advance", "1m")
    assert "has run since" in cli.runs("plan", "train").out


def test_plan_and_submit_ignore_a_run_that_is_being_deleted(cli: CliRunner) -> None:
    deleted = run("train")
    deleted["metadata"]["deletionTimestamp"] = "2026-01-05T09:00:00Z"
    assert (
        cli.runs("plan", "-f", cli.write_file("run.yaml", deleted)).out
        == "nothing would change for any Run\n"
    )
    assert cli.submit(deleted).code == 0


def test_verbs_accept_a_run_without_gpus(cli: CliRunner) -> None:
    prep = run("prep", resources={"totalGPUs": 0, "pods": 2})
    assert "default/prep is Running: 2 pods without GPUs" in cli.submit(prep).out
    assert "default/prep is Running: 2 pods without GPUs" in cli.runs("plan", "prep").out
    assert cli.runs("explain", "prep").code == 0
    assert cli.runs("watch", "prep", "--once").code == 0
    assert cli.runs("state").code == 0
