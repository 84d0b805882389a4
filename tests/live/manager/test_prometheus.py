"""A real Prometheus that scrapes managers: every panel and every alert has its data."""

import math
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from shutil import copy
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from jobtree.api.schema.quantities import parse_slots
from jobtree.manager.metrics import METRICS
from tests.live.admission.webhook_cluster import WebhookEndpoint
from tests.live.cluster.api_server_restart import restart_api_server
from tests.live.cluster.control_plane import ControlPlane
from tests.live.cluster.free_ports import free_port
from tests.live.cluster.server_process import wait_until
from tests.live.crds.manifests import API_VERSION
from tests.live.manager.installation import install, set_policy
from tests.live.manager.manager_process import Manager
from tests.live.manager.prometheus_server import Prometheus
from tests.live.manager.tenant import Tenant
from tests.live.programs.debian_packages import install_prometheus, why_no_prometheus
from tests.queries import ALERTS, alert_rules, panel_queries, selectors

ALERT_TEST_CASES = Path(__file__).with_name("alert_test_cases.yaml")
SHORT_RETENTION = "leaseRetention: 1s\n"
SHORT_NOTICE = f"structuralNotice: 1s\nminNotice: 1s\nmaxNotice: 2s\nminRuntime: 0s\n{SHORT_RETENTION}"


def eventually(condition: Callable[[], object], description: str) -> None:
    wait_until(lambda: bool(condition()), description)


class ScrapedCluster:
    """A leader and a standby that are scraped, on a cluster with data for every panel."""

    def __init__(self, plane: ControlPlane, stack: ExitStack) -> None:
        kubeconfig = install(plane)
        set_policy(plane, SHORT_NOTICE)
        plane.start_controllers()
        self.tenant = Tenant(plane, plane.start_fake_fleet(), "seen")
        self.addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        self.managers: list[Manager] = []
        self.archive = plane.directory / "archive"
        self.archive.write_text("a file, where a directory should be")
        for address in self.addresses:
            archive = (f"--archive={self.archive}", "--archive-seconds=1")
            manager = Manager(
                plane, kubeconfig, f"--health-address={address}", *WebhookEndpoint().flags, *archive
            )
            self.managers.append(stack.enter_context(manager))
            eventually(lambda: self.readiness_status(0) == 200, "the leader is ready")
        self.prometheus = Prometheus(plane, *self.addresses)
        eventually(
            lambda: self.prometheus.query("count(up == 1) == 2"),
            "Prometheus scrapes both managers",
        )

    def readiness_status(self, manager: int) -> int:
        try:
            with urlopen(f"http://{self.addresses[manager]}/readyz", timeout=5) as answer:
                return int(answer.status)
        except HTTPError as refused:
            return refused.code
        except OSError:
            return 0

    def create_history(self) -> None:
        """Drops spares, shrinks a Run, ends opportunistic work, holds a lottery; restores long notices."""
        tenant = self.tenant
        tenant.add_nodes("nv-a", 4)
        for team in ("a", "b", "c"):
            tenant.create_budget(team, 32, maxGPUHours=10_000)
        tenant.create_run("spared", "a", 8, spares=1)
        tenant.create_run(
            "elastic",
            "a",
            16,
            malleable={"minTotalGPUs": 8, "maxTotalGPUs": 16, "stepGPUs": 8},
            runtime={"checkpoint": "1h", "maxDuration": "20h"},
        )
        tenant.await_phase("Running", "spared", "elastic")
        tenant.create_run("taker", "b", 16)
        tenant.await_phase("Running", "taker")
        tenant.create_run("drawer", "c", 16)
        tenant.await_phase("Running", "drawer")
        set_policy(tenant.plane, SHORT_RETENTION)
        tenant.create_run("never", "nobody", 8)
        tenant.await_phase("Reserved", "never")


@pytest.fixture(scope="module")
def scraped_cluster(programs: dict[str, Path]) -> Iterator[ScrapedCluster]:
    assert "kwok" in programs
    with ControlPlane() as plane, ExitStack() as stack:
        cluster = ScrapedCluster(plane, stack)
        cluster.create_history()
        yield cluster


