"""What users were told that they would find is there, word for word where it is a command, a field or a name.

Each test holds one of these promises. They were made before the code was written, so other tests may not
notice when a name changes. This file says what each promise is in its own words.
"""

import json
import re

import pytest
import yaml

from jobtree.api.documents.document_stream import read_documents
from jobtree.api.kinds.lease import Lease
from jobtree.api.validation.object_parser import parse_object
from jobtree.core.model.outcomes import EVENTS
from jobtree.manager.metrics import METRICS
from tests.shown import REPOSITORY
from tests.unit.cli.cli_runner import CliRunner
from tests.unit.cli.manifests import Body, budget, envelope, lasting, node, nodes, run

SAMPLES = REPOSITORY / "config" / "samples"


def sample(path: str) -> list[Body]:
    return [document.body for document in read_documents((SAMPLES / path).read_bytes(), path)]


@pytest.fixture(name="domain_b")
def _domain_b(cli: CliRunner) -> CliRunner:
    """Domain B is full: mm1 with spares, an elastic research-demo. A funded newcomer asks for 48."""
    cli.write_cluster(
        *(node(f"b{number:02}", "B") for number in range(1, 17)),
        *(budget(name, envelope(160)) for name in ("mm", "research", "new")),
    )
    cli.submit(run("mm1", 64, "org:mm", locality={"groupGPUs": 16}, spares=1))
    elastic = {"minTotalGPUs": 16, "maxTotalGPUs": 32, "stepGPUs": 16}
    cli.submit(run("research-demo", 32, "org:research", malleable=elastic))
    cli.submit(run("newcomer", 48, "org:new"))
    return cli


# Commands


@pytest.mark.parametrize(
    "words",
    [
        "plan mm1",
        "explain mm1",
        "leases mm1",
        "leases --owner org:mm",
        "state --all",
        "state --owner org:research",
        "shrink research-demo --to 16",
        "budgets usage",
        "budgets usage --owner org:mm",
        "watch mm1 --once",
    ],
)
def test_command_is_understood_as_the_guides_write_it(domain_b: CliRunner, words: str) -> None:
    answer = domain_b.runs(*words.split())
    assert (answer.code, answer.err) == (0, "")


def test_submit_reads_yaml_and_json(cli: CliRunner) -> None:
    path = cli.directory / "run.json"
    path.write_text(json.dumps(run("one")))
    assert cli.runs("submit", "-f", str(path)).code == 0
    assert cli.submit(run("two")).code == 0


def test_watch_shows_width_and_reservation(domain_b: CliRunner) -> None:
    assert "64/64 GPUs" in domain_b.runs("watch", "mm1", "--once").out
    assert "reservation newcomer-1 starts it in 1m00s" in domain_b.runs("watch", "newcomer", "--once").out


def test_plan_shows_start_slice_deficit_conflicts_and_remedies(domain_b: CliRunner) -> None:
    out = domain_b.runs("plan", "newcomer").out
    assert re.search(r"earliestStart +2026-01-05T09:01:00Z", out)
    assert re.search(r"intendedSlice +domain=B \(nodes b01-b16\)", out)
    assert re.search(r"deficit +48 GPUs in domain=B", out)
    assert re.search(r"conflictSet +\[run/mm1, run/research-demo\]", out)
    assert re.search(r"remedies +drop spares \(32\), shrink malleable \(16\)", out)


def test_plan_for_scripts_has_what_there_is_what_is_needed_and_advice(domain_b: CliRunner) -> None:
    document = domain_b.runs("plan", "newcomer", "-o", "json").json()
    _, reservation, plan = document["items"]
    (cause,) = plan["status"]["causes"]
    assert (cause["reason"], cause.get("have", 0), cause["need"]) == ("NoFreeSlots", 0, 48)
    assert any("wait for default/mm1" in remedy for remedy in cause["remedies"])
    assert reservation["status"]["forecast"]["deficitGPUs"] == 48


def test_lottery_names_the_run_to_shrink_and_the_conflict_set(cli: CliRunner) -> None:
    cli.write_cluster(*nodes(9), budget("a", envelope(64)), budget("b", envelope(64)))
    cli.submit(run("mm1", 40, "org:a"))
    elastic = {"minTotalGPUs": 8, "maxTotalGPUs": 24, "stepGPUs": 8}
    cli.submit(run("rai-sys", 24, "org:b", malleable=elastic))
    cli.runs("advance", "2h")
    cli.submit(run("j4", 32, "org:b"))
    assert re.search(
        r"shrink rai-sys \(16\), lottery conflict set \[mm1, rai-sys\] \(8\)", cli.runs("plan", "j4").out
    )


