"""The clock of planning: it never goes back, and never stands before an instant that is written on an object.

A system clock that was ahead and is corrected would let leases of one slot overlap and hours become negative.
So while instants on objects lie in the future, planning time runs at half speed until the system clock has
caught up: whatever waits for an instant still happens, and time that was charged too much is charged less.
"""

from collections.abc import Callable

Milliseconds = Callable[[], int]


class PlanningClock:
    """``system`` is the system clock, ``elapsed`` a clock that is never set; both in ms."""

    def __init__(self, system: Milliseconds, elapsed: Milliseconds) -> None:
        self._system = system
        self._elapsed = elapsed
        self._base = (system(), elapsed())  # planning time, and elapsed time, when half speed began

    def now(self) -> int:
        """Returns the planning time in ms since the epoch."""
        system, elapsed = self._system(), self._elapsed()
        began_at, began = self._base
        slow = began_at + (elapsed - began) // 2
        if system < slow:
            return slow
        self._base = (system, elapsed)
        return system

    def ahead(self) -> int:
        """Returns by how many ms planning time is ahead of the system clock."""
        return max(0, self.now() - self._system())

    def raise_to(self, instant: int) -> None:
        """Goes on from an instant that is written on an object, if it lies in the future."""
        if instant > self.now():
            self._base = (instant, self._elapsed())
