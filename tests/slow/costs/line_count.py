"""Counts the lines of Python that an event executes: the count is the same on every machine.

A row of the cost table is a function that prepares an event of a given size, and a bound. The event is
prepared in two sizes, the second four times the first, and the bound limits the ratio of the two counts. A
cost that does not depend on the size has the ratio 1, a linear cost about 4, a quadratic cost 16.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

Event = Callable[[], object]
Row = tuple[Callable[[int], Event], float]  # prepares an event of a size; the bound on the ratio

SMALL, LARGE = 4, 16
CONSTANT = 1.3  # the cost does not depend on the size
PARTLY_LINEAR = 2.2  # a part of the cost is proportional to the number of domains
IN_A_CROWD = 10  # the more Runs wait, the more promises each of them meets when it is considered again
LINEAR = 5.5  # more than 4 because of sorting
DRAWS = 9.0  # each draw reads the tickets that are left


def executed_lines(event: Event) -> int:
    """Returns the number of lines that run during an event; a line in a loop counts each time."""
    count = 0

    def trace(_frame: FrameType, kind: str, _argument: object) -> Any:  # noqa: ANN401  required by settrace
        nonlocal count
        count += kind == "line"
        return trace

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        event()
    finally:
        sys.settrace(previous)
    return count


def line_counts(prepare: Callable[[int], Event]) -> tuple[int, int]:
    """Returns the lines of a small event, and of one that is four times as large."""
    prepare(SMALL)()  # loads modules and fills caches that are not part of the cost
    return executed_lines(prepare(SMALL)), executed_lines(prepare(LARGE))
