"""plan answers what would happen, slot by slot, and changes nothing."""

from tests.unit.cli.desk import Desk, budget, envelope, nodes, run


def test_where_it_would_start_and_who_pays(desk: Desk) -> None:
    answer = desk.runs("plan", "-f", desk.file("run.yaml", run("train")))
    assert answer.out.splitlines() == [
        "default/train would start now: 8 GPUs of H100-80GB",
        "GROUP  ROLE    GPUS  DOMAIN  SLOTS    PAYER    CLASS",
        "    0  Active     8  nv-a    a01#0-7  lab/own  Owned",
        "width 8, charge 8, pods of 8 GPUs",
    ]


def test_a_plan_changes_nothing(desk: Desk) -> None:
    before = desk.state.read_bytes()
    assert desk.runs("plan", "-f", desk.file("run.yaml", run("train"))).code == 0
    assert desk.state.read_bytes() == before
    assert desk.runs("state").out == "no Runs\n"


def test_the_plan_is_what_submit_then_does(desk: Desk) -> None:
    path = desk.file("run.yaml", run("train", 8, spares=1))
    planned = desk.runs("plan", "-f", path, "-o", "json").json()
    desk.runs("submit", "-f", path)
    assert desk.runs("plan", "train", "-o", "json").json() == planned


def test_a_run_that_runs_and_one_that_is_finished(desk: Desk) -> None:
    desk.submit(run("train"))
    desk.runs("advance", "1h")
    running = desk.runs("plan", "train")
    assert running.code == 0
    assert "default/train has run since 2026-01-05T09:00:00Z" in running.out
    desk.runs("complete", "train")
    finished = desk.runs("plan", "train")
    assert finished.code == 1
    assert "default/train is Completed: Completed: all its work is done" in finished.out


def test_what_it_would_take_from_others(desk: Desk) -> None:
    desk.cluster(*nodes(2), budget("p", envelope(8)))
    desk.submit(run("child", owner="org:p:c"))
    answer = desk.runs("plan", "-f", desk.file("run.yaml", run("parent", owner="org:p")))
    assert answer.code == 0
    assert "this would also happen:" in answer.out
    assert "Demoted  default/child  Recalled: no envelope can pay for 8 of its GPUs" in answer.out


def test_what_a_budget_would_change(desk: Desk) -> None:
    desk.submit(run("first"))
    desk.submit(run("second"))
    raised = desk.runs("plan", "-f", desk.file("budget.yaml", budget("lab", envelope(16))))
    assert raised.code == 0
    assert "this would happen:" in raised.out
    assert "Admitted    default/second  8 GPUs paid by lab/own (Owned)" in raised.out
    same = desk.runs("plan", "-f", desk.file("budget.yaml", budget("lab", envelope(8))))
    assert same.out == "nothing would change for any Run\n"


def test_a_run_that_is_there_may_be_planned_with_other_wishes(desk: Desk) -> None:
    desk.submit(run("train", 16))
    assert desk.runs("plan", "train").code == 1
    assert desk.runs("plan", "-f", desk.file("smaller.yaml", run("train", 8))).code == 0


def test_a_run_in_the_file_that_nobody_has_started_yet(desk: Desk) -> None:
    desk.cluster(*nodes(1), budget("lab", envelope(8)), run("train"))
    assert "would start now" in desk.runs("plan", "train").out
    desk.runs("advance", "1m")
    assert "has run since" in desk.runs("plan", "train").out


def test_a_run_that_is_being_deleted_is_not_there(desk: Desk) -> None:
    going = run("train")
    going["metadata"]["deletionTimestamp"] = "2026-01-05T09:00:00Z"
    assert desk.runs("plan", "-f", desk.file("run.yaml", going)).out == "nothing would change for any Run\n"
    assert desk.submit(going).code == 0


def test_a_run_without_gpus(desk: Desk) -> None:
    prep = run("prep", resources={"totalGPUs": 0, "pods": 2})
    assert "default/prep is Running: 2 pods without GPUs" in desk.submit(prep).out
    assert "default/prep is Running: 2 pods without GPUs" in desk.runs("plan", "prep").out
    assert desk.runs("explain", "prep").code == 0
    assert desk.runs("watch", "prep", "--once").code == 0
    assert desk.runs("state").code == 0
