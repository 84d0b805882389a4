"""What users say about their jobs, and what their jobs can do, where a trace does not tell.

``maxDuration`` is declared as people do it: the true duration times an overestimate (lognormal, median 2,
never below 1), rounded up to a limit that people type. Each job's draw depends on the seed and its row
alone, so every scheduler is told the same. A scheduler that needs an end and is told none counts on the
longest that the trace allows, as a partition's time limit does.
"""

import math
from array import array
from random import Random
from typing import Literal

import msgspec

from jobtree.api.schema.quantities import DAY, HOUR, MINUTE
from jobtree.simulation.inputs.job_trace import Trace

Declares = Literal["none", "exact", "typical"]

MEDIAN, SPREAD = 2.0, 0.8
LIMITS = (
    *(count * MINUTE for count in (5, 10, 15, 30)),
    *(count * HOUR for count in (1, 2, 3, 4, 6, 8, 12, 18, 24, 36, 48, 72, 96, 120)),
    *(count * DAY for count in (7, 10, 14, 21, 30, 45, 60, 90, 120, 180, 365)),
)


class UserBehavior(msgspec.Struct, frozen=True):
    """How all jobs of a replay behave."""

    declares: Declares = "typical"
    checkpoint: int | None = 30 * MINUTE  # None: a stopped job starts over
    notice: bool = False  # saves its state when told that it may be stopped (onNotice: Checkpoint)
    seed: int = 1

    def kept(self, ran: int) -> int:
        """How much of what ran survives a stop without notice."""
        return ran // self.checkpoint * self.checkpoint if self.checkpoint else 0


def declared(trace: Trace, behavior: UserBehavior) -> "array[int] | None":
    """The maxDuration of every job; None where nobody declares one."""
    if behavior.declares == "none":
        return None
    if behavior.declares == "exact":
        return array("q", trace.duration)
    return array(
        "q",
        (
            estimate(duration, Random(f"{behavior.seed}/{row}"))
            for duration, row in zip(trace.duration, trace.row, strict=True)
        ),
    )


def estimate(duration: int, random: Random) -> int:
    factor = max(1.0, MEDIAN * math.exp(random.gauss(0.0, SPREAD)))
    wanted = math.ceil(duration * factor)
    return next((limit for limit in LIMITS if limit >= wanted), -(-wanted // (30 * DAY)) * 30 * DAY)


def assumed_ends(trace: Trace, behavior: UserBehavior) -> "array[int]":
    """What a scheduler counts on: what is declared, else the longest that the trace allows."""
    limits = declared(trace, behavior)
    if limits is not None:
        return limits
    longest = -(-max(trace.duration) // DAY) * DAY
    return array("q", [longest]) * len(trace)
