"""Counts the lines of Python that an event executes: the same count on any machine, however busy it is.

A row of costs is a function that prepares an event of a size, with a bound. The event is prepared twice, the
second time four times as large, and the bound is on the ratio of the two counts: a cost that does not depend
on the size has the ratio 1, a linear one about 4, a quadratic one 16.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

Event = Callable[[], object]
Row = tuple[Callable[[int], Event], float]  # prepares an event of a size; the bound on the ratio

FEW, MANY = 4, 16
SAME = 1.3  # the cost does not depend on the size
SOME = 2.2  # a part of the cost depends on the number of domains
LINEAR = 5.5  # with some more for what is sorted
PER_DRAW = 9.0  # linear, and each draw reads the tickets that are left


def executed_lines(event: Event) -> int:
    """The lines that run during an event; a line in a loop counts each time."""
    count = 0

    def trace(_frame: FrameType, what: str, _argument: object) -> Any:  # noqa: ANN401  as sys.settrace has it
        nonlocal count
        count += what == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        event()
    finally:
        sys.settrace(before)
    return count


def counts(prepare: Callable[[int], Event]) -> tuple[int, int]:
    """The lines of a small event and of one that is four times as large."""
    prepare(FEW)()  # loads modules and fills caches that are not part of the cost
    return executed_lines(prepare(FEW)), executed_lines(prepare(MANY))
