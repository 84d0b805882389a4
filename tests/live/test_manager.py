"""The manager on a real API server, with fake nodes: what was decided really happens."""

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
from tests.live.control_plane import ControlPlane
from tests.live.guarding import BREAK_GLASS
from tests.live.managing import REPOSITORY, Manager, Scene, install, set_policy
from tests.live.manifests import API_VERSION
from tests.live.process import wait_until

HASTY = "structuralNotice: 1s\nminNotice: 1s\nmaxNotice: 2s\nminRuntime: 0s\nnodeGrace: 1s\n"
MakeScene = Callable[[], Scene]


@pytest.fixture(scope="module")
def manager() -> Iterator[Manager]:
    with ControlPlane() as plane:
        kubeconfig = install(plane)
        set_policy(plane, HASTY)
        plane.start_controllers()
        plane.start_scheduler()
        with Manager(plane, kubeconfig) as running:
            yield running


@pytest.fixture(scope="module")
def make_scene(manager: Manager) -> MakeScene:
    fleet = manager.plane.kwok()
    numbers = count(1)
    return lambda: Scene(manager.plane, fleet, f"s{next(numbers)}")


@pytest.fixture
def scene(make_scene: MakeScene, manager: Manager) -> Iterator[Scene]:
    yield make_scene()
    assert not manager.has_ended, manager.log.read_text()
    assert not manager.said("Traceback"), manager.log.read_text()


def test_first_run(scene: Scene) -> None:
    """SCENARIOS 1."""
    scene.nodes("nv-a", 16)
    scene.nodes("nv-b", 16)
    scene.budget("sys", 128)
    scene.run("resnet-small", "sys", 8)
    scene.await_phase("Running", "resnet-small")
    scene.await_running("resnet-small", 1)
    (lease,) = scene.leases("resnet-small")
    assert (lease["spec"]["class"], len(lease["spec"]["slots"])) == ("Owned", 1)
    assert scene.reservations() == []
    scene.run("second", "sys", 8)
    scene.await_running("second", 1)
    nodes = [pod["spec"]["nodeName"] for run in ("resnet-small", "second") for pod in scene.pods(run)]
    assert len({node.rpartition("-")[0] for node in nodes}) == 1
    scene.finish("resnet-small")
    scene.await_phase("Completed", "resnet-small")
    wait_until(lambda: scene.endings("resnet-small") == ["Completed"], "its lease is ended")
    wait_until(
        lambda: sorted(scene.events("resnet-small")) == ["Admitted", "Completed"], "both events are there"
    )


def test_co_funded(scene: Scene) -> None:
    """SCENARIOS 4."""
    scene.nodes("nv-a", 16)
    scene.budget("rai", 96)
    lending = {"allow": True, "to": [f"{scene.name}:*"], "maxConcurrency": 64}
    scene.budget("vision", 64, sharing="none", lending=lending)
    borrow = {"allowBorrow": True, "maxBorrowGPUs": 32, "sponsors": [scene.owner("vision")]}
    scene.run("cofunded", "rai", 128, locality={"groupGPUs": 32}, funding=borrow)
    scene.await_running("cofunded", 16)
    by_class: dict[str, int] = {}
    for lease in scene.leases("cofunded"):
        by_class[lease["spec"]["class"]] = by_class.get(lease["spec"]["class"], 0) + 8 * len(
            lease["spec"]["slots"]
        )
    assert by_class == {"Owned": 96, "Borrowed": 32}
    scene.cancel("cofunded")
    wait_until(lambda: scene.pods("cofunded") == [], "its pods are gone")
    envelope = {"name": "main", "flavor": scene.flavor, "concurrency": 64}
    path = f"/apis/{API_VERSION}/budgets/{scene.name}-rai"
    assert scene.plane.rest.merge(path, {"spec": {"envelopes": [envelope]}}).accepted
    scene.run("limited", "rai", 128, locality={"groupGPUs": 32}, funding={**borrow, "maxBorrowGPUs": 8})
    scene.await_phase("Reserved", "limited")
    wait_until(lambda: bool(scene.reservations()), "there is a Reservation")
    (reservation,) = scene.reservations()
    assert "earliestStart" not in reservation["spec"]
    wait_until(  # the manager may have heard of the Run before it heard of its Budget's new limit
        lambda: reservation_status(scene).get("forecast", {}).get("fundingDeficitGPUs") == 56,
        "its Reservation says what is missing",
    )
    assert reservation_status(scene)["state"] == "Pending"
    wait_until(lambda: scene.status("limited")["reason"] == "BorrowLimit", "so does the Run")


