"""The manager on a real API server with fake nodes: its decisions are carried out."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from jobtree.core.lottery.resolution_record import Record, verify
from tests.live.admission.admission_cluster import BREAK_GLASS_GROUP
from tests.live.cluster.control_plane import ControlPlane
from tests.live.cluster.server_process import wait_until
from tests.live.crds.manifests import API_VERSION
from tests.live.manager.installation import SHORT_NOTICE_POLICY, install, set_policy
from tests.live.manager.manager_process import Manager
from tests.live.manager.tenant import Tenant
from tests.shown import REPOSITORY

MakeTenant = Callable[[], Tenant]


@pytest.fixture(scope="module")
def manager() -> Iterator[Manager]:
    with ControlPlane() as plane:
        kubeconfig = install(plane)
        set_policy(plane, SHORT_NOTICE_POLICY)
        plane.start_controllers()
        plane.start_scheduler()
        with Manager(plane, kubeconfig) as running:
            yield running


@pytest.fixture(scope="module")
def make_tenant(manager: Manager) -> MakeTenant:
    fleet = manager.plane.start_fake_fleet()
    numbers = count(1)
    return lambda: Tenant(manager.plane, fleet, f"s{next(numbers)}")


@pytest.fixture
def tenant(make_tenant: MakeTenant, manager: Manager) -> Iterator[Tenant]:
    yield make_tenant()
    assert not manager.has_ended, manager.log.read_text()
    assert not manager.has_logged("Traceback"), manager.log.read_text()


def test_run_starts_and_completes(tenant: Tenant) -> None:
    """Scenario 1."""
    tenant.add_nodes("nv-a", 16)
    tenant.add_nodes("nv-b", 16)
    tenant.create_budget("sys", 128)
    tenant.create_run("resnet-small", "sys", 8)
    tenant.await_phase("Running", "resnet-small")
    tenant.await_running_pods("resnet-small", 1)
    (lease,) = tenant.leases("resnet-small")
    assert (lease["spec"]["class"], len(lease["spec"]["slots"])) == ("Owned", 1)
    assert tenant.reservations() == []
    tenant.create_run("second", "sys", 8)
    tenant.await_running_pods("second", 1)
    nodes = [pod["spec"]["nodeName"] for run in ("resnet-small", "second") for pod in tenant.pods(run)]
    assert len({node.rpartition("-")[0] for node in nodes}) == 1
    tenant.finish("resnet-small")
    tenant.await_phase("Completed", "resnet-small")
    wait_until(lambda: tenant.closure_reasons("resnet-small") == ["Completed"], "its lease is closed")
    wait_until(
        lambda: sorted(tenant.event_reasons("resnet-small")) == ["Admitted", "Completed"],
        "both Events exist",
    )


def test_run_starts_with_borrowed_gpus(tenant: Tenant) -> None:
    """Scenario 4."""
    tenant.add_nodes("nv-a", 16)
    tenant.create_budget("rai", 96)
    lending = {"allow": True, "to": [f"{tenant.name}:*"], "maxConcurrency": 64}
    tenant.create_budget("vision", 64, sharing="none", lending=lending)
    borrow = {"allowBorrow": True, "maxBorrowGPUs": 32, "sponsors": [tenant.owner("vision")]}
    tenant.create_run("cofunded", "rai", 128, locality={"groupGPUs": 32}, funding=borrow)
    tenant.await_running_pods("cofunded", 16)
    by_class: dict[str, int] = {}
    for lease in tenant.leases("cofunded"):
        by_class[lease["spec"]["class"]] = by_class.get(lease["spec"]["class"], 0) + 8 * len(
            lease["spec"]["slots"]
        )
    assert by_class == {"Owned": 96, "Borrowed": 32}
    tenant.cancel("cofunded")
    wait_until(lambda: tenant.pods("cofunded") == [], "its pods are deleted")
    envelope = {"name": "main", "flavor": tenant.flavor, "concurrency": 64}
    path = f"/apis/{API_VERSION}/budgets/{tenant.name}-rai"
    assert tenant.plane.rest.merge(path, {"spec": {"envelopes": [envelope]}}).accepted
    tenant.create_run(
        "limited", "rai", 128, locality={"groupGPUs": 32}, funding={**borrow, "maxBorrowGPUs": 8}
    )
    tenant.await_phase("Reserved", "limited")
    wait_until(lambda: bool(tenant.reservations()), "there is a Reservation")
    (reservation,) = tenant.reservations()
    assert "earliestStart" not in reservation["spec"]
    wait_until(  # the manager may read the Run before the new limit of its Budget
        lambda: reservation_status(tenant).get("forecast", {}).get("fundingDeficitGPUs") == 56,
        "its Reservation shows the deficit",
    )
    assert reservation_status(tenant)["state"] == "Pending"
    wait_until(lambda: tenant.status("limited")["reason"] == "BorrowLimit", "the Run shows the reason")


def reservation_status(tenant: Tenant) -> dict[str, Any]:
    (reservation,) = tenant.reservations()
    status: dict[str, Any] = reservation.get("status", {})
    return status


def test_lottery_has_a_valid_record_and_stops_the_loser(tenant: Tenant, manager: Manager) -> None:
    tenant.add_nodes("nv-a", 4)
    tenant.create_budget("a", 64)
    tenant.create_budget("b", 64)
    tenant.create_run("one", "a", 16)
    tenant.create_run("two", "a", 16)
    tenant.await_running_pods("one", 2)
    tenant.await_running_pods("two", 2)
    tenant.create_run("newcomer", "b", 16)
    tenant.await_phase("Running", "newcomer")
    tenant.await_running_pods("newcomer", 2)
    reservation = next(
        reservation
        for reservation in tenant.reservations()
        if reservation["metadata"]["name"] == "newcomer-1"
    )
    record = msgspec.convert(reservation["status"]["lottery"], Record)
    assert (reservation["status"]["state"], verify(record)) == ("Activated", [])
    loser = next(run for run in ("one", "two") if uid_of(tenant, run) in record.decision.losers)
    assert "RandomPreempt" in tenant.closure_reasons(loser)
    assert any(line.get("seed") == record.seed and line["part"] == "resolver" for line in manager.log_lines())
    assert manager.has_logged("RandomPreempt")
    wait_until(lambda: "RandomPreempt" in tenant.event_reasons(loser), "the loser has an Event")
    for run in ("one", "two", "newcomer"):
        tenant.cancel(run)  # otherwise they draw against each other until the tests end


def uid_of(tenant: Tenant, run: str) -> str:
    return str(tenant.plane.rest.get(tenant.run_path(run)).body["metadata"]["uid"])


def test_rank_continues_on_the_spare_when_its_node_fails(tenant: Tenant) -> None:
    """Scenario 10."""
    tenant.add_nodes("nv-a", 10)
    tenant.create_budget("a", 96)
    tenant.create_run("j1", "a", 64, spares=1)
    tenant.await_running_pods("j1", 9)
    tenant.create_run("j2", "other", 16, funding={"allowOpportunistic": True})
    tenant.create_budget("other", 1)
    tenant.await_running_pods("j2", 2)
    (standby,) = standby_pods(tenant, "j1")
    assert not standby["spec"]["containers"][0].get("resources"), "it has no GPUs"
    victim = next(pod for pod in tenant.pods("j1") if pod["spec"].get("hostname") == "j1-0-3")
    tenant.fleet.fail_node(victim["spec"]["nodeName"])
    wait_until(
        lambda: sorted(tenant.closure_reasons("j1")) == ["NodeFailure", "Swap", "open", "open"],
        "the rank is swapped",
    )
    wait_until(
        lambda: "ReclaimedBySpare" in tenant.closure_reasons("j2"), "the opportunistic Run lost its GPUs"
    )
    wait_until(lambda: running_attempts(tenant, "j1") == ["2"] * 8, "the next attempt runs")
    continued = next(pod for pod in tenant.running_pods("j1") if pod["spec"].get("hostname") == "j1-0-3")
    assert continued["spec"]["nodeName"] == standby["spec"]["nodeName"]
    wait_until(lambda: is_cordoned(tenant, victim["spec"]["nodeName"]), "the node is cordoned")
    fail_a_node_of(tenant, "j1", "0-0")
    wait_until(
        lambda: [lease["spec"]["reason"] for lease in tenant.leases("j1")].count("Recover") == 1,
        "the rank is recovered on another node",
    )
    wait_until(lambda: running_attempts(tenant, "j1") == ["3"] * 8, "the next attempt runs")
    third = fail_a_node_of(tenant, "j1", "0-1")
    wait_until(lambda: "CapacityLost" in tenant.closure_reasons("j1"), "no free node is left")
    tenant.await_phase("Reserved", "j1")
    tenant.fleet.restore_node(third)
    tenant.plane.kubectl("uncordon", third)
    tenant.await_phase("Running", "j1")
    wait_until(lambda: len(tenant.running_pods("j1")) == 8, "all ranks run, without a spare")


def standby_pods(tenant: Tenant, run: str) -> list[dict[str, Any]]:
    return [pod for pod in tenant.pods(run) if "-spare-" in pod["metadata"]["name"]]


def fail_a_node_of(tenant: Tenant, run: str, group_rank: str) -> str:
    pod = next(
        pod for pod in tenant.running_pods(run) if pod["spec"].get("hostname") == f"{run}-{group_rank}"
    )
    node = str(pod["spec"]["nodeName"])
    tenant.fleet.fail_node(node)
    return node


def is_cordoned(tenant: Tenant, node: str) -> bool:
    return bool(tenant.plane.rest.get(f"/api/v1/nodes/{node}").body["spec"].get("unschedulable"))


def running_attempts(tenant: Tenant, run: str) -> list[str]:
    """Returns the attempt of each running pod of a Run."""
    label = "rq.davidlangworthy.io/attempt"
    return [pod["metadata"]["labels"].get(label, "") for pod in tenant.running_pods(run)]


def test_stages_joined_by_with_start_together_after_their_predecessor(tenant: Tenant) -> None:
    """Scenario 12."""
    tenant.add_nodes("nv-a", 9)
    tenant.create_budget("a", 64)
    gpus = {"gpuType": tenant.flavor}
    stages = [
        {"name": "prep", "resources": {"totalGPUs": 0, "pods": 2}},
        {"name": "train", "resources": {**gpus, "totalGPUs": 64}, "after": ["prep"]},
        {"name": "eval", "resources": {**gpus, "totalGPUs": 8}, "after": ["prep"], "with": ["train"]},
    ]
    tenant.create("Run", "tree", {"owner": tenant.owner("a"), "stages": stages})
    tenant.await_running_pods("tree-prep", 2)
    tenant.await_phase("Waiting", "tree-train")
    tenant.finish("tree-prep")
    tenant.await_phase("Reserved", "tree-train", "tree-eval")
    wait_until(lambda: bool(tenant.reservations()), "there is a Reservation")
    (reservation,) = tenant.reservations()
    assert reservation["spec"]["members"] == ["train", "eval"]
    envelope = {"name": "main", "flavor": tenant.flavor, "concurrency": 72}
    path = f"/apis/{API_VERSION}/budgets/{tenant.name}-a"
    assert tenant.plane.rest.merge(path, {"spec": {"envelopes": [envelope]}}).accepted
    tenant.await_running_pods("tree-train", 8)
    tenant.await_running_pods("tree-eval", 1)
    starts = {lease["spec"]["start"] for run in ("tree-train", "tree-eval") for lease in tenant.leases(run)}
    assert len(starts) == 1
    tenant.finish("tree-train")
    tenant.finish("tree-eval")
    tenant.await_phase("Completed", "tree")


def test_plan_on_a_snapshot_equals_the_decision_of_the_manager(tenant: Tenant, tmp_path: Path) -> None:
    """Scenario 14."""
    tenant.add_nodes("nv-a", 4)
    tenant.add_nodes("nv-b", 4)
    tenant.create_budget("a", 64)
    tenant.create_run("first", "a", 24)
    tenant.await_running_pods("first", 3)
    kinds = "nodes,pods,budgets,runs,reservations,gpuleases"
    snapshot = tenant.plane.kubectl("get", kinds, "-A", "-o", "yaml").stdout
    policy = {
        "apiVersion": "sim.rq.davidlangworthy.io/v1",
        "kind": "Policy",
        "spec": yaml.safe_load(SHORT_NOTICE_POLICY),
    }
    state = tmp_path / "cluster.yaml"
    state.write_text(f"{snapshot}---\n{yaml.safe_dump(policy)}")
    resources = {"gpuType": tenant.flavor, "totalGPUs": 32}
    spec = {"owner": tenant.owner("a"), "resources": resources, "locality": {"groupGPUs": 16}}
    new = tmp_path / "new.yaml"
    metadata = {"name": "new", "namespace": tenant.name}
    new.write_text(
        yaml.safe_dump({"apiVersion": API_VERSION, "kind": "Run", "metadata": metadata, "spec": spec})
    )
    planned = kubectl_runs("--state", str(state), "plan", "-f", str(new), "-o", "json")
    tenant.create("Run", "new", spec)
    tenant.await_running_pods("new", 4)
    assert slots_of(tenant.status("new")) == slots_of(planned["status"])


def kubectl_runs(*arguments: str) -> dict[str, Any]:
    command = [
        sys.executable,
        "-c",
        "import sys; from jobtree.cli.main import main; sys.exit(main())",
        *arguments,
    ]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    body: dict[str, Any] = json.loads(answer.stdout)
    runs: list[dict[str, Any]] = [item for item in body.get("items", [body]) if item["kind"] == "Run"]
    (run,) = [run for run in runs if run["metadata"]["name"] == "new"]
    return run


def slots_of(status: dict[str, Any]) -> list[tuple[int, list[str]]]:
    return [(lease["group"], lease["slots"]) for lease in status["allocation"]["leases"]]


def test_deleted_pod_is_replaced_by_a_new_attempt(tenant: Tenant) -> None:
    tenant.add_nodes("nv-a", 2)
    tenant.create_budget("a", 16)
    tenant.create_run("r", "a", 16)
    tenant.await_running_pods("r", 2)
    name = tenant.pods("r")[0]["metadata"]["name"]
    assert tenant.plane.rest.delete(f"/api/v1/namespaces/{tenant.name}/pods/{name}").accepted
    wait_until(lambda: tenant.status("r")["attempt"] == 2, "the next attempt begins")
    tenant.await_running_pods("r", 2)
    assert tenant.status("r").get("restarts", 0) == 0


def test_deleted_lease_is_written_again_and_reported(tenant: Tenant, manager: Manager) -> None:
    tenant.add_nodes("nv-a", 1)
    tenant.create_budget("a", 8)
    tenant.create_run("r", "a", 8)
    tenant.await_running_pods("r", 1)
    (lease,) = tenant.leases("r")
    name = lease["metadata"]["name"]
    break_glass = tenant.plane.rest_as("admin", "system:masters", BREAK_GLASS_GROUP)
    assert break_glass.delete(f"/apis/{API_VERSION}/gpuleases/{name}").accepted
    wait_until(
        lambda: (
            [lease["metadata"]["uid"] for lease in tenant.leases("r")] not in ([], [lease["metadata"]["uid"]])
        ),
        "the lease exists again",
    )
    assert tenant.leases("r")[0]["spec"] == lease["spec"]
    wait_until(lambda: manager.has_logged(f"{name} was deleted while it counted"), "the deletion is reported")


def test_cancelled_run_closes_its_lease_and_deletes_its_pods(tenant: Tenant) -> None:
    tenant.add_nodes("nv-a", 2)
    tenant.create_budget("a", 16)
    tenant.create_run("r", "a", 16)
    tenant.await_running_pods("r", 2)
    tenant.cancel("r")
    wait_until(lambda: not tenant.plane.rest.get(tenant.run_path("r")).accepted, "the Run is deleted")
    assert tenant.closure_reasons("r") == ["Cancelled"]
    wait_until(lambda: tenant.pods("r") == [], "its pods are deleted")


def set_gpus(tenant: Tenant, node: str, gpus: int) -> None:
    """Sets the GPUs that a node reports."""
    reported = {"nvidia.com/gpu": str(gpus)}
    patch = {"status": {"capacity": reported, "allocatable": reported}}
    assert tenant.plane.rest.merge(f"/api/v1/nodes/{node}/status", patch).accepted


def test_node_without_reported_gpus_keeps_its_run_and_gets_no_other(tenant: Tenant) -> None:
    (second,) = tenant.add_nodes("nv-b", 1)
    set_gpus(tenant, second, 0)
    (first,) = tenant.add_nodes("nv-a", 1)
    tenant.create_budget("a", 32)
    tenant.create_run("runs", "a", 8)
    tenant.await_running_pods("runs", 1)
    assert tenant.pods("runs")[0]["spec"]["nodeName"] == first
    tenant.create_run("waits", "a", 16)  # no lottery, because the nodes have too few GPUs
    tenant.await_phase("Reserved", "waits")
    set_gpus(tenant, first, 0)  # as while its device plugin restarts, which is no failure of the node
    tenant.create_run("later", "a", 16)
    tenant.await_phase("Reserved", "later")  # so the manager has seen the change
    assert (tenant.phase("runs"), tenant.closure_reasons("runs"), len(tenant.running_pods("runs"))) == (
        "Running",
        ["open"],
        1,
    )
    tenant.finish("runs")
    tenant.await_phase("Completed", "runs")
    set_gpus(tenant, first, 8)
    set_gpus(tenant, second, 8)
    tenant.await_running_pods("waits", 2)
    for run in ("waits", "later"):
        tenant.cancel(run)


def test_ranks_and_spares_move_when_their_node_is_drained(tenant: Tenant) -> None:
    """No rank and no spare returns to a drained node."""
    tenant.add_nodes("nv-a", 4)
    tenant.create_budget("a", 32)
    tenant.create_run("r", "a", 8, spares=1, runtime={"checkpoint": "1s"})
    tenant.await_running_pods("r", 2)
    spare = node_of(tenant, "r", "-spare-")
    drain(tenant, spare)
    wait_until(lambda: node_of(tenant, "r", "-spare-") not in ("", spare), "the spare is on another node")
    assert running_attempts(tenant, "r").count("1") == 1, "the rank must keep running"
    rank = node_of(tenant, "r", "-0-0-")
    second = node_of(tenant, "r", "-spare-")
    drain(tenant, rank)
    wait_until(lambda: node_of(tenant, "r", "-0-0-2") == second, "the rank continues on the spare")
    wait_until(
        lambda: {node_of(tenant, "r", "-spare-")}.isdisjoint({"", spare, rank, second}),
        "there is a new spare",
    )
    tenant.cancel("r")


def drain(tenant: Tenant, node: str) -> None:
    tenant.plane.kubectl("drain", node, "--force", "--grace-period=1", "--timeout=120s")


def node_of(tenant: Tenant, run: str, part: str) -> str:
    """Returns the node of the running pod whose name contains ``part``."""
    return next(
        (pod["spec"]["nodeName"] for pod in tenant.running_pods(run) if part in pod["metadata"]["name"]), ""
    )
