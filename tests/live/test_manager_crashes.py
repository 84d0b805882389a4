"""Managers that are killed, paused and replaced, on a real API server."""

import os
import signal

from tests.live.eventful import SOUND, Ground, Outcome
from tests.live.hardship import killed_after
from tests.live.process import wait_until

STRIDE = 29  # make soak-live kills after every single write
LEAST_WRITES = 60  # of an hour


def test_a_manager_killed_after_any_write_leaves_nothing_half_done(
    ground: Ground, undisturbed: Outcome
) -> None:
    """An eventful hour, with a kill after a write of it, and a new manager each time."""
    write = 1
    while killed_after(ground, undisturbed, write):
        write += STRIDE
    assert write > LEAST_WRITES
    assert ground.audit() == SOUND


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
            wait_until(lambda: standby.said("this process leads"), "the standby leads")
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
            scene.await_running("r", 2)
            assert standby.said("this process leads")
            scene.run("waits", "a", 8)
            scene.await_phase("Reserved", "waits")
            written = sleeper.log.read_text()
            os.kill(sleeper.process.pid, signal.SIGCONT)
            wait_until(lambda: sleeper.has_ended, "the old leader ends")
            assert sleeper.process.returncode == 1
            assert [line["message"] for line in sleeper.lines()[len(written.splitlines()) :]] == [
                "this process does not lead any more"
            ]
            scene.finish("r")
            scene.await_phase("Completed", "r")