def reservation_status(scene: Scene) -> dict[str, Any]:
    (reservation,) = scene.reservations()
    status: dict[str, Any] = reservation.get("status", {})
    return status


def test_a_lottery_is_held_proved_and_carried_out(scene: Scene, manager: Manager) -> None:
    scene.nodes("nv-a", 4)
    scene.budget("a", 64)
    scene.budget("b", 64)
    scene.run("one", "a", 16)
    scene.run("two", "a", 16)
    scene.await_running("one", 2)
    scene.await_running("two", 2)
    scene.run("newcomer", "b", 16)
    scene.await_phase("Running", "newcomer")
    scene.await_running("newcomer", 2)
    won = next(
        reservation for reservation in scene.reservations() if reservation["metadata"]["name"] == "newcomer-1"
    )
    record = msgspec.convert(won["status"]["lottery"], Record)
    assert (won["status"]["state"], verify(record)) == ("Activated", [])
    lost = next(run for run in ("one", "two") if uid_of(scene, run) in record.decision.losers)
    assert "RandomPreempt" in scene.endings(lost)
    assert any(line.get("seed") == record.seed and line["part"] == "resolver" for line in manager.lines())
    assert manager.said("RandomPreempt")
    wait_until(lambda: "RandomPreempt" in scene.events(lost), "the loser is told")
    for run in ("one", "two", "newcomer"):
        scene.cancel(run)  # else they draw against each other for as long as the tests last


def uid_of(scene: Scene, run: str) -> str:
    return str(scene.plane.rest.get(scene.path(run)).body["metadata"]["uid"])


def test_a_node_dies_and_its_rank_goes_on_at_the_spare(scene: Scene) -> None:
    """SCENARIOS 10."""
    scene.nodes("nv-a", 10)
    scene.budget("a", 96)
    scene.run("j1", "a", 64, spares=1)
    scene.await_running("j1", 9)
    scene.run("j2", "other", 16, funding={"allowOpportunistic": True})
    scene.budget("other", 1)
    scene.await_running("j2", 2)
    wait_until(lambda: len(idle_pods(scene, "j1")) == 1, "the spare stands by without GPUs")
    (standby,) = idle_pods(scene, "j1")
    assert (
        "resources" not in standby["spec"]["containers"][0]
        or not standby["spec"]["containers"][0]["resources"]
    )
    victim = next(pod for pod in scene.pods("j1") if pod["spec"].get("hostname") == "j1-0-3")
    scene.fleet.fail(victim["spec"]["nodeName"])
    wait_until(
        lambda: sorted(scene.endings("j1")) == ["NodeFailure", "Swap", "open", "open"], "it is swapped"
    )
    wait_until(lambda: "ReclaimedBySpare" in scene.endings("j2"), "the guest is gone")
    wait_until(lambda: attempt_of(scene, "j1") == ["2"] * 8, "the next attempt runs")
    again = next(pod for pod in scene.running("j1") if pod["spec"].get("hostname") == "j1-0-3")
    assert again["spec"]["nodeName"] == standby["spec"]["nodeName"]
    wait_until(lambda: is_cordoned(scene, victim["spec"]["nodeName"]), "the node is cordoned")
    fail_a_node_of(scene, "j1", "0-0")
    wait_until(
        lambda: [one["spec"]["reason"] for one in scene.leases("j1")].count("Recover") == 1, "it recovers"
    )
    wait_until(lambda: attempt_of(scene, "j1") == ["3"] * 8, "the next attempt runs")
    third = fail_a_node_of(scene, "j1", "0-1")
    wait_until(lambda: "CapacityLost" in scene.endings("j1"), "there is no room left")
    scene.await_phase("Reserved", "j1")
    scene.fleet.mend(third)
    scene.plane.kubectl("uncordon", third)
    scene.await_phase("Running", "j1")
    wait_until(lambda: len(scene.running("j1")) == 8, "without a spare")


def idle_pods(scene: Scene, run: str) -> list[dict[str, Any]]:
    return [pod for pod in scene.pods(run) if pod["metadata"]["name"].endswith("-idle")]


def fail_a_node_of(scene: Scene, run: str, seat: str) -> str:
    pod = next(pod for pod in scene.running(run) if pod["spec"].get("hostname") == f"{run}-{seat}")
    node = str(pod["spec"]["nodeName"])
    scene.fleet.fail(node)
    return node


