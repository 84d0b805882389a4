"""``plan`` on a live cluster, and on a snapshot of one: the same answer as the manager's, slot by slot."""

from pathlib import Path
from typing import Any

import pytest

from tests.live.managing import Scene, set_policy
from tests.live.manifests import API_VERSION
from tests.live.person import Person
from tests.live.process import wait_until
from tests.live.stage import Stage

KINDS = "nodes,pods,budgets,runs,reservations,gpuleases"


@pytest.fixture
def scene(stage: Stage) -> Scene:
    """Two islands, partly taken by Runs and by a pod that is none of Jobtree's."""
    made = stage.scene()
    made.nodes("nv-a", 4)
    (first, *_) = made.nodes("nv-b", 4)
    made.budget("lab", 56)
    made.run("base", "lab", 8)
    made.await_running("base", 1)
    limits = {"nvidia.com/gpu": "3"}
    container = {"name": "main", "image": "foreign", "resources": {"limits": limits, "requests": limits}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "foreign"},
        "spec": {"nodeName": first, "containers": [container]},
    }
    assert made.plane.rest.post(f"/api/v1/namespaces/{made.name}/pods", pod).accepted
    return made


@pytest.fixture
def rita(stage: Stage, scene: Scene, tmp_path: Path) -> Person:
    """She may read, and nothing else."""
    return stage.planner(scene, tmp_path)


def new_run(scene: Scene, gpus: int = 40) -> dict[str, Any]:
    spec = {
        "owner": scene.owner("lab"),
        "resources": {"gpuType": scene.flavor, "totalGPUs": gpus},
        "locality": {"groupGPUs": 8},
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "Run",
        "metadata": {"name": "new", "namespace": scene.name},
        "spec": spec,
    }


def slots(items: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Which GPUs, for which group and role, and who pays: all that a plan decides."""
    specs = [item["spec"] for item in items if item["kind"] == "Lease"]
    return sorted(
        (
            spec.get("group", 0),
            spec["role"],
            spec["class"],
            tuple(spec["slots"]),
            tuple(sorted(spec["payer"].items())),
        )
        for spec in specs
    )


def test_a_snapshot_plans_as_the_live_cluster_does(stage: Stage, scene: Scene, rita: Person) -> None:
    """SCENARIOS 14."""
    new = rita.file("new.yaml", new_run(scene))
    for state, said in (
        ("snapshot.yaml", rita.runs("snapshot")),
        ("got.yaml", rita.kubectl("get", KINDS, "-A", "-o", "yaml")),
    ):
        assert said.code == 0, said.err
        (rita.directory / state).write_text(said.out)
    answers = {
        "live": rita.runs("plan", "-f", new, "-o", "json"),
        "snapshot": rita.runs("--state", "snapshot.yaml", "plan", "-f", new, "-o", "json"),
        "kubectl get": rita.runs("--state", "got.yaml", "plan", "-f", new, "-o", "json"),
    }
    planned = {}
    for name, said in answers.items():
        assert said.code == 0, (name, said)
        planned[name] = slots(said.json()["items"])
    assert not scene.plane.rest.get(scene.path("new")).accepted, "planning changes nothing"
    ann = stage.researcher(scene, rita.directory)
    assert ann.runs("submit", "-f", new).code == 0
    scene.await_running("new", 5)
    decided = slots(ann.runs("leases", "new", "-o", "json").json()["items"])
    assert len(decided) >= 5
    assert planned == dict.fromkeys(planned, decided)


def test_the_policy_counts(stage: Stage, rita: Person) -> None:
    """The administrator's policy is part of the snapshot, and those who may only read may read it."""
    set_policy(stage.plane, 'spareRate: "0.3"\n')
    try:
        said = rita.runs("snapshot")
        assert 'spareRate: "0.3"' in said.out
    finally:
        set_policy(stage.plane)


def test_a_run_that_waits_is_shown_as_the_manager_decided(scene: Scene, rita: Person) -> None:
    scene.run("late", "lab", 56)
    scene.await_phase("Reserved", "late")
    wait_until(lambda: bool(scene.reservations()), "there is a Reservation")
    (written,) = scene.reservations()
    said = rita.runs("plan", "late", "-o", "json")
    assert said.code == 1
    (run, reservation) = said.json()["items"]
    assert reservation["metadata"]["uid"] == written["metadata"]["uid"]
    assert reservation["spec"] == written["spec"]
    assert run["status"]["reason"] == scene.status("late")["reason"]
    text = rita.runs("plan", "late").out
    assert f"Reservation {written['metadata']['name']}:" in text
    assert f"{scene.name}/late cannot start now: 56 GPUs of {scene.flavor}" in text
    assert "ConcurrencyExhausted (have 48, need 56)" in text
    assert "→ " in text
    listed = rita.runs("reservations", "-n", scene.name)
    assert f"{scene.name}/{written['metadata']['name']}" in listed.out


def test_what_a_planner_may_not(scene: Scene, rita: Person) -> None:
    for words in (["submit", "-f", rita.file("new.yaml", new_run(scene))], ["cancel", "base"]):
        said = rita.runs(*words)
        assert (said.code, "jobtree-researcher" in said.err) == (2, True), said
    assert scene.phase("base") == "Running"
