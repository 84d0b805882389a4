"""``watch`` on a live cluster: changes are streamed, the exit code says how it ended."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from threading import Thread

import pytest

from tests.live.managing import Scene
from tests.live.outage import restart
from tests.live.person import Person
from tests.live.process import wait_until
from tests.live.stage import Stage

LINE_SECONDS = 120


@pytest.fixture
def scene(stage: Stage) -> Scene:
    return staged(stage)


def staged(stage: Stage) -> Scene:
    made = stage.scene()
    made.nodes("nv", 2)
    made.budget("lab", 16)
    made.run("train", "lab", 16)
    made.await_running("train", 2)
    return made


@pytest.fixture
def rita(stage: Stage, scene: Scene, tmp_path: Path) -> Person:
    return stage.planner(scene, tmp_path)


class Watching:
    """A watch that goes on, and the lines that it has printed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._lines: Queue[str] = Queue()
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def line_with(self, text: str) -> str:
        """The next line that holds this."""
        seen: list[str] = []
        while not seen or text not in seen[-1]:
            try:
                seen.append(self._lines.get(timeout=LINE_SECONDS))
            except Empty:
                raise AssertionError(f"no line with {text} came, but these: {seen}") from None
        return seen[-1]

    def rest(self) -> list[str]:
        """What it has printed since, now that it has ended."""
        self._reader.join(LINE_SECONDS)
        return [self._lines.get() for _ in range(self._lines.qsize())]

    def ends_with(self) -> int:
        return self.process.wait(LINE_SECONDS)


@contextmanager
def watching(person: Person, *words: str) -> Iterator[Watching]:
    with person.start("watch", *words) as process:
        try:
            yield Watching(process)
        finally:
            process.kill()


def test_a_change_is_streamed_and_the_end_is_told(scene: Scene, rita: Person) -> None:
    with watching(rita, "train") as watch:
        assert f"{scene.name}/train  Running  16/16 GPUs  Owned 16" in watch.line_with("train")
        scene.finish("train")
        watch.line_with("Completed")
        assert watch.ends_with() == 0


def test_a_run_that_is_cancelled(scene: Scene, rita: Person) -> None:
    with watching(rita, "train") as watch:
        watch.line_with("Running")
        scene.cancel("train")
        watch.line_with("is gone: it was cancelled")
        assert watch.ends_with() == 1


def test_an_interrupt_ends_it(rita: Person) -> None:
    with watching(rita, "train", "-o", "name") as watch:
        watch.line_with("run.rq.davidlangworthy.io/train")
        watch.process.send_signal(signal.SIGINT)
        assert watch.ends_with() == 130
        assert watch.rest() == []


def test_a_server_that_is_restarted_is_waited_for(tmp_path: Path) -> None:
    """On a plane of its own, since everybody else needs theirs."""
    with Stage() as stage:
        scene = staged(stage)
        with watching(stage.planner(scene, tmp_path), "train") as watch:
            watch.line_with("Running")
            restart(stage.plane)
            scene.cancel("train")
            wait_until(lambda: freed(scene, "train"), "it is gone, whether or not the manager is back")
            watch.line_with("is gone: it was cancelled")
            assert watch.ends_with() == 1


def freed(scene: Scene, run: str) -> bool:
    scene.plane.rest.merge(scene.path(run), {"metadata": {"finalizers": None}})
    return not scene.plane.rest.get(scene.path(run)).accepted


def test_once(rita: Person) -> None:
    said = rita.runs("watch", "train", "--once")
    assert (said.code, said.out.count("\n")) == (0, 1)
    said = rita.runs("watch", "nobody")
    assert (said.code, "there is no Run nobody" in said.err) == (3, True), said.err
