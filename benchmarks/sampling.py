"""Measures the nanoseconds of a call, and computes percentiles.

Only the CPU time of the thread counts, so other processes disturb a measurement little.

Before a measurement, all garbage is collected and the live objects are frozen, as the manager does after its
start. The collector stays on, and its collections of young objects are part of the measurement.
"""

import gc
from collections.abc import Callable, Sequence
from time import thread_time_ns
from typing import TypeVar

NANOSECONDS_PER_MS = 1_000_000

Result = TypeVar("Result")


def settle_memory() -> None:
    """Collects garbage, and excludes live objects from later collections."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def timed(call: Callable[[], Result]) -> tuple[Result, int]:
    begin = thread_time_ns()
    result = call()
    return result, thread_time_ns() - begin


def percentile_ns(samples: Sequence[int], percent: int) -> int:
    """Returns the smallest sample that ``percent`` of the samples do not exceed (nearest rank)."""
    ordered = sorted(samples)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def percentile_ms(samples: Sequence[int], percent: int) -> float:
    return percentile_ns(samples, percent) / NANOSECONDS_PER_MS
