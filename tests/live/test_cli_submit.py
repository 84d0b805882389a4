"""Submitting to a live cluster as a user does: with their own rights, and all the mistakes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.control_plane import ControlPlane
from tests.live.managing import Scene
from tests.live.manifests import API_VERSION
from tests.live.person import Person, bind
from tests.live.process import wait_until
from tests.live.stage import Stage


@pytest.fixture
def scene(stage: Stage) -> Iterator[Scene]:
    made = stage.scene()
    made.nodes("nv", 4)
    made.budget("lab", 24)
    yield made
    assert not stage.manager.said("Traceback"), stage.manager.log.read_text()


@pytest.fixture
def ann(stage: Stage, scene: Scene, tmp_path: Path) -> Person:
    return stage.researcher(scene, tmp_path)


def run(scene: Scene, name: str, gpus: int = 8, **fields: object) -> dict[str, Any]:
    """A Run without a namespace: it goes to the user's own."""
    resources = {"gpuType": scene.flavor, "totalGPUs": gpus}
    spec = {"owner": scene.owner("lab"), "resources": resources, **fields}
    return {"apiVersion": API_VERSION, "kind": "Run", "metadata": {"name": name}, "spec": spec}


def test_submit_says_what_the_manager_made_of_it(scene: Scene, ann: Person) -> None:
    said = ann.runs("submit", "-f", ann.file("run.yaml", run(scene, "train", 16)))
    assert (said.code, said.err) == (0, "")
    assert said.out == f"{scene.name}/train is Running: Admitted: 16 GPUs, paid by {scene.name}-lab/main\n"
    scene.await_running("train", 2)
    said = ann.runs("submit", "-f", ann.file("late.yaml", run(scene, "late", 16)))
    assert said.out.startswith(f"{scene.name}/late is Reserved: ConcurrencyExhausted: ")
    assert ann.runs("submit", "-f", ann.file("j.yaml", run(scene, "j")), "-o", "json").json()["status"][
        "phase"
    ]


def test_a_dry_run_saves_nothing_and_is_refused_where_the_real_one_would_be(
    scene: Scene, ann: Person
) -> None:
    file = ann.file("run.yaml", run(scene, "train", 16))
    said = ann.runs("submit", "-f", file, "--dry-run")
    assert said.code == 0, said.err
    assert f"{scene.name}/train runs: 16 GPUs in " in said.out
    assert said.out.endswith("dry run: nothing was saved\n")
    assert not scene.plane.rest.get(scene.path("train")).accepted
    said = ann.runs("submit", "-f", file, "--dry-run", "-n", "default")
    assert (said.code, "cannot create resource" in said.err) == (2, True), said.err


def test_an_object_that_is_there_is_replaced_only_if_asked_to(scene: Scene, ann: Person) -> None:
    file = ann.file("run.yaml", run(scene, "train", 32))
    assert ann.runs("submit", "-f", file).code == 0
    said = ann.runs("submit", "-f", file)
    assert (said.code, "add --replace" in said.err) == (4, True), said.err
    ann.file("run.yaml", run(scene, "train", 24))
    said = ann.runs("submit", "-f", file, "--replace")
    assert said.out.startswith(f"{scene.name}/train is Running: Admitted: 24 GPUs"), said
    said = ann.runs("submit", "-f", file, "--replace")
    assert said.out.startswith(f"{scene.name}/train is Running"), "nothing changed, so nothing is waited for"


def test_all_or_none(scene: Scene, ann: Person) -> None:
    assert ann.runs("submit", "-f", ann.file("one.yaml", run(scene, "taken"))).code == 0
    said = ann.runs("submit", "-f", ann.file("both.yaml", run(scene, "fresh"), run(scene, "taken")))
    assert said.code == 4
    assert not scene.plane.rest.get(scene.path("fresh")).accepted


