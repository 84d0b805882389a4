"""A real Prometheus scrapes a live manager: every panel and every alert finds what it asks for."""

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
from tests.live.control_plane import ControlPlane
from tests.live.hooking import Hook
from tests.live.managing import Manager, Scene, install, set_policy
from tests.live.manifests import API_VERSION
from tests.live.outage import restart
from tests.live.packages import install_prometheus, why_no_prometheus
from tests.live.ports import free_port
from tests.live.process import wait_until
from tests.live.prometheus import Prometheus
from tests.queries import ALERTS, alert_rules, panel_queries, selectors

CASES = Path(__file__).with_name("cases") / "alerts.yaml"
SLOW = "leaseRetention: 1s\n"
HASTY = f"structuralNotice: 1s\nminNotice: 1s\nmaxNotice: 2s\nminRuntime: 0s\n{SLOW}"


def eventually(condition: Callable[[], object], what: str) -> None:
    wait_until(lambda: bool(condition()), what)


class Watched:
    """A leader and a standby, scraped, on a cluster where everything has happened that a panel shows."""

    def __init__(self, plane: ControlPlane, stack: ExitStack) -> None:
        kubeconfig = install(plane)
        set_policy(plane, HASTY)
        plane.start_controllers()
        self.scene = Scene(plane, plane.kwok(), "seen")
        self.addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        self.managers: list[Manager] = []
        self.archive = plane.directory / "archive"
        self.archive.write_text("a file, where a directory should be")
        for address in self.addresses:
            archive = (f"--archive={self.archive}", "--archive-seconds=1")
            manager = Manager(plane, kubeconfig, f"--health-address={address}", *Hook().flags, *archive)
            self.managers.append(stack.enter_context(manager))
            eventually(lambda: self.ready(0) == 200, "the leader is ready")
        self.prometheus = Prometheus(plane, *self.addresses)
        eventually(
            lambda: self.prometheus.query("count(up == 1) == 2"),
            "it begins to scrape, before anything happens",
        )

    def ready(self, manager: int) -> int:
        try:
            with urlopen(f"http://{self.addresses[manager]}/readyz", timeout=5) as answer:
                return int(answer.status)
        except HTTPError as refused:
            return refused.code
        except OSError:
            return 0

    def play(self) -> None:
        """Spares are dropped, a Run shrinks, unpaid work goes, a lottery is held; then all is slow."""
        scene = self.scene
        scene.nodes("nv-a", 4)
        for team in ("a", "b", "c"):
            scene.budget(team, 32, maxGPUHours=10_000)
        scene.run("spared", "a", 8, spares=1)
        scene.run(
            "elastic",
            "a",
            16,
            malleable={"minTotalGPUs": 8, "maxTotalGPUs": 16, "stepGPUs": 8},
            runtime={"checkpoint": "1h", "maxDuration": "20h"},
        )
        scene.await_phase("Running", "spared", "elastic")
        scene.run("taker", "b", 16)
        scene.await_phase("Running", "taker")
        scene.run("drawer", "c", 16)
        scene.await_phase("Running", "drawer")
        set_policy(scene.plane, SLOW)
        scene.run("never", "nobody", 8)
        scene.await_phase("Reserved", "never")


@pytest.fixture(scope="module")
def watched(programs: dict[str, Path]) -> Iterator[Watched]:
    assert "kwok" in programs
    with ControlPlane() as plane, ExitStack() as stack:
        made = Watched(plane, stack)
        made.play()
        yield made


@pytest.fixture(scope="session", autouse=True)
def prometheus_installed() -> None:
    if why := why_no_prometheus():
        pytest.skip(why)
    install_prometheus()


def test_the_alert_rules_are_sound() -> None:
    checked = subprocess.run(
        ["promtool", "check", "rules", ALERTS], capture_output=True, text=True, check=False, timeout=60
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(alert_rules())} rules found" in checked.stdout


