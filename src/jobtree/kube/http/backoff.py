"""Exponential backoff with random variation, so that many clients do not retry at once."""

from collections.abc import Callable
from random import SystemRandom

FIRST_SECONDS = 0.2
MOST_SECONDS = 15.0

_draw = SystemRandom().random


class Backoff:
    """Waits that double from 0.2 to 15 seconds, each shortened at random by up to half."""

    def __init__(self, draw: Callable[[], float] = _draw) -> None:
        self._draw = draw
        self._next = FIRST_SECONDS

    def reset(self) -> None:
        self._next = FIRST_SECONDS

    def seconds(self, at_least: float | None = None) -> float:
        """Returns the next wait. ``at_least`` is added to it: the Retry-After of the server."""
        wait = self._next * (1 - self._draw() / 2)
        self._next = min(self._next * 2, MOST_SECONDS)
        return wait if at_least is None else at_least + wait
