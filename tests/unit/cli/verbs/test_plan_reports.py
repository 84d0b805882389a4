"""``plan`` for pipelines: annotations, test reports, a RunPlan for each Run, and the exit codes."""

from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tests.unit.cli.cli_runner import CliRunner
from tests.unit.cli.manifests import Body, budget, envelope, lasting, nodes, run


@pytest.fixture(autouse=True)
def _cluster(cli: CliRunner) -> None:
    """The team org:lab has 8 GPUs, which train uses for an hour; the team org:poor has no budget."""
    cli.submit(lasting(run("train", runtime={"maxDuration": "1h"}), "1h"))


def run_plans(cli: CliRunner, *bodies: Body) -> list[Any]:
    listed = cli.runs("plan", "-f", cli.write_file("new.yaml", *bodies), "-o", "json").json()
    return [body for body in listed["items"] if body["kind"] == "RunPlan"]


def plan(cli: CliRunner, output: str, *bodies: Body, words: tuple[str, ...] = ()) -> tuple[int, str]:
    result = cli.runs("plan", "-f", cli.write_file("new.yaml", *bodies), "-o", output, *words)
    return result.code, result.out


def test_annotations_tell_starts_waits_and_never_apart(cli: CliRunner) -> None:
    code, out = plan(cli, "github", run("late"), run("never", owner="org:poor"))
    late, never = out.splitlines()
    assert code == 1
    assert late.startswith("::warning title=default/late::default/late waits: ")
    assert "it would start by 2026-01-05T10:00:00Z%0AConcurrencyExhausted: " in late
    assert never.startswith("::error title=default/never::default/never waits: ")
    code, out = plan(cli, "github", run("now", gpus=0, resources={"totalGPUs": 0, "pods": 1}))
    assert (code, out.startswith("::notice title=default/now::")) == (0, True), out


def test_waiting_runs_with_a_date_are_accepted_on_request(cli: CliRunner) -> None:
    assert plan(cli, "github", run("late"))[0] == 1
    assert plan(cli, "github", run("late"), words=("--allow-wait",))[0] == 0
    assert plan(cli, "github", run("never", owner="org:poor"), words=("--allow-wait",))[0] == 1
    assert plan(cli, "table", run("late"), words=("--allow-wait",))[0] == 0


def test_report_has_a_case_for_each_run_and_fails_those_that_wait(cli: CliRunner) -> None:
    code, out = plan(cli, "junit", run("late"), run("never", owner="org:poor"))
    suites = ET.fromstring(out)  # noqa: S314  our own report
    cases = {case.get("name"): case.find("failure") for case in suites.iter("testcase")}
    assert (code, suites.get("tests"), suites.get("failures")) == (1, "2", "2")
    failure = cases["late"]
    assert failure is not None
    assert (failure.get("type"), "→" in (failure.text or "")) == ("Waits", True)
    code, out = plan(cli, "junit", run("late"), words=("--allow-wait",))
    assert (code, ET.fromstring(out).get("failures")) == (0, "0")  # noqa: S314


def test_run_plan_has_causes_with_figures_and_remedies(cli: CliRunner) -> None:
    (answer,) = run_plans(cli, run("late"))
    status = answer["status"]
    assert (status["answer"], status["phase"]) == ("Waits", "Reserved")
    (cause,) = (cause for cause in status["causes"] if cause["reason"] == "ConcurrencyExhausted")
    assert (cause.get("have", 0), cause["need"], cause["where"]) == (0, 8, "lab/own")
    assert any("train" in remedy for remedy in cause["remedies"])
    assert status["reservation"]["earliestStart"] == "2026-01-05T10:00:00Z"


def test_run_plan_has_slots_payers_and_cost(cli: CliRunner) -> None:
    cli.write_cluster(*nodes(2), budget("lab", envelope(16)))
    (answer,) = run_plans(cli, run("new", runtime={"maxDuration": "90m"}))
    (lease,) = answer["status"]["leases"]
    assert answer["status"]["answer"] == "StartsNow"
    assert (lease["gpus"], lease["slots"]) == (8, ["a01#0-7"])
    assert lease["payer"] == {"owner": "org:lab", "budget": "lab", "envelope": "own"}
    assert answer["status"]["cost"] == {"gpuHours": "12", "credits": "12"}


def test_run_plan_has_immunity_end_and_risks_of_a_running_run(cli: CliRunner) -> None:
    """R4, F7, R11: what the Run is told, in its status and in lines, is there as fields."""
    cli.write_cluster(*nodes(2), budget("lab", envelope(8)), budget("rich", envelope(16)))
    cli.submit(run("drawn", runtime={"maxDuration": "9h"}))
    cli.submit(run("large", gpus=16, owner="org:rich"))
    listed = cli.runs("plan", "drawn", "-o", "json").json()["items"]
    status = next(body["status"] for body in listed if body["kind"] == "RunPlan")
    told = next(body["status"] for body in listed if body["kind"] == "Run")
    assert status["endsBy"] == "2026-01-05T18:00:00Z"
    assert status["immuneUntil"] == "2026-01-05T11:00:00Z"
    assert status["risks"] == told["risk"]
    assert status["killProbability"] == told["killProbability"] == "1"


def test_run_plan_names_runs_at_risk_by_uid_and_effects_on_others(cli: CliRunner) -> None:
    cli.write_cluster(*nodes(1), budget("lab", envelope(8)))
    guest_run = run("guest", owner="org:poor", funding={"allowOpportunistic": True})
    cli.submit(guest_run, budget("poor", envelope(1), owner="org:poor"))
    uid = cli.saved("Run", "guest")["metadata"]["uid"]
    (answer,) = run_plans(cli, run("owner"))
    effects = [(effect["run"], effect["event"]) for effect in answer["status"]["effects"]]
    assert ({"namespace": "default", "name": "guest", "uid": uid}, "Reclaimed") in effects


@pytest.mark.parametrize("output", ["github", "junit"])
def test_only_plan_has_formats_for_pipelines(cli: CliRunner, output: str) -> None:
    assert cli.runs("state", "-o", output).code == 2
