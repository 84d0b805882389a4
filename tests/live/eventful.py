"""An eventful hour on a cluster: admission, growth, a swap, a lottery, a job tree, deletions.

Each part has a scene of its own (a namespace, a flavor, teams), so parts go on side by side and the end of
one does not depend on the pace of another. A part is what people do and what they wait for in between;
``outcome`` is what must be there at the end, whatever befell the manager.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from jobtree.core.lottery.resolution_record import Record, verify
from tests.live.control_plane import ControlPlane
from tests.live.fleet import Fleet
from tests.live.managing import REPOSITORY, Manager, Scene, install, set_policy
from tests.live.manifests import API_VERSION
from tests.live.process import wait_until

HASTY = "structuralNotice: 1s\nminNotice: 1s\nmaxNotice: 2s\nminRuntime: 0s\nnodeGrace: 1s\n"
ELECTION = "/apis/coordination.k8s.io/v1/namespaces/jobtree-system/leases/jobtree-controller-manager"
LABEL = "rq.davidlangworthy.io"
WITHIN_SECONDS = 300
SETTLE_SECONDS = 120
SOUND = "OK: all invariants hold, and all pods match their leases\n"

Waits = Iterator[tuple[str, Callable[[], bool]]]
Outcome = dict[str, Any]


class Ground:
    """A cluster without a manager."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.kubeconfig = install(plane)
        set_policy(plane, HASTY)
        plane.start_controllers()
        plane.start_scheduler()
        self.fleet: Fleet = plane.kwok()
        self._numbers = count(1)

    def name(self) -> str:
        return f"c{next(self._numbers)}"

    def scene(self) -> Scene:
        return Scene(self.plane, self.fleet, self.name())

    def manager(self, *flags: str, kubeconfig: Path | None = None) -> Manager:
        return Manager(self.plane, kubeconfig or self.kubeconfig, *flags)

    def audit(self) -> str:
        """What ``kubectl runs audit`` says of the whole cluster."""
        command = [sys.executable, "-c", "from jobtree.cli.main import main; main()", "audit"]
        environment = {**self.plane.environment(), "PYTHONPATH": str(REPOSITORY / "src")}
        said = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return said.stdout + said.stderr

    def free_election(self) -> None:
        """A dead leader's place is free at once, instead of when its time has run out."""
        self.plane.rest.delete(ELECTION)


def growth(scene: Scene) -> Waits:
    """It starts narrow, grows by a step, and completes at its new width."""
    scene.nodes("nv", 2)
    scene.budget("a", 16)
    elastic = {"minTotalGPUs": 8, "maxTotalGPUs": 16, "stepGPUs": 8}
    scene.run("grows", "a", 8, malleable=elastic, runtime={"checkpoint": "1s"})
    yield "it has grown", lambda: attempts(scene, "grows") == ["2", "2"]
    scene.finish("grows")
    yield "it is completed", lambda: scene.phase("grows") == "Completed"


def swap(scene: Scene) -> Waits:
    """A node dies, its rank goes on at the spare; then the Run is deleted."""
    scene.nodes("nv", 2)
    scene.budget("a", 16)
    scene.run("spared", "a", 8, spares=1)
    yield "rank and spare run", lambda: len(scene.running("spared")) == 2
    rank = next(pod for pod in scene.pods("spared") if pod["spec"].get("hostname") == "spared-0-0")
    scene.fleet.remove(rank["spec"]["nodeName"])
    yield "it runs at the spare", lambda: attempts(scene, "spared") == ["2"]
    scene.cancel("spared")
    yield "it is gone", lambda: not scene.plane.rest.get(scene.path("spared")).accepted
    yield "and so are its pods", lambda: scene.pods("spared") == []


def lottery(scene: Scene) -> Waits:
    """A promise comes due and one of two Runs has to go; it is deleted."""
    scene.nodes("nv", 2)
    scene.budget("a", 16)
    scene.budget("b", 8)
    for name in ("left", "right"):
        scene.run(name, "a", 8, runtime={"requeue": False})
    yield "both run", lambda: all(len(scene.running(name)) == 1 for name in ("left", "right"))
    scene.run("newcomer", "b", 8)
    yield "the newcomer runs", lambda: len(scene.running("newcomer")) == 1
    yield "one has failed", lambda: "Failed" in (scene.phase("left"), scene.phase("right"))
    loser = next(name for name in ("left", "right") if scene.phase(name) == "Failed")
    scene.cancel(loser)
    yield "the loser is gone", lambda: not scene.plane.rest.get(scene.path(loser)).accepted
    yield "and so are its pods", lambda: scene.pods(loser) == []


