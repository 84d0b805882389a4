"""Measure: nanoseconds of a call, and what a list of them says.

They are those that this thread had a processor: neighbours take time on the wall's clock, hardly on this one.

Before measuring, everything alive is collected once and then frozen, as a controller does after its start:
the collector stays on, and its passes over young objects count as part of what is measured.
"""

import gc
from collections.abc import Callable, Sequence
from time import thread_time_ns
from typing import TypeVar

NANOSECONDS_PER_MS = 1_000_000

Result = TypeVar("Result")


def settle_memory() -> None:
    """Collect what is dead, and keep what is alive out of later collections."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def timed(call: Callable[[], Result]) -> tuple[Result, int]:
    begin = thread_time_ns()
    result = call()
    return result, thread_time_ns() - begin


def percentile_ns(samples: Sequence[int], percent: int) -> int:
    """The smallest sample that so many percent do not exceed (nearest rank)."""
    ordered = sorted(samples)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def percentile_ms(samples: Sequence[int], percent: int) -> float:
    return percentile_ns(samples, percent) / NANOSECONDS_PER_MS