@pytest.fixture(scope="session", autouse=True)
def prometheus_installed() -> None:
    if why := why_no_prometheus():
        pytest.skip(why)
    install_prometheus()


def test_alert_rules_pass_promtool_check() -> None:
    result = subprocess.run(
        ["promtool", "check", "rules", ALERTS], capture_output=True, text=True, check=False, timeout=60
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"{len(alert_rules())} rules found" in result.stdout


def test_alerts_fire_in_their_test_cases_only(tmp_path: Path) -> None:
    copy(ALERTS, tmp_path / "alerts.yaml")
    copy(ALERT_TEST_CASES, tmp_path / "cases.yaml")
    result = subprocess.run(
        ["promtool", "test", "rules", "cases.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    text = ALERT_TEST_CASES.read_text()
    assert [rule["alert"] for rule in alert_rules() if text.count(rule["alert"]) < 2] == []


def test_prometheus_scrapes_both_managers_and_loads_the_rules(scraped_cluster: ScrapedCluster) -> None:
    prometheus = scraped_cluster.prometheus
    eventually(
        lambda: [target["health"] for target in prometheus.targets()] == ["up", "up"], "both targets are up"
    )
    eventually(lambda: {rule["health"] for rule in prometheus.rules()} == {"ok"}, "all rules are healthy")
    assert {rule["name"] for rule in prometheus.rules()} == {rule["alert"] for rule in alert_rules()}
    eventually(
        lambda: prometheus.value("count(jobtree_leading)") == 2, "both managers report whether they lead"
    )
    eventually(lambda: prometheus.value("sum(jobtree_leading)") == 1, "one manager leads")


@pytest.mark.parametrize(("title", "query"), [*panel_queries("10m")])
def test_panel_query_has_data(scraped_cluster: ScrapedCluster, title: str, query: str) -> None:
    eventually(lambda: has_data(scraped_cluster.prometheus, query), f"{title}: {query}")


def has_data(prometheus: Prometheus, query: str) -> bool:
    return any(not math.isnan(float(sample["value"][1])) for sample in prometheus.query(query))


@pytest.mark.parametrize("rule", alert_rules(), ids=lambda rule: rule["alert"])
def test_series_of_an_alert_rule_exist(scraped_cluster: ScrapedCluster, rule: dict[str, str]) -> None:
    scraped_cluster.prometheus.query(rule["expr"])
    for name, matchers in selectors(rule["expr"]):
        eventually(partial(scraped_cluster.prometheus.query, name + matchers), name + matchers)


def test_every_metric_has_series_with_its_labels(scraped_cluster: ScrapedCluster) -> None:
    for metric in METRICS:
        name = f"{metric.name}_count" if metric.kind == "histogram" else metric.name
        eventually(partial(scraped_cluster.prometheus.query, name), name)
        for sample in scraped_cluster.prometheus.query(name):
            labels = sample["metric"].keys() - {"__name__", "instance", "job"}
            assert labels == {*metric.labels}


def test_metrics_equal_the_objects_of_the_cluster(scraped_cluster: ScrapedCluster) -> None:
    """The metrics in Prometheus equal the objects of the API server."""
    eventually(
        lambda: metric_figures(scraped_cluster.prometheus) == object_figures(scraped_cluster.tenant),
        "both are equal",
    )


def object_figures(tenant: Tenant) -> dict[str, float]:
    roles: Counter[str] = Counter()
    classes: Counter[str] = Counter()
    endings: Counter[str] = Counter()
    for lease in tenant.items(f"/apis/{API_VERSION}/gpuleases"):
        spec = lease["spec"]
        gpus = sum(mask.bit_count() for mask in parse_slots(spec["slots"]).values())
        ending = lease.get("status", {}).get("closureReason")
        if ending is None:
            roles[spec["role"].lower()] += gpus
            classes[spec["payer"]["budget"]] += gpus if spec["role"] == "Active" else gpus // 4
        endings[ending] += 1
    reservations = tenant.items(f"/apis/{API_VERSION}/reservations")
    pending = [item for item in reservations if item.get("status", {}).get("state") == "Pending"]
    drawn = [item["status"]["lottery"] for item in reservations if "lottery" in item.get("status", {})]
    return {
        "active": roles["active"],
        "spare": roles["spare"],
        **{f"paid by {budget}": gpus for budget, gpus in classes.items() if gpus},
        "pending": len(pending),
        "undated": len([item for item in pending if "earliestStart" not in item["spec"]]),
        "draws": sum(len(record["decision"]["draws"]) for record in drawn),
        "lost lotteries": endings["RandomPreempt"],
        "runs": len(tenant.items(f"/apis/{API_VERSION}/runs")),
    }


def metric_figures(prometheus: Prometheus) -> dict[str, float]:
    paid = prometheus.query('sum by (budget) (jobtree_budget_concurrency_gpus{class!="opportunistic"}) > 0')
    return {
        "active": prometheus.value('sum(jobtree_fleet_gpus{state="active"})'),
        "spare": prometheus.value('sum(jobtree_fleet_gpus{state="spare"})'),
        **{f"paid by {sample['metric']['budget']}": float(sample["value"][1]) for sample in paid},
        "pending": prometheus.value("sum(jobtree_reservations_pending)"),
        "undated": prometheus.value("sum(jobtree_reservations_undated)"),
        "draws": prometheus.value("sum(jobtree_lottery_draws_total)"),
        "lost lotteries": prometheus.value('sum(jobtree_preemptions_total{reason="RandomPreempt"})'),
        "runs": prometheus.value("sum(jobtree_runs_submitted_total)"),
    }


def test_log_contains_lotteries_with_their_seeds(scraped_cluster: ScrapedCluster) -> None:
    """The log can be searched for RandomPreempt."""
    lines = [line for line in scraped_cluster.managers[0].log_lines() if "RandomPreempt" in str(line)]
    reservations = scraped_cluster.tenant.reservations()
    proofs = [item["status"]["lottery"] for item in reservations if "lottery" in item.get("status", {})]
    seeds = {proof["seed"] for proof in proofs}
    attested = {line["seed"] for line in lines if "record" in line}
    assert attested
    assert attested <= seeds
    for line in lines:
        assert line["part"] in ("resolver", "binder", "forecast")
    assert all(
        "cause" in line for line in scraped_cluster.managers[0].log_lines() if line["part"] == "forecast"
    )


def test_archive_alert_fires_until_the_archive_can_be_written(scraped_cluster: ScrapedCluster) -> None:
    (rule,) = [rule for rule in alert_rules() if rule["alert"] == "JobtreeArchiveFailing"]
    eventually(lambda: scraped_cluster.prometheus.query(rule["expr"]), "the alert fires")
    ended = ended_leases(scraped_cluster.tenant)
    assert ended, "no closed lease is on the API server"
    scraped_cluster.archive.unlink()
    scraped_cluster.archive.mkdir()
    eventually(lambda: scraped_cluster.prometheus.query(rule["expr"]) == [], "the alert is over")
    eventually(lambda: not ended & ended_leases(scraped_cluster.tenant), "the leases are archived")


def ended_leases(tenant: Tenant) -> set[str]:
    leases = tenant.items(f"/apis/{API_VERSION}/gpuleases")
    return {lease["metadata"]["name"] for lease in leases if "end" in lease.get("status", {})}


def test_manager_is_not_ready_while_the_api_server_restarts(scraped_cluster: ScrapedCluster) -> None:
    eventually(lambda: scraped_cluster.readiness_status(1) == 200, "the standby is ready")
    restart_api_server(
        scraped_cluster.tenant.plane,
        meanwhile=lambda: wait_until(
            lambda: scraped_cluster.readiness_status(1) == 503, "the standby is not ready"
        ),
    )
    eventually(lambda: scraped_cluster.readiness_status(1) == 200, "the standby is ready again")


def test_leader_alert_fires_when_no_manager_leads(scraped_cluster: ScrapedCluster) -> None:
    (rule,) = [rule for rule in alert_rules() if rule["alert"] == "JobtreeNobodyLeads"]
    eventually(lambda: scraped_cluster.prometheus.query(rule["expr"]) == [], "a manager leads")
    for manager in scraped_cluster.managers:
        manager.stop()
    eventually(lambda: scraped_cluster.prometheus.query(rule["expr"]) != [], "no manager leads")