def tree(scene: Scene) -> Waits:
    """Data are prepared; training and evaluation start together; all of it is deleted."""
    scene.nodes("nv", 2)
    scene.budget("a", 16)
    gpus = {"gpuType": scene.flavor, "totalGPUs": 8}
    stages = [
        {"name": "prep", "resources": {"totalGPUs": 0, "pods": 1}},
        {"name": "train", "resources": gpus, "after": ["prep"]},
        {"name": "eval", "resources": gpus, "after": ["prep"], "with": ["train"]},
    ]
    scene.create("Run", "tree", {"owner": scene.owner("a"), "stages": stages})
    yield "data are prepared", lambda: len(scene.running("tree-prep")) == 1
    scene.finish("tree-prep")
    yield (
        "both stages run",
        lambda: all(len(scene.running(f"tree-{stage}")) == 1 for stage in ("train", "eval")),
    )
    assert (
        len({lease["spec"]["start"] for run in ("train", "eval") for lease in scene.leases(f"tree-{run}")})
        == 1
    )
    scene.cancel("tree")
    runs = f"/apis/{API_VERSION}/namespaces/{scene.name}/runs"
    yield "all of it is gone", lambda: scene.items(runs) == []
    yield "and so are its pods", lambda: scene.items(f"/api/v1/namespaces/{scene.name}/pods") == []


PARTS = {"growth": growth, "swap": swap, "lottery": lottery, "tree": tree}


