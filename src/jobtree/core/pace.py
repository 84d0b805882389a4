"""Pace: how fast those move on who wait for the same payers, one behind the other.

Who stands far back in a long line waits for as long as the line takes to come to it. How fast it moves is
read from those at its head: the straight line through all their waits, by the GPUs that start up to each.
"""

from collections.abc import Sequence

from jobtree.core.books import FOREVER
from jobtree.core.lifetimes import COURSES


class Pace:
    def __init__(self) -> None:
        self.gpus = 0  # of all who stand in it
        self.played = 0  # those at its head whose waits are known
        self._products = [0] * COURSES  # of the GPUs up to a Run and its wait, in every course
        self._squares = [0] * COURSES  # of the GPUs up to it

    def join(self, gpus: int) -> int:
        """One more stands in line: the GPUs that start up to it."""
        self.gpus += gpus
        return self.gpus

    def note(self, gpus: int, waits: Sequence[int]) -> None:
        """How long one at its head waits, in every course, with so many GPUs up to it."""
        self.played += 1
        for number, wait in enumerate(waits):
            if wait < FOREVER:
                self._products[number] += gpus * wait
                self._squares[number] += gpus * gpus

    def waits(self, gpus: int) -> list[int]:
        """How long one waits with so many GPUs up to it, in every course that says so."""
        sums = zip(self._products, self._squares, strict=True)
        return [gpus * product // square for product, square in sums if square]
