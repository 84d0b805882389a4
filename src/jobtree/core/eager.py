"""Runs of one flavor that may grow as soon as there is room and money.

Most of them were told why they cannot, and nothing has come of it since: they stand apart by the step they
would take, so that a small gain, which is less than their step, asks none of them.
"""

from collections.abc import Iterator

from jobtree.core.lease import RunKey


class Eager:
    __slots__ = ("_by_step", "_restless", "_steps")

    def __init__(self) -> None:
        self._restless: dict[RunKey, None] = {}  # to be asked whatever is gained
        self._steps: dict[RunKey, int] = {}  # of the others
        self._by_step: dict[int, dict[RunKey, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._restless or self._steps)

    def __iter__(self) -> Iterator[RunKey]:
        yield from self._restless
        yield from self._steps

    def __contains__(self, run: RunKey) -> bool:
        return run in self._restless or run in self._steps

    def add(self, run: RunKey) -> None:
        """It wants more, or something else than before."""
        self.discard(run)
        self._restless[run] = None

    def discard(self, run: RunKey) -> None:
        self._restless.pop(run, None)
        step = self._steps.pop(run, None)
        if step is not None:
            del self._by_step[step][run]
            if not self._by_step[step]:
                del self._by_step[step]

    def hear(self, run: RunKey, step: int | None) -> None:
        """It was told something else: that it lacks a step (None: anything but that)."""
        if run in self:
            self.add(run)
            if step is not None:
                del self._restless[run]
                self._steps[run] = step
                self._by_step.setdefault(step, {})[run] = None

    def within(self, gpus: int) -> Iterator[RunKey]:
        """Those who might use so many GPUs, or want something else than a step."""
        yield from self._restless
        for step, runs in self._by_step.items():
            if step <= gpus:
                yield from runs