def is_cordoned(scene: Scene, node: str) -> bool:
    return bool(scene.plane.rest.get(f"/api/v1/nodes/{node}").body["spec"].get("unschedulable"))


def attempt_of(scene: Scene, run: str) -> list[str]:
    """The attempts of its running ranks."""
    label = "rq.davidlangworthy.io/attempt"
    return [pod["metadata"]["labels"].get(label, "") for pod in scene.running(run)]


def test_a_tree_prepares_then_trains_and_evaluates_together(scene: Scene) -> None:
    """SCENARIOS 12."""
    scene.nodes("nv-a", 9)
    scene.budget("a", 64)
    gpus = {"gpuType": scene.flavor}
    stages = [
        {"name": "prep", "resources": {"totalGPUs": 0, "pods": 2}},
        {"name": "train", "resources": {**gpus, "totalGPUs": 64}, "after": ["prep"]},
        {"name": "eval", "resources": {**gpus, "totalGPUs": 8}, "after": ["prep"], "with": ["train"]},
    ]
    scene.create("Run", "tree", {"owner": scene.owner("a"), "stages": stages})
    scene.await_running("tree-prep", 2)
    scene.await_phase("Waiting", "tree-train")
    scene.finish("tree-prep")
    scene.await_phase("Reserved", "tree-train", "tree-eval")
    wait_until(lambda: bool(scene.reservations()), "there is a Reservation")
    (reservation,) = scene.reservations()
    assert reservation["spec"]["members"] == ["train", "eval"]
    envelope = {"name": "main", "flavor": scene.flavor, "concurrency": 72}
    path = f"/apis/{API_VERSION}/budgets/{scene.name}-a"
    assert scene.plane.rest.merge(path, {"spec": {"envelopes": [envelope]}}).accepted
    scene.await_running("tree-train", 8)
    scene.await_running("tree-eval", 1)
    starts = {lease["spec"]["start"] for run in ("tree-train", "tree-eval") for lease in scene.leases(run)}
    assert len(starts) == 1
    scene.finish("tree-train")
    scene.finish("tree-eval")
    scene.await_phase("Completed", "tree")


def test_a_snapshot_plans_what_the_cluster_then_does(scene: Scene, tmp_path: Path) -> None:
    """SCENARIOS 14."""
    scene.nodes("nv-a", 4)
    scene.nodes("nv-b", 4)
    scene.budget("a", 64)
    scene.run("first", "a", 24)
    scene.await_running("first", 3)
    kinds = "nodes,pods,budgets,runs,reservations,gpuleases"
    snapshot = scene.plane.kubectl("get", kinds, "-A", "-o", "yaml").stdout
    policy = {"apiVersion": "sim.rq.davidlangworthy.io/v1", "kind": "Policy", "spec": yaml.safe_load(HASTY)}
    state = tmp_path / "cluster.yaml"
    state.write_text(f"{snapshot}---\n{yaml.safe_dump(policy)}")
    resources = {"gpuType": scene.flavor, "totalGPUs": 32}
    spec = {"owner": scene.owner("a"), "resources": resources, "locality": {"groupGPUs": 16}}
    new = tmp_path / "new.yaml"
    metadata = {"name": "new", "namespace": scene.name}
    new.write_text(
        yaml.safe_dump({"apiVersion": API_VERSION, "kind": "Run", "metadata": metadata, "spec": spec})
    )
    planned = kubectl_runs("--state", str(state), "plan", "-f", str(new), "-o", "json")
    scene.create("Run", "new", spec)
    scene.await_running("new", 4)
    assert slots_of(scene.status("new")) == slots_of(planned["status"])


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
    runs: list[dict[str, Any]] = [one for one in body.get("items", [body]) if one["kind"] == "Run"]
    (found,) = [one for one in runs if one["metadata"]["name"] == "new"]
    return found


def slots_of(status: dict[str, Any]) -> list[tuple[int, list[str]]]:
    return [(lease["group"], lease["slots"]) for lease in status["allocation"]["leases"]]


def test_a_pod_deleted_by_hand_is_replaced(scene: Scene) -> None:
    scene.nodes("nv-a", 2)
    scene.budget("a", 16)
    scene.run("r", "a", 16)
    scene.await_running("r", 2)
    name = scene.pods("r")[0]["metadata"]["name"]
    assert scene.plane.rest.delete(f"/api/v1/namespaces/{scene.name}/pods/{name}").accepted
    wait_until(lambda: scene.status("r")["attempt"] == 2, "the next attempt begins")
    scene.await_running("r", 2)
    assert scene.status("r").get("restarts", 0) == 0


