"""Managers that are killed, paused and replaced, on a real API server."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.control_plane import ControlPlane
from tests.live.fleet import Fleet
from tests.live.managing import Manager, Scene, install, set_policy
from tests.live.process import wait_until

HASTY = "structuralNotice: 1s\nminNotice: 1s\nmaxNotice: 2s\nminRuntime: 0s\nnodeGrace: 1s\n"
ELECTION = "/apis/coordination.k8s.io/v1/namespaces/jobtree-system/leases/jobtree-controller-manager"


STRIDE = 1 if os.environ.get("JOBTREE_SOAK") else 6  # make soak-live kills after every single write


class Ground:
    """A cluster without a manager."""

    def __init__(self, plane: ControlPlane, kubeconfig: Path, fleet: Fleet) -> None:
        self.plane = plane
        self.kubeconfig = kubeconfig
        self.fleet = fleet
        self._scenes = 0

    def scene(self) -> Scene:
        self._scenes += 1
        return Scene(self.plane, self.fleet, f"c{self._scenes}")

    def manager(self, *flags: str) -> Manager:
        return Manager(self.plane, self.kubeconfig, *flags)

    def free_election(self) -> None:
        """A dead leader's place is free at once, instead of when its time has run out."""
        self.plane.rest.delete(ELECTION)


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    with ControlPlane() as plane:
        kubeconfig = install(plane)
        set_policy(plane, HASTY)
        plane.start_controllers()
        yield Ground(plane, kubeconfig, plane.kwok())


def begin(scene: Scene) -> None:
    scene.nodes("nv-a", 2)
    scene.budget("a", 16)
    scene.budget("b", 16)
    scene.run("old", "a", 16, runtime={"requeue": False})


def test_a_manager_killed_after_any_write_leaves_nothing_half_done(ground: Ground) -> None:
    """Admission, resolution and deletion, with a kill after a write of them, and a new manager each time."""
    number = 1 - STRIDE
    while True:
        number += STRIDE
        scene = ground.scene()
        begin(scene)
        ground.free_election()
        killed = ground.manager(f"--stop-after-writes={number}")
        outlived = play(ground, scene, killed)
        assert outcome(scene) == EXPECTED, f"after write {number}: {killed.log.read_text()}"
        scene.cancel("new")
        if outlived:
            break
    assert number > 15


EXPECTED = {"old": ["RandomPreempt"], "new": ["open"]}


def play(ground: Ground, scene: Scene, first: Manager) -> bool:
    """Whether the first manager lived to the end. A dead one is replaced."""
    managers = [first]

    def happens(condition: Any, what: str) -> None:  # noqa: ANN401
        def or_replace() -> bool:
            if managers[-1].has_ended:
                ground.free_election()
                managers.append(ground.manager())
            return bool(condition())

        wait_until(or_replace, what, 60)

    with first:
        try:
            happens(lambda: len(scene.running("old")) == 2, "the old one runs")
            scene.run("new", "b", 16)
            happens(lambda: len(scene.running("new")) == 2, "the new one runs")
            happens(lambda: outcome(scene) == EXPECTED, "all leases are as they should be")
            happens(lambda: scene.phase("old") == "Failed", "the old one has failed")
            scene.cancel("old")
            happens(lambda: not scene.plane.rest.get(scene.path("old")).accepted, "it is gone")
            happens(lambda: scene.pods("old") == [], "and so are its pods")
            return not first.has_ended
        finally:
            for manager in managers:
                assert not manager.said("Traceback"), manager.log.read_text()
                assert not manager.said("an invariant is broken"), manager.log.read_text()
                manager.stop()


def outcome(scene: Scene) -> dict[str, list[str]]:
    return {run: scene.endings(run) for run in ("old", "new")}


def test_a_standby_takes_over_from_a_leader_that_was_killed(ground: Ground) -> None:
    scene = ground.scene()
    scene.nodes("nv-a", 1)
    scene.budget("a", 8)
    ground.free_election()
    with ground.manager() as leader:
        wait_until(lambda: leader.said("this process leads"), "one leads")
        with ground.manager() as standby:
            scene.run("before", "a", 8)
            scene.await_running("before", 1)
            assert not standby.said("this process leads")
            leader.kill()
            scene.finish("before")
            wait_until(lambda: standby.said("this process leads"), "the standby leads", 30)
            scene.await_phase("Completed", "before")


def test_a_leader_that_was_paused_writes_nothing_when_it_wakes(ground: Ground) -> None:
    scene = ground.scene()
    scene.nodes("nv-a", 2)
    scene.budget("a", 16)
    ground.free_election()
    with ground.manager() as sleeper:
        wait_until(lambda: sleeper.said("the cluster is read"), "one leads")
        with ground.manager() as standby:
            os.kill(sleeper.process.pid, signal.SIGSTOP)
            scene.run("r", "a", 16)
            scene.await_running("r", 2, within=40)
            assert standby.said("this process leads")
            scene.run("waits", "a", 8)
            scene.await_phase("Reserved", "waits")
            written = sleeper.log.read_text()
            os.kill(sleeper.process.pid, signal.SIGCONT)
            wait_until(lambda: sleeper.has_ended, "the old leader ends", 40)
            assert sleeper.process.returncode == 1
            assert [line["message"] for line in sleeper.lines()[len(written.splitlines()) :]] == [
                "this process does not lead any more"
            ]
            scene.finish("r")
            scene.await_phase("Completed", "r")