def test_mistakes_are_named(stage: Stage, scene: Scene, ann: Person, tmp_path: Path) -> None:
    said = ann.runs("submit", "-f", ann.file("run.yaml", run(scene, "train", colour="blue")))
    assert (said.code, said.out) == (2, "")
    assert "spec.colour" in said.err
    said = ann.runs("submit", "-f", ann.file("run.yaml", run(scene, "train")), "-n", "default")
    assert (said.code, "jobtree-researcher" in said.err) == (2, True), said.err
    said = ann.runs("submit", "-f", ann.file("pod.yaml", {"apiVersion": "v1", "kind": "Service"}))
    assert (said.code, "Traceback" in said.err) == (2, False), said.err
    stranger = stage.stranger(scene, tmp_path)
    said = stranger.runs("state")
    assert (said.code, "jobtree-planner" in said.err) == (2, True), said.err
    bind(stage.plane, "cluster-admin", ann.name)
    said = ann.runs("submit", "-f", "run.yaml", "-n", "no-such-place")
    assert (said.code, "kubectl get namespaces" in said.err) == (3, True), said.err


def test_resizing_and_cancelling(scene: Scene, ann: Person) -> None:
    malleable = {"minTotalGPUs": 8, "maxTotalGPUs": 24, "stepGPUs": 8}
    body = run(scene, "train", 24, malleable=malleable, runtime={"checkpoint": "1s"})
    ann.runs("submit", "-f", ann.file("run.yaml", body))
    scene.await_running("train", 3)
    said = ann.runs("shrink", "train", "--by", "8")
    assert said.out.startswith(f"{scene.name}/train wants 16 GPUs and has 24"), said
    scene.await_running("train", 2)
    wait_until(lambda: scene.status("train")["width"]["allocated"] == 16, "it is narrower")
    assert ann.runs("shrink", "train", "--to", "7").code == 2
    said = ann.runs("grow", "train", "--to", "24", "-o", "json")
    assert said.json()["spec"]["malleable"]["desiredTotalGPUs"] == 24
    wait_until(lambda: scene.status("train")["width"]["allocated"] == 24, "it is wide again")
    assert ann.runs("shrink", "nobody", "--by", "8").code == 3
    said = ann.runs("cancel", "train", "-n", "default")
    assert (said.code, "did you mean team" in said.err) == (3, True), said.err
    assert (
        ann.runs("cancel", "train", "train", "-o", "name").out
        == f"run.{API_VERSION.partition('/')[0]}/train\n"
    )
    wait_until(lambda: not scene.plane.rest.get(scene.path("train")).accepted, "the Run is gone")
    assert "Cancelled" in scene.endings("train")
    assert "open" not in scene.endings("train")


def test_a_manager_that_is_down_is_missed(stage: Stage, scene: Scene, ann: Person) -> None:
    stage.stop_manager()
    try:
        said = ann.runs("submit", "-f", ann.file("run.yaml", run(scene, "train")))
        assert (said.code, "the manager has not answered yet" in said.out) == (0, True), said
        assert "kubectl -n jobtree-system get deploy,pods" in said.out
        said = ann.runs("plan", "train")
        assert (said.code, "the manager has not" in said.out) == (1, True), said
    finally:
        stage.start_manager()
    scene.await_phase("Running", "train")


@pytest.mark.parametrize(("role", "may"), [("edit", True), ("view", False)])
def test_roles_of_kubernetes_itself_take_ours_in(
    stage: Stage, scene: Scene, tmp_path: Path, role: str, may: bool
) -> None:
    """Who may edit a namespace may work with its Runs; who may view it may see them."""
    person = stage.stranger(scene, tmp_path, f"{role}or")
    bind(stage.plane, role, person.name, scene.name)
    wait_until(lambda: person.kubectl("get", "runs").code == 0, f"{person.name} may look")
    assert (person.kubectl("auth", "can-i", "create", "runs").code == 0) is may


def test_a_cluster_without_jobtree(tmp_path: Path) -> None:
    with ControlPlane() as bare:
        admin = Person(bare, "admin", "default", tmp_path)
        bind(bare, "cluster-admin", "admin")
        for words in (["state"], ["submit", "-f", "run.yaml"], ["pods", "train"], ["plan", "-f", "run.yaml"]):
            body = {"apiVersion": API_VERSION, "kind": "Run", "metadata": {"name": "train"}}
            spec = {"owner": "a", "resources": {"gpuType": "x", "totalGPUs": 8}}
            admin.file("run.yaml", {**body, "spec": spec})
            said = admin.runs(*words)
            assert (said.code, "Jobtree is not installed" in said.err) == (3, True), (words, said)