class Hour:
    """One hour, with a manager that may be replaced at any time."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        name = ground.name()
        self._scenes = {part: Scene(ground.plane, ground.fleet, f"{name}-{part}") for part in PARTS}

    def play(self, managers: list[Manager], tend: Callable[[], None] = lambda: None) -> None:
        """All parts to their end; ``tend`` is called all the time, and looks after the managers."""
        going = {part: play(self._scenes[part]) for part, play in PARTS.items()}
        waits = {part: next(steps) for part, steps in going.items()}

        def over() -> bool:
            tend()
            for part in [part for part, (_, holds) in waits.items() if holds()]:
                step = next(going[part], None)
                if step is None:
                    del waits[part]
                else:
                    waits[part] = step
            return not waits

        try:
            wait_until(over, "the end", WITHIN_SECONDS)
        except TimeoutError:
            late = {part: what for part, (what, _) in waits.items()}
            managers[-1].abort()
            raise TimeoutError(f"after {WITHIN_SECONDS} s, still not: {late}\n{logs(managers)}") from None

    def live_through(self, start: Callable[[], Manager], expected: Outcome) -> None:
        """The whole hour; a manager that has ended, as one does that lost the election, is replaced."""
        self._ground.free_election()
        managers = [start()]

        def replace() -> None:
            if managers[-1].has_ended:
                self._ground.free_election()
                managers.append(start())

        try:
            self.play(managers, replace)
            self.await_outcome(expected, managers, replace)
            self.clear(replace)
        finally:
            for manager in managers:
                manager.stop()

    def await_outcome(
        self, expected: Outcome, managers: list[Manager], tend: Callable[[], None] = lambda: None
    ) -> None:
        """The same as in an hour in which nothing befell the manager."""

        def same() -> bool:
            tend()
            return self.outcome() == expected

        with suppress(TimeoutError):
            wait_until(same, "the same outcome", SETTLE_SECONDS)
        outcome = self.outcome()
        assert outcome == expected, f"{difference(outcome, expected)}\n{logs(managers)}"
        for manager in managers:
            assert not manager.said("Traceback"), logs(managers)
            assert not manager.said("an invariant is broken"), logs(managers)

    def await_rest(self) -> Outcome:
        """Leases and budgets say what the Runs say."""
        wait_until(lambda: all(map(is_at_rest, self.outcome().values())), "all is at rest", SETTLE_SECONDS)
        return self.outcome()

    def outcome(self) -> Outcome:
        return {part: outcome_of(scene) for part, scene in self._scenes.items()}

    def clear(self, tend: Callable[[], None] = lambda: None) -> None:
        """What still runs is cancelled, and gone with its pods: the next hour has the cluster to itself."""
        scenes = self._scenes.values()
        for scene in scenes:
            for run in scene.items(f"/apis/{API_VERSION}/namespaces/{scene.name}/runs"):
                scene.cancel(run["metadata"]["name"])

        def gone() -> bool:
            tend()
            paths = (f"/apis/{API_VERSION}/namespaces/{{}}/runs", "/api/v1/namespaces/{}/pods")
            return not any(scene.items(path.format(scene.name)) for scene in scenes for path in paths)

        wait_until(gone, "all of it is gone", SETTLE_SECONDS)


def difference(outcome: Outcome, expected: Outcome) -> str:
    """What is there and should not be, and what is not and should, part by part."""
    lines = []
    for part, told in expected.items():
        for kind, wanted in told.items():
            found = outcome[part][kind]
            lines += [f"{part}: not {one}" for one in found if one not in wanted]
            lines += [f"{part}: but {one}" for one in wanted if one not in found]
    return "\n".join(lines)


def logs(managers: list[Manager]) -> str:
    return "\n".join(manager.log.read_text(errors="replace") for manager in managers)


def attempts(scene: Scene, run: str) -> list[str]:
    return [pod["metadata"]["labels"].get(f"{LABEL}/attempt", "") for pod in scene.running(run)]


def outcome_of(scene: Scene) -> Outcome:
    """All that must not depend on what befell the manager: no times, UIDs, versions, nor who lost a draw."""
    api = f"/apis/{API_VERSION}"
    leases = [
        lease
        for lease in scene.items(f"{api}/gpuleases")
        if lease["spec"]["runRef"]["namespace"] == scene.name
    ]
    ours = [
        one for one in scene.items(f"{api}/budgets") if one["metadata"]["name"].startswith(f"{scene.name}-")
    ]
    return {
        "runs": sorted(map(run_told, scene.items(f"{api}/namespaces/{scene.name}/runs")), key=repr),
        "leases": sorted(map(lease_told, leases), key=repr),
        "reservations": sorted(map(reservation_told, scene.reservations()), key=repr),
        "pods": sorted(map(pod_told, scene.items(f"/api/v1/namespaces/{scene.name}/pods")), key=repr),
        "budgets": [budget_told(one) for one in ours],
    }


def is_at_rest(told: Outcome) -> bool:
    running = {run["name"]: run["width"]["allocated"] for run in told["runs"] if run["phase"] == "Running"}
    opened = {lease["run"]: 0 for lease in told["leases"] if lease["end"] == "open"}
    used = sum(int(envelope["usedGPUs"]) for envelopes in told["budgets"] for envelope in envelopes.values())
    return opened.keys() == running.keys() and used == sum(running.values())


def anyone(name: str) -> str:
    """Either of the two may lose the draw."""
    return "one of them" if name in ("left", "right") else name


def run_told(run: dict[str, Any]) -> Outcome:
    status = run.get("status", {})
    told = {key: status.get(key) for key in ("phase", "width", "attempt", "reason", "restarts")}
    conditions = sorted((one["type"], one["status"], one["reason"]) for one in status.get("conditions", ()))
    return {
        "name": anyone(run["metadata"]["name"]),
        **told,
        "conditions": conditions,
        "finalizers": run["metadata"].get("finalizers"),
    }


def lease_told(lease: dict[str, Any]) -> Outcome:
    spec = lease["spec"]
    return {
        "run": anyone(spec["runRef"]["name"]),
        **{key: spec[key] for key in ("class", "role", "group", "reason")},
        "slots": len(spec["slots"]),
        "end": lease.get("status", {}).get("closureReason", "open"),
    }


def reservation_told(reservation: dict[str, Any]) -> Outcome:
    status = reservation["status"]
    proof = status.get("lottery")
    return {
        "name": reservation["metadata"]["name"],
        "state": status["state"],
        "proof": verify(msgspec.convert(proof, Record)) if proof else None,
        "slips": [slip["reason"] for slip in status.get("slips", ())],
    }


def pod_told(pod: dict[str, Any]) -> Outcome:
    labels = pod["metadata"]["labels"]
    told = {key: labels.get(f"{LABEL}/{key}") for key in ("role", "rank", "attempt")}
    return {"run": anyone(labels[f"{LABEL}/run"]), **told, "phase": pod["status"]["phase"]}


def budget_told(budget: dict[str, Any]) -> Outcome:
    envelopes = budget.get("status", {}).get("envelopes", ())
    return {
        one["name"]: {key: value for key, value in one.items() if "ours" not in key and "redits" not in key}
        for one in envelopes
    }