def test_alerts_fire_when_they_should_and_not_when_all_is_well(tmp_path: Path) -> None:
    copy(ALERTS, tmp_path / "alerts.yaml")
    copy(CASES, tmp_path / "cases.yaml")
    tried = subprocess.run(
        ["promtool", "test", "rules", "cases.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert tried.returncode == 0, tried.stdout + tried.stderr
    text = CASES.read_text()
    assert [rule["alert"] for rule in alert_rules() if text.count(rule["alert"]) < 2] == []


def test_prometheus_scrapes_both_managers_and_loads_the_rules(watched: Watched) -> None:
    prometheus = watched.prometheus
    eventually(lambda: [one["health"] for one in prometheus.targets()] == ["up", "up"], "both are up")
    eventually(lambda: {rule["health"] for rule in prometheus.rules()} == {"ok"}, "all rules work")
    assert {rule["name"] for rule in prometheus.rules()} == {rule["alert"] for rule in alert_rules()}
    eventually(lambda: prometheus.value("count(jobtree_leading)") == 2, "both say whether they lead")
    eventually(lambda: prometheus.value("sum(jobtree_leading)") == 1, "one does")


@pytest.mark.parametrize(("title", "query"), [*panel_queries("10m")])
def test_a_panel_has_something_to_show(watched: Watched, title: str, query: str) -> None:
    eventually(lambda: shows(watched.prometheus, query), f"{title}: {query}")


def shows(prometheus: Prometheus, query: str) -> bool:
    return any(not math.isnan(float(sample["value"][1])) for sample in prometheus.query(query))


@pytest.mark.parametrize("rule", alert_rules(), ids=lambda rule: rule["alert"])
def test_an_alert_asks_for_series_that_are_there(watched: Watched, rule: dict[str, str]) -> None:
    watched.prometheus.query(rule["expr"])
    for name, matchers in selectors(rule["expr"]):
        eventually(partial(watched.prometheus.query, name + matchers), name + matchers)


def test_every_metric_has_series(watched: Watched) -> None:
    for metric in METRICS:
        name = f"{metric.name}_count" if metric.kind == "histogram" else metric.name
        eventually(partial(watched.prometheus.query, name), name)
        for sample in watched.prometheus.query(name):
            labels = sample["metric"].keys() - {"__name__", "instance", "job"}
            assert labels == {*metric.labels}


def test_the_figures_are_those_of_the_cluster(watched: Watched) -> None:
    """Once all is at rest: what Prometheus has equals what the API server has."""
    eventually(lambda: figures_of(watched.prometheus) == figures_in(watched.scene), "they agree")


def figures_in(scene: Scene) -> dict[str, float]:
    roles: Counter[str] = Counter()
    classes: Counter[str] = Counter()
    endings: Counter[str] = Counter()
    for lease in scene.items(f"/apis/{API_VERSION}/gpuleases"):
        spec = lease["spec"]
        gpus = sum(mask.bit_count() for mask in parse_slots(spec["slots"]).values())
        ending = lease.get("status", {}).get("closureReason")
        if ending is None:
            roles[spec["role"].lower()] += gpus
            classes[spec["payer"]["budget"]] += gpus if spec["role"] == "Active" else gpus // 4
        endings[ending] += 1
    reservations = scene.items(f"/apis/{API_VERSION}/reservations")
    pending = [one for one in reservations if one.get("status", {}).get("state") == "Pending"]
    drawn = [one["status"]["lottery"] for one in reservations if "lottery" in one.get("status", {})]
    return {
        "active": roles["active"],
        "spare": roles["spare"],
        **{f"paid by {budget}": gpus for budget, gpus in classes.items() if gpus},
        "pending": len(pending),
        "undated": len([one for one in pending if "earliestStart" not in one["spec"]]),
        "draws": sum(len(record["decision"]["draws"]) for record in drawn),
        "lost lotteries": endings["RandomPreempt"],
        "runs": len(scene.items(f"/apis/{API_VERSION}/runs")),
    }


def figures_of(prometheus: Prometheus) -> dict[str, float]:
    paid = prometheus.query('sum by (budget) (jobtree_budget_concurrency_gpus{class!="opportunistic"}) > 0')
    return {
        "active": prometheus.value('sum(jobtree_fleet_gpus{state="active"})'),
        "spare": prometheus.value('sum(jobtree_fleet_gpus{state="spare"})'),
        **{f"paid by {one['metric']['budget']}": float(one["value"][1]) for one in paid},
        "pending": prometheus.value("sum(jobtree_reservations_pending)"),
        "undated": prometheus.value("sum(jobtree_reservations_undated)"),
        "draws": prometheus.value("sum(jobtree_lottery_draws_total)"),
        "lost lotteries": prometheus.value('sum(jobtree_preemptions_total{reason="RandomPreempt"})'),
        "runs": prometheus.value("sum(jobtree_runs_submitted_total)"),
    }


def test_lotteries_are_in_the_log_with_their_seeds(watched: Watched) -> None:
    """Kubectl logs … | rg RandomPreempt."""
    lines = [line for line in watched.managers[0].lines() if "RandomPreempt" in str(line)]
    reservations = watched.scene.reservations()
    proofs = [one["status"]["lottery"] for one in reservations if "lottery" in one.get("status", {})]
    seeds = {proof["seed"] for proof in proofs}
    attested = {line["seed"] for line in lines if "record" in line}
    assert attested
    assert attested <= seeds
    for line in lines:
        assert line["part"] in ("resolver", "binder", "forecast")
    assert all("cause" in line for line in watched.managers[0].lines() if line["part"] == "forecast")


def test_an_archive_that_cannot_be_written_is_seen_until_it_can(watched: Watched) -> None:
    (rule,) = [rule for rule in alert_rules() if rule["alert"] == "JobtreeArchiveFailing"]
    eventually(lambda: watched.prometheus.query(rule["expr"]), "the alert sees it")
    ended = ended_leases(watched.scene)
    assert ended, "leases stay"
    watched.archive.unlink()
    watched.archive.mkdir()
    eventually(lambda: watched.prometheus.query(rule["expr"]) == [], "all is well")
    eventually(lambda: not ended & ended_leases(watched.scene), "and they leave")


def ended_leases(scene: Scene) -> set[str]:
    found = scene.items(f"/apis/{API_VERSION}/gpuleases")
    return {lease["metadata"]["name"] for lease in found if "end" in lease.get("status", {})}


def test_a_manager_that_loses_the_api_server_is_not_ready_and_then_is_again(watched: Watched) -> None:
    eventually(lambda: watched.ready(1) == 200, "it is ready")
    restart(watched.scene.plane, meanwhile=lambda: wait_until(lambda: watched.ready(1) == 503, "it says so"))
    eventually(lambda: watched.ready(1) == 200, "it is ready again")


def test_when_nobody_leads_the_alert_sees_it(watched: Watched) -> None:
    (rule,) = [rule for rule in alert_rules() if rule["alert"] == "JobtreeNobodyLeads"]
    eventually(lambda: watched.prometheus.query(rule["expr"]) == [], "somebody leads")
    for manager in watched.managers:
        manager.stop()
    eventually(lambda: watched.prometheus.query(rule["expr"]) != [], "nobody leads")
