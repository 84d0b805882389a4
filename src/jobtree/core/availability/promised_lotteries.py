"""Which instants promised lotteries leave for others (R4).

A lottery makes everybody immune for ``peace`` who has a ticket and does not lose. So until that time is over
nobody can be drawn who could be drawn at the instant of a promised lottery, but only who could not be drawn
yet. And no lottery is promised so shortly before another that it would leave nobody to draw from.
"""

from bisect import bisect_right
from collections.abc import Iterable


class PromisedLotteries:
    """The lotteries that are promised in one domain."""

    __slots__ = ("_instants", "_peace_ms")

    def __init__(self, instants: Iterable[int], peace_ms: int) -> None:
        self._instants = sorted(set(instants)) if peace_ms else []
        self._peace_ms = peace_ms

    def peace_since(self, at: int) -> int | None:
        """Returns an instant: who could be drawn by then cannot be drawn at ``at``. None: anybody can.

        It is ``at`` itself, so that nobody can be drawn, if another lottery follows within ``peace``.
        """
        index = bisect_right(self._instants, at)
        if index < len(self._instants) and self._instants[index] - at < self._peace_ms:
            return at
        if index and at - self._instants[index - 1] < self._peace_ms:
            return self._instants[index - 1]
        return None

    def change_instants(self) -> list[int]:
        """Returns the instants at which these lotteries change who can be drawn, in any order."""
        peace = self._peace_ms
        return [change for at in self._instants for change in (at - peace + 1, at, at + peace)]
