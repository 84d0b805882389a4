"""The behavior of users and jobs that a trace does not contain.

The declared ``maxDuration`` is the true duration times a random factor (lognormal, median 2, at least 1),
rounded up to a usual limit. The factor of a job depends only on the seed and the row, so every scheduler gets
the same limits. A scheduler that needs an end assumes the longest duration of the trace if none is declared,
like the time limit of a partition.
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
    """The behavior of all jobs of a replay."""

    declares: Declares = "typical"
    checkpoint: int | None = 30 * MINUTE  # None: a stopped job starts over
    notice: bool = False  # saves its state when it is notified that it may be stopped (onNotice: Checkpoint)
    seed: int = 1
    restart_cost: int = 0  # a job that was stopped makes no progress for so long when it starts again

    def kept(self, ran: int) -> int:
        """Returns the part of a run time that survives a stop without notice."""
        return ran // self.checkpoint * self.checkpoint if self.checkpoint else 0


def declared(trace: Trace, behavior: UserBehavior) -> "array[int] | None":
    """Returns the maxDuration of every job; None if none is declared."""
    if behavior.declares == "none":
        return None
    if behavior.declares == "exact":
        return array("q", (duration + behavior.restart_cost for duration in trace.duration))
    return array(
        "q",
        (
            estimate(duration + behavior.restart_cost, Random(f"{behavior.seed}/{row}"))
            for duration, row in zip(trace.duration, trace.row, strict=True)
        ),
    )


def estimate(duration: int, random: Random) -> int:
    factor = max(1.0, MEDIAN * math.exp(random.gauss(0.0, SPREAD)))
    wanted = math.ceil(duration * factor)
    return next((limit for limit in LIMITS if limit >= wanted), -(-wanted // (30 * DAY)) * 30 * DAY)


def assumed_ends(trace: Trace, behavior: UserBehavior) -> "array[int]":
    """Returns the durations that a scheduler assumes: the declared ones, else the longest of the trace."""
    limits = declared(trace, behavior)
    if limits is not None:
        return limits
    longest = -(-max(trace.duration) // DAY) * DAY
    return array("q", [longest]) * len(trace)
