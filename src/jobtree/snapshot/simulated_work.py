"""How far a simulated Run has come with its work.

Annotation ``duration`` says how long the work takes at ``totalGPUs``; a narrower Run takes longer in
proportion. Work is counted in GPU-milliseconds. A Run that has to start again goes on from its last
checkpoint; without one it starts over. One with ``onNotice: Checkpoint`` that was warned has saved its state
in time and loses nothing (R11). What was lost in all stands in the annotation ``lost``.
"""

import msgspec

from jobtree.api.schema.object_meta import SIM_GROUP
from jobtree.api.schema.quantities import format_time, parse_duration, parse_time
from jobtree.core import RunState

DURATION = f"{SIM_GROUP}/duration"
DONE = f"{SIM_GROUP}/done"
LOST = f"{SIM_GROUP}/lost"  # GPU-milliseconds of work that had to be done again


class SimulatedWork(msgspec.Struct):
    """Work of one Run: all of it, what was done by an instant, and at what width it goes on."""

    total: int | None  # None: it runs until somebody completes it
    done: int = 0
    at: int = 0
    width: int = 0
    started_with: int = 0  # what was done when this admission began
    started_at: int = 0
    attempt: int = 0
    lost: int = 0  # in all its stops

    def progress(self, now: int) -> int:
        return self.done + self.width * max(0, now - self.at)

    def ends_at(self) -> int | None:
        """The instant at which the work is done if the width stays as it is."""
        if self.total is None or self.width == 0:
            return None
        return self.at + -(-(self.total - self.done) // self.width)

    def resize(self, width: int, now: int) -> None:
        """From now on the work goes on at this width."""
        if self.width == 0:
            self.started_with, self.started_at = self.done, now
        self.done, self.at, self.width = self.progress(now), now, width

    def stop(self, now: int, checkpoint: int | None, *, saved: bool = False) -> None:
        """The Run was stopped: what it did since its last checkpoint is lost, unless it saved all."""
        if not self.width:
            return
        done = self.progress(now)
        kept = done if saved else self.started_with
        if checkpoint and now > self.started_at and not saved:
            ran = now - self.started_at
            kept += (done - self.started_with) * (ran // checkpoint * checkpoint) // ran
        self.lost += done - kept
        self.done, self.at, self.width = kept, now, 0


def read_work(run: RunState) -> SimulatedWork:
    """The work of a Run as its annotations tell it. Raises ValueError where they cannot be read."""
    annotations = run.run_object.metadata.annotations
    text = annotations.get(DURATION)
    total = None
    if text is not None and not run.is_tree:
        total = parse_duration(text) * (run.shape.total if run.shape else 1)
    work = SimulatedWork(total, lost=int(annotations.get(LOST, "0")))
    if saved := annotations.get(DONE):
        (work.done, work.at), (work.started_with, work.started_at) = map(point, saved.split(" since ", 1))
    elif run.since is not None:
        work.at = work.started_at = run.since
    work.width = pace_of(run)
    work.attempt = run.attempt
    return work


def pace_of(run: RunState) -> int:
    """How fast a Run works: by its width; without GPUs, at one pace."""
    return run.width if run.shape is not None else int(run.phase == "Running")


def point(text: str) -> tuple[int, int]:
    done, _, at = text.partition("@")
    return int(done), parse_time(at)


def encode_work(work: SimulatedWork) -> str:
    """``300@… since 100@…``: GPU-milliseconds done by an instant, and when this admission began."""
    return f"{work.done}@{format_time(work.at)} since {work.started_with}@{format_time(work.started_at)}"
