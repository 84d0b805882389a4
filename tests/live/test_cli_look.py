"""Every reading verb on a live cluster, in every format, and what is for simulations only."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.live.guarding import BREAK_GLASS
from tests.live.managing import Scene
from tests.live.manifests import API_VERSION
from tests.live.person import Person, bind
from tests.live.process import wait_until
from tests.live.stage import Stage

GROUP = API_VERSION.partition("/")[0]


@pytest.fixture(scope="module")
def scene(stage: Stage) -> Scene:
    """One Run runs, one waits, one is a tree."""
    made = stage.scene()
    made.nodes("nv", 4)
    made.budget("lab", 24)
    made.run("train", "lab", 16)
    made.await_running("train", 2)
    fit = {"gpuType": made.flavor, "totalGPUs": 8}
    stages = [
        {"name": "prep", "resources": {"totalGPUs": 0, "pods": 1}},
        {"name": "fit", "after": ["prep"], "resources": fit},
    ]
    made.create("Run", "flow", {"owner": made.owner("lab"), "stages": stages})
    made.run("late", "lab", 24)
    made.await_phase("Reserved", "late")
    wait_until(lambda: bool(made.reservations()), "there is a Reservation")
    return made


@pytest.fixture(scope="module")
def ann(stage: Stage, scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> Person:
    person = Person(stage.plane, "ann", scene.name, tmp_path_factory.mktemp("ann"))
    for role, where in (("jobtree-planner", ""), ("jobtree-researcher", scene.name)):
        bind(stage.plane, role, "ann", where)
    return person


VERBS: dict[str, tuple[list[str], str, int]] = {
    # its words, what the table says, its exit code
    "state": (["state"], "SCENE/train  ", 0),
    "state --owner": (["state", "--owner", "SCENE:lab"], "SCENE/late  ", 0),
    "plan": (["plan", "train"], "SCENE/train runs since ", 0),
    "tree": (["tree", "flow"], "SCENE/flow", 0),
    "leases": (["leases", "train"], "SCENE-lab/main", 0),
    "leases --owner": (["leases", "--owner", "SCENE:lab", "--open"], "SCENE/train", 0),
    "budgets usage": (["budgets", "usage", "--owner", "SCENE"], "SCENE-lab/main", 0),
    "reservations": (["reservations", "-n", "SCENE"], "SCENE/late-1", 0),
    "explain": (["explain", "train"], "paid by SCENE-lab/main: it started", 0),
    "timeline": (["timeline"], "SCENE/train ", 0),
    "watch": (["watch", "train", "--once"], "SCENE/train  Running  16/16 GPUs", 0),
    "pods": (["pods", "train"], "SCENE-nv-0", 0),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_in_all_formats(scene: Scene, ann: Person, verb: str) -> None:
    words, holds, code = VERBS[verb]
    words = [word.replace("SCENE", scene.name) for word in words]
    said = ann.runs(*words)
    assert (said.code, said.err) == (code, "")
    assert holds.replace("SCENE", scene.name) in said.out
    as_json = ann.runs(*words, "-o", "json")
    assert as_json.code == code, as_json.err
    found = json.loads(as_json.out)
    items: list[dict[str, Any]] = found["items"] if found["kind"] == "List" else [found]
    assert items
    as_yaml = yaml.safe_load(ann.runs(*words, "-o", "yaml").out)
    assert as_yaml["kind"] == found["kind"]
    names = ann.runs(*words, "-o", "name").out.splitlines()
    assert [name.rpartition("/")[2] for name in names] == [item["metadata"]["name"] for item in items]
    assert items[0]["metadata"]["uid"], "these are the server's own objects"


def test_names_are_those_that_kubectl_takes(scene: Scene, ann: Person) -> None:
    name = ann.runs("pods", "train", "-o", "name").out.split()[0]
    assert ann.kubectl("get", name).code == 0
    assert ann.runs("plan", f"run.{GROUP}/train").code == 0
    assert ann.runs("plan", f"{scene.name}/train", "-n", "default").code == 0


def test_state_is_about_the_context_s_namespace(scene: Scene, ann: Person) -> None:
    said = ann.runs("state", "-n", "default")
    assert said.out == "no Runs in namespace default: --all lists the Runs of all namespaces\n"
    assert f"{scene.name}/train" in ann.runs("state", "--all", "-n", "default").out
    said = ann.runs("pods", "train", "-n", "default")
    assert (said.code, f"did you mean {scene.name}/train?" in said.err) == (3, True), said.err
    said = ann.runs("explain", "trian")
    assert (said.code, "did you mean train?" in said.err) == (3, True), said.err


def test_a_run_without_pods(ann: Person) -> None:
    assert ann.runs("pods", "late").out == "no pods\n"
    said = ann.runs("logs", "late")
    assert (said.code, "it is Reserved and has no pods now" in said.err) == (3, True), said.err
    said = ann.runs("logs", "train", "--rank", "7")
    assert (said.code, "its ranks are 0 to 1" in said.err) == (3, True), said.err
    assert ann.runs("logs", "train", "--rank", "0", "--group", "0").code == 2
    said = ann.runs("logs", "train")
    assert (said.code, "the logs of train-" in said.err, "kubectl get node" in said.err) == (
        74,
        True,
        True,
    ), said


def test_topology_shows_what_to_mend(stage: Stage, scene: Scene, ann: Person) -> None:
    made = stage.scene()
    names = made.nodes("nv", 5)
    for node, label in zip(names, ("region-", "cluster=elsewhere", "gpu.flavor-"), strict=False):
        stage.plane.kubectl("label", "node", node, label, "--overwrite")
    said = ann.runs("topology")
    assert said.code == 1
    rows = [line.split() for line in said.out.splitlines()]
    assert [f"r/c/{scene.name}-nv", scene.flavor, "4", "4", "32", "16"] in rows
    lines = [line.strip().partition("  #")[0] for line in said.out.splitlines() if "kubectl label" in line]
    mine = [line for line in lines if made.name in line]
    assert mine == [
        f"kubectl label node {names[0]} region=r",
        f"kubectl label node {names[1]} cluster=c --overwrite",
        f"kubectl label node {names[2]} gpu.flavor={made.flavor}",
    ]
    for line in mine:
        stage.plane.kubectl(*line.split()[1:])
    said = ann.runs("topology")
    assert (
        said.code,
        [f"r/c/{made.name}-nv", made.flavor, "5", "5", "40", "40"] in map(str.split, said.out.splitlines()),
    ) == (0, True)
    assert len(ann.runs("topology", "-o", "json").json()["items"]) >= 9


def test_topology_names_nodes_that_should_have_gpus_and_report_none(stage: Stage, ann: Person) -> None:
    made = stage.scene()
    (name,) = made.nodes("nv", 1)
    for gpus, code in (("0", 1), ("8", 0)):
        reported = {"status": {"capacity": {"nvidia.com/gpu": gpus}, "allocatable": {"nvidia.com/gpu": gpus}}}
        assert stage.plane.rest.merge(f"/api/v1/nodes/{name}/status", reported).accepted
        said = ann.runs("topology")
        assert (said.code, f"  kubectl describe node {name}\n" in said.out) == (code, code == 1), said


def test_an_audit_finds_pods_without_leases(stage: Stage, scene: Scene, ann: Person) -> None:
    said = ann.runs("audit")
    assert (said.code, said.out) == (0, "OK: all invariants hold, and all pods match their leases\n"), said
    assert ann.runs("check").code == 0
    stage.stop_manager()
    try:
        run = stage.plane.rest.get(scene.path("train")).body["metadata"]
        owner = {"apiVersion": API_VERSION, "kind": "Run", "name": "train", "uid": run["uid"]}
        limits = {"nvidia.com/gpu": "8"}
        container = {"name": "main", "image": "x", "resources": {"limits": limits, "requests": limits}}
        free = next(node for node in (f"{scene.name}-nv-04", f"{scene.name}-nv-03"))
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "intruder", "ownerReferences": [owner]},
            "spec": {"nodeName": free, "containers": [container]},
        }
        path = f"/api/v1/namespaces/{scene.name}/pods"
        intruder = stage.plane.rest_as("admin", "system:masters", BREAK_GLASS)
        assert intruder.post(path, pod).accepted
        said = ann.runs("audit")
        wanted = f"Pods: pods of {scene.name}/train ask for 8 GPUs on {free}, where it has leases on 0"
        assert (said.code, wanted in said.out) == (1, True), said
        status = ann.runs("audit", "-o", "json")
        assert (status.code, status.json()["status"]) == (1, "Failure")
        assert stage.plane.rest.delete(f"{path}/intruder?gracePeriodSeconds=0").accepted
    finally:
        stage.start_manager()


@pytest.mark.parametrize("words", ["advance 1h", "fail x", "heal x", "drain x", "complete train"])
def test_what_is_for_simulations_says_so(ann: Person, words: str) -> None:
    said = ann.runs(*words.split())
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("error: this works on a simulated cluster only: name a state file")


def test_names_are_completed(scene: Scene, ann: Person) -> None:
    assert ann.runs("__complete", "plan", "tr").out == "train\n:4\n"
    assert f"{scene.name}/late\n" in ann.runs("__complete", "plan", f"{scene.name}/la").out
    assert ann.runs("__complete", "explain", "--context", "nowhere", "tr").out == ":4\n"


def test_a_server_that_is_not_there(ann: Person, tmp_path: Path) -> None:
    config = yaml.safe_load(ann.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    (tmp_path / "gone").write_text(yaml.safe_dump(config))
    said = ann.runs("state", "--kubeconfig", str(tmp_path / "gone"))
    assert (said.code, "the cluster does not answer: https://127.0.0.1:1: " in said.err) == (74, True), (
        said.err
    )
    assert "kubectl cluster-info" in said.err
    config = yaml.safe_load(ann.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": "stale"}
    (tmp_path / "stale").write_text(yaml.safe_dump(config))
    said = ann.runs("state", "--kubeconfig", str(tmp_path / "stale"))
    assert (said.code, "may have expired" in said.err) == (2, True), said.err
    said = ann.runs("state", "--context", "nowhere")
    assert (said.code, "nowhere" in said.err) == (2, True), said.err
