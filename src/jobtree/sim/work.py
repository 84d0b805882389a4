"""How far a simulated Run has come with its work.

Annotation ``duration`` says how long the work takes at ``totalGPUs``; a narrower Run takes longer in
proportion. Work is counted in GPU-milliseconds. A Run that has to start again goes on from its last
checkpoint; without one it starts over.
"""

import msgspec

from jobtree.api.meta import SIM_GROUP
from jobtree.api.quantities import format_time, parse_duration, parse_time
from jobtree.core.runs import RunState

DURATION = f"{SIM_GROUP}/duration"
DONE = f"{SIM_GROUP}/done"


class Work(msgspec.Struct):
    """Work of one Run: all of it, what was done by an instant, and at what width it goes on."""

    total: int | None  # None: it runs until somebody completes it
    done: int = 0
    at: int = 0
    width: int = 0
    started_with: int = 0  # what was done when this admission began
    started_at: int = 0

    def progress(self, now: int) -> int:
        return self.done + self.width * (now - self.at)

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

    def stop(self, now: int, checkpoint: int | None) -> None:
        """The Run was stopped: what it did since its last checkpoint is lost."""
        if not self.width:
            return  # it was started and stopped at one instant: nothing was done, so nothing is lost
        kept = self.started_with
        if checkpoint and now > self.started_at:
            ran = now - self.started_at
            saved = ran // checkpoint * checkpoint
            kept += (self.progress(now) - self.started_with) * saved // ran
        self.done, self.at, self.width = kept, now, 0


def read_work(state: RunState) -> Work:
    """The work of a Run as its annotations tell it. Raises ValueError where they cannot be read."""
    annotations = state.run.metadata.annotations
    text = annotations.get(DURATION)
    total = None
    if text is not None and state.shape is not None:
        total = parse_duration(text) * state.shape.total
    work = Work(total)
    if saved := annotations.get(DONE):
        (work.done, work.at), (work.started_with, work.started_at) = map(point, saved.split(" since ", 1))
    elif state.since is not None:
        work.at = work.started_at = state.since
    work.width = state.width
    return work


def point(text: str) -> tuple[int, int]:
    done, _, at = text.partition("@")
    return int(done), parse_time(at)


def written(work: Work) -> str:
    """``300@… since 100@…``: GPU-milliseconds done by an instant, and when this admission began."""
    return f"{work.done}@{format_time(work.at)} since {work.started_with}@{format_time(work.started_at)}"