def test_growth_can_be_found_by_its_old_name(cli: CliRunner) -> None:
    cli.write_cluster(*nodes(2), budget("lab", envelope(16)))
    elastic = {"minTotalGPUs": 8, "maxTotalGPUs": 16, "stepGPUs": 8}
    cli.submit(run("fixed", 8))
    cli.submit(run("elastic", 8, malleable=elastic, runtime={"onResize": "Rendezvous"}))
    cli.runs("complete", "fixed")
    assert "Grown" in cli.runs("advance", "1m").out
    assert "INCR" in (REPOSITORY / "src/jobtree/core/model/reasons.py").read_text()


def test_status_has_start_deficit_and_probability_and_warns_in_advance(domain_b: CliRunner) -> None:
    domain_b.runs("advance", "1s")
    waiting, warned = domain_b.saved("Run", "newcomer")["status"], domain_b.saved("Run", "mm1")["status"]
    assert (waiting["earliestStart"], waiting["deficitGPUs"]) == ("2026-01-05T09:01:00Z", 48)
    assert warned["risk"][0]["killProbability"] == "0"
    assert {"type": "AtRisk", "status": "True"}.items() <= next(
        condition for condition in warned["conditions"] if condition["type"] == "AtRisk"
    ).items()


# Manifests


def test_small_sample_is_the_run_of_the_quick_start() -> None:
    (small,) = sample("runs/resnet-small.yaml")
    assert (small["apiVersion"], small["kind"]) == ("rq.davidlangworthy.io/v1", "Run")
    assert (small["metadata"]["namespace"], small["spec"]["owner"]) == ("rai-sys", "org:ai:rai:sys")
    resources = small["spec"]["resources"]
    assert (resources["gpuType"], resources["totalGPUs"]) == ("H100-80GB", 8)
    assert small["spec"]["runtime"]["checkpoint"] == "10m"


def test_large_sample_is_the_trainer_of_the_guide() -> None:
    (trainer,) = sample("runs/trainer-128.yaml")
    spec = trainer["spec"]
    assert (spec["resources"]["totalGPUs"], spec["locality"]["groupGPUs"], spec["spares"]) == (128, 32, 1)
    assert spec["malleable"] == {"minTotalGPUs": 96, "maxTotalGPUs": 160, "stepGPUs": 32}


def test_funding_fields_are_spelled_as_told(cli: CliRunner) -> None:
    funding = {"allowBorrow": True, "maxBorrowGPUs": 32, "sponsors": ["org:lab"]}
    assert cli.submit(run("borrower", funding=funding)).code == 0


def test_hours_beyond_concurrency_times_window_are_refused(cli: CliRunner) -> None:
    week = {"start": "2026-01-05T00:00:00Z", "end": "2026-01-12T00:00:00Z"}
    answer = cli.submit(budget("b", envelope(4, maxGPUHours=10_000, **week)))
    assert (answer.code, "at most concurrency × window" in answer.err) == (2, True), answer.err


def test_closed_lease_has_one_payer_and_a_reason(cli: CliRunner) -> None:
    cli.submit(lasting(run("train"), "1h"))
    cli.runs("advance", "2h")
    (body,) = cli.runs("leases", "train", "-o", "json").json()["items"]
    lease = parse_object(body, "test")
    assert isinstance(lease, Lease)
    assert (lease.spec.payer.budget, lease.status.closure_reason) == ("lab", "Completed")


def test_runs_have_no_priorities(cli: CliRunner) -> None:
    answer = cli.submit(run("important", priority=10))
    assert (answer.code, "spec.priority" in answer.err) == (2, True), answer.err


def test_nodes_are_found_by_the_labels_of_the_guide(cli: CliRunner) -> None:
    labels = {"region": "us-west", "cluster": "gpu-a", "rack": "r01"}
    nvidia, amd = node("gpu-a-01", **labels), node("gpu-a-02", flavor="MI300X", **labels)
    amd["status"]["allocatable"] = {"amd.com/gpu": 8}
    cli.write_cluster(nvidia, amd)
    assert [line.split()[:2] for line in cli.runs("topology").out.splitlines()[1:]] == [
        ["us-west/gpu-a/nv-a", "H100-80GB"],
        ["us-west/gpu-a/nv-a", "MI300X"],
    ]


