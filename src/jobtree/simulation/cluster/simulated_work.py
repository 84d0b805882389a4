"""The work of a simulated Run, and how much of it is done.

The annotation ``duration`` says how long the work takes at ``totalGPUs``. A narrower Run takes longer in
proportion. Work is counted in GPU-milliseconds. A Run that starts again continues from its last checkpoint,
or from the beginning if it has none. A Run with ``onNotice: Checkpoint`` that was warned has saved its state
and loses nothing (R11). The annotation ``lost`` has the sum of all work that was lost.
"""

import msgspec

from jobtree.api.schema.object_meta import LOST_WORK, SIM_GROUP
from jobtree.api.schema.quantities import format_time, parse_duration, parse_time
from jobtree.core import RunState

DURATION = f"{SIM_GROUP}/duration"
DONE = f"{SIM_GROUP}/done"
LOST = LOST_WORK


class SimulatedWork(msgspec.Struct):
    """The work of one Run in GPU-milliseconds, and the width at which it continues."""

    total: int | None  # None: the Run ends when a user completes it
    done: int = 0  # at the instant ``at``
    at: int = 0
    width: int = 0
    started_with: int = 0  # work that was done when the Run last started
    started_at: int = 0
    attempt: int = 0
    lost: int = 0  # in all stops

    def progress(self, now: int) -> int:
        return self.done + self.width * max(0, now - self.at)

    def ends_at(self) -> int | None:
        """The instant at which the work is done if the width does not change."""
        if self.total is None or self.width == 0:
            return None
        return self.at + -(-(self.total - self.done) // self.width)

    def resize(self, width: int, now: int, delay: int = 0) -> None:
        """Continues at this width from now on; work that starts makes no progress during the delay."""
        if self.width == 0:
            self.at = self.started_at = now + delay
            self.started_with = self.done
        self.done, self.at, self.width = self.progress(now), max(self.at, now), width

    def stop(self, now: int, checkpoint: int | None, *, saved: bool = False) -> None:
        """Stops the work. What was done since the last checkpoint is lost, unless the state was saved."""
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
    """The work of a Run from its annotations. Raises ValueError where they cannot be read."""
    annotations = run.run_object.metadata.annotations
    text = annotations.get(DURATION)
    total = None
    if text is not None and not run.is_tree:
        total = parse_duration(text) * (run.shape.total if run.shape else 1)
    work = SimulatedWork(total, lost=int(annotations.get(LOST, "0")))
    if saved := annotations.get(DONE):
        (work.done, work.at), (work.started_with, work.started_at) = map(
            parse_point, saved.split(" since ", 1)
        )
    elif run.since is not None:
        work.at = work.started_at = run.since
    work.width = work_rate(run)
    work.attempt = run.attempt
    return work


def work_rate(run: RunState) -> int:
    """The GPU-milliseconds that a Run does in a millisecond: its width, or 1 for a Run without GPUs."""
    return run.width if run.shape is not None else int(run.phase == "Running")


def parse_point(text: str) -> tuple[int, int]:
    """The work done and its instant, from ``300@2026-01-05T00:00:00Z``."""
    done, _, at = text.partition("@")
    return int(done), parse_time(at)


def encode_work(work: SimulatedWork) -> str:
    """``300@… since 100@…``: the work done at an instant, and when the Run last started."""
    return f"{work.done}@{format_time(work.at)} since {work.started_with}@{format_time(work.started_at)}"
