"""The funded Runs that wait for GPUs of each flavor, in creation order (R13).

Only the first ``promiseDepth`` of a line get a date. A Run that came too far back has a promise that is
``beyond_depth``: it holds nothing. A Run that no known event will make fundable is in no line (R9), so it
costs nobody a date. The line changes with each Run that comes, starts or goes; nothing is counted again.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import takewhile
from typing import NamedTuple

from jobtree.core.model.promise import CreationOrder, Promise
from jobtree.core.runs.run_state import RunState


class PlaceInLine(NamedTuple):
    """The place of a Run, counted from 1, and how many Runs wait for its flavor."""

    number: int
    of: int


class _Entry(NamedTuple):
    flavor: str
    beyond_depth: bool


class WaitingLine:
    def __init__(self) -> None:
        self._lines: dict[str, list[CreationOrder]] = {}
        self._beyond_depth: dict[
            str, list[CreationOrder]
        ] = {}  # of each line, the Runs without a date for it
        self._entries: dict[CreationOrder, _Entry] = {}

    def update(self, run: RunState) -> None:
        """Adds a Run to its line, or removes it, after its phase or its promise changed."""
        order, promise = run.creation_order, run.promise
        entry = None
        if run.waiting and may_be_funded(promise):
            entry = _Entry(run.flavor, promise is not None and promise.beyond_depth)
        if entry == self._entries.get(order):
            return
        self.remove(run)
        if entry is not None:
            self._entries[order] = entry
            insort(self._lines.setdefault(entry.flavor, []), order)
            if entry.beyond_depth:
                insort(self._beyond_depth.setdefault(entry.flavor, []), order)

    def remove(self, run: RunState) -> None:
        order = run.creation_order
        entry = self._entries.pop(order, None)
        if entry is None:
            return
        for line in (self._lines, self._beyond_depth) if entry.beyond_depth else (self._lines,):
            del line[entry.flavor][bisect_left(line[entry.flavor], order)]

    def is_beyond(self, run: RunState, depth: int) -> bool:
        """Whether at least so many funded Runs wait before this one."""
        return bisect_left(self._lines.get(run.flavor, ()), run.creation_order) >= depth

    def place(self, run: RunState) -> PlaceInLine | None:
        """Returns the place of a Run; None if it is in no line."""
        if run.creation_order not in self._entries:
            return None
        line = self._lines[run.flavor]
        return PlaceInLine(bisect_left(line, run.creation_order) + 1, len(line))

    def moved_up(self, depth: int) -> Iterator[CreationOrder]:
        """Yields the Runs without a date that are now among the first so many of their line."""
        for flavor, beyond_depth in self._beyond_depth.items():
            if len(self._lines[flavor]) > depth:
                end = self._lines[flavor][depth]
                yield from takewhile(end.__gt__, beyond_depth)
            else:
                yield from beyond_depth


def may_be_funded(promise: Promise | None) -> bool:
    """Whether a known event could make the Run of this promise fundable, by what the promise says (R9)."""
    return promise is None or promise.at is not None or bool(promise.funding) or promise.beyond_depth