# Install and run


@pytest.mark.parametrize(
    "path",
    [
        "config/samples/budgets/budget-west-h100.yaml",
        "config/samples/budgets/budget-vision-lending.yaml",
        "config/samples/runs/run-128-groups.yaml",
        "config/samples/runs/run-cofunded-128.yaml",
        "config/samples/reservations/reservation-example.yaml",
        "deploy/helm/gpu-fleet/Chart.yaml",
        "deploy/grafana/dashboards/observability.json",
        "deploy/kustomize/base/kustomization.yaml",
    ],
)
def test_file_is_where_the_guides_say(path: str) -> None:
    assert (REPOSITORY / path).is_file()


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("[br]*/*.yaml"), key=str), ids=lambda path: path.stem)
def test_sample_works_with_kubectl_apply(path: object) -> None:
    """Only objects of the API, but for the state file that says so in its first line."""
    text = (SAMPLES / str(path)).read_text(encoding="utf-8")
    if "state file" in text.splitlines()[0]:
        return
    for body in read_documents(text.encode(), "sample"):
        assert body.body["apiVersion"] == "rq.davidlangworthy.io/v1"
        assert "status" not in body.body


def test_deployment_of_the_manager_has_its_name() -> None:
    text = (REPOSITORY / "deploy/kustomize/base/deployment.yaml").read_text(encoding="utf-8")
    deployment = next(body for body in yaml.safe_load_all(text) if body["kind"] == "Deployment")
    assert deployment["metadata"]["name"] == "jobtree-controller-manager"
    assert deployment["metadata"]["namespace"] == "jobtree-system"


def test_metrics_have_the_names_that_dashboards_use() -> None:
    names = {metric.name for metric in METRICS}
    assert names >= {
        "jobtree_runs_submitted_total",
        "jobtree_runs_admission_latency_seconds",
        "jobtree_reservations_pending",
        "jobtree_reservation_eta_seconds",
        "jobtree_forecast_latency_seconds",
        "jobtree_lottery_draws_total",
        "jobtree_preemptions_total",
        "jobtree_budget_headroom_gpus",
    }


def test_dashboard_shows_headroom_backlog_and_preemption() -> None:
    dashboard = json.loads((REPOSITORY / "deploy/grafana/dashboards/observability.json").read_text())
    titles = {panel["title"] for panel in dashboard["panels"]}
    assert titles >= {"Headroom of each envelope", "Backlog", "Starts due within", "Preemptions by domain"}


def test_events_of_lotteries_and_spares_have_their_names() -> None:
    assert EVENTS.keys() >= {"RandomPreempt", "AtRisk", "Reserved", "Swapped", "Shrunk", "SpareDropped"}


@pytest.mark.parametrize(
    "page",
    [
        "docs/concepts/overview.md",
        "docs/user-guide/researcher-guide.md",
        "docs/operator-guide/admin-setup.md",
        "docs/user-guide/slurm-users.md",
        "docs/user-guide/kueue-users.md",
        "docs/roadmap/milestones.md",
        "docs/MAINTAINERS.md",
        "docs/project/first-class-readiness.md",
        "docs/architecture/directory-tree.md",
    ],
)
def test_page_exists(page: str) -> None:
    assert (REPOSITORY / page).is_file()


# Behaviour


def test_structural_cuts_come_before_any_draw(domain_b: CliRunner) -> None:
    out = domain_b.runs("advance", "1m").out
    assert "RandomPreempt" not in out
    assert re.search(r"Admitted +default/newcomer +48 GPUs", out)


def test_spare_takes_over_and_opportunistic_work_on_it_ends(cli: CliRunner) -> None:
    cli.write_cluster(*nodes(3), budget("lab", envelope(16)), budget("b", envelope(8)))
    cli.submit(run("train", 8, spares=1))
    cli.submit(run("holder", 8, "org:b"))
    cli.submit(run("guest", 8, "org:b", funding={"allowOpportunistic": True}))
    (lease,) = [
        body
        for body in cli.runs("leases", "train", "-o", "json").json()["items"]
        if body["spec"]["role"] == "Active"
    ]
    failed = lease["spec"]["slots"][0].partition("#")[0]
    out = cli.runs("fail", failed).out
    assert re.search(r"NodeFailed +default/train", out)
    assert re.search(r"Swapped +default/train", out)
    assert "ReclaimedBySpare" in cli.runs("leases", "guest").out
    assert cli.saved("Node", failed)["spec"]["unschedulable"] is True
