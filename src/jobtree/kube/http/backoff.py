"""How long to wait before asking again: twice as long each time, never in step with others."""

from collections.abc import Callable
from random import SystemRandom

FIRST_SECONDS = 0.2
MOST_SECONDS = 15.0

_draw = SystemRandom().random


class Backoff:
    """Waits of 0.2 to 15 seconds, each shortened by up to half: many clients do not return at once."""

    def __init__(self, draw: Callable[[], float] = _draw) -> None:
        self._draw = draw
        self._next = FIRST_SECONDS

    def reset(self) -> None:
        self._next = FIRST_SECONDS

    def seconds(self, at_least: float | None = None) -> float:
        """The next wait. A server that says when to come again (``at_least``) is not asked sooner."""
        wait = self._next * (1 - self._draw() / 2)
        self._next = min(self._next * 2, MOST_SECONDS)
        return wait if at_least is None else at_least + wait