def test_a_lease_deleted_by_hand_is_put_back_and_counted(scene: Scene, manager: Manager) -> None:
    scene.nodes("nv-a", 1)
    scene.budget("a", 8)
    scene.run("r", "a", 8)
    scene.await_running("r", 1)
    (lease,) = scene.leases("r")
    name = lease["metadata"]["name"]
    breaking_glass = scene.plane.rest_as("admin", "system:masters", BREAK_GLASS)
    assert breaking_glass.delete(f"/apis/{API_VERSION}/gpuleases/{name}").accepted
    wait_until(
        lambda: [one["metadata"]["uid"] for one in scene.leases("r")] not in ([], [lease["metadata"]["uid"]]),
        "there is another",
    )
    assert scene.leases("r")[0]["spec"] == lease["spec"]
    wait_until(lambda: manager.said(f"{name} was deleted while it counted"), "it is counted")


def test_a_run_that_is_cancelled_leaves_nothing_behind(scene: Scene) -> None:
    scene.nodes("nv-a", 2)
    scene.budget("a", 16)
    scene.run("r", "a", 16)
    scene.await_running("r", 2)
    scene.cancel("r")
    wait_until(lambda: not scene.plane.rest.get(scene.path("r")).accepted, "the Run is gone")
    assert scene.endings("r") == ["Cancelled"]
    wait_until(lambda: scene.pods("r") == [], "its pods are gone")


def set_gpus(scene: Scene, node: str, gpus: int) -> None:
    """What its device plugin says it has."""
    reported = {"nvidia.com/gpu": str(gpus)}
    patch = {"status": {"capacity": reported, "allocatable": reported}}
    assert scene.plane.rest.merge(f"/api/v1/nodes/{node}/status", patch).accepted


def test_a_node_that_reports_no_gpus_gets_no_work_and_loses_none(scene: Scene) -> None:
    (second,) = scene.nodes("nv-b", 1)
    set_gpus(scene, second, 0)
    (first,) = scene.nodes("nv-a", 1)
    scene.budget("a", 32)
    scene.run("runs", "a", 8)
    scene.await_running("runs", 1)
    assert scene.pods("runs")[0]["spec"]["nodeName"] == first
    scene.run("waits", "a", 16)  # no lottery helps it: there are not that many
    scene.await_phase("Reserved", "waits")
    set_gpus(scene, first, 0)  # its device plugin restarts: that is no failure of the node
    scene.run("later", "a", 16)
    scene.await_phase("Reserved", "later")  # so that has been seen
    assert (scene.phase("runs"), scene.endings("runs"), len(scene.running("runs"))) == (
        "Running",
        ["open"],
        1,
    )
    scene.finish("runs")
    scene.await_phase("Completed", "runs")
    set_gpus(scene, first, 8)
    set_gpus(scene, second, 8)
    scene.await_running("waits", 2)
    for run in ("waits", "later"):
        scene.cancel(run)


def test_a_drained_node_gives_up_ranks_and_spares(scene: Scene) -> None:
    """Nothing is put back on a node that somebody is emptying."""
    scene.nodes("nv-a", 4)
    scene.budget("a", 32)
    scene.run("r", "a", 8, spares=1, runtime={"checkpoint": "1s"})
    scene.await_running("r", 2)
    spare = node_of(scene, "r", "-spare-")
    drain(scene, spare)
    wait_until(lambda: node_of(scene, "r", "-spare-") not in ("", spare), "the spare stands elsewhere")
    assert attempt_of(scene, "r").count("1") == 1, "its rank went on"
    rank = node_of(scene, "r", "-0-0-")
    second = node_of(scene, "r", "-spare-")
    drain(scene, rank)
    wait_until(lambda: node_of(scene, "r", "-0-0-2") == second, "the rank goes on at the spare")
    wait_until(lambda: {node_of(scene, "r", "-spare-")}.isdisjoint({"", spare, rank, second}), "a new spare")
    scene.cancel("r")


def drain(scene: Scene, node: str) -> None:
    scene.plane.kubectl("drain", node, "--force", "--grace-period=1", "--timeout=120s")


def node_of(scene: Scene, run: str, part: str) -> str:
    """Where the running pod with this in its name is."""
    return next(
        (pod["spec"]["nodeName"] for pod in scene.running(run) if part in pod["metadata"]["name"]), ""
    )
