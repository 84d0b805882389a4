"""Keeps the expected starts that waiting Runs were given, until they start."""

from typing import Generic, TypeVar

from jobtree.core import RunKey

T = TypeVar("T")


class StartLog(Generic[T]):
    """Forecasts or promises by Run; a start that is undone at its own instant does not count."""

    def __init__(self) -> None:
        self.waiting: dict[RunKey, T] = {}
        self._started: dict[RunKey, tuple[T, int]] = {}  # at this instant

    def record_start(self, run_key: RunKey, at: int) -> None:
        if run_key in self.waiting:
            self._started[run_key] = (self.waiting.pop(run_key), at)

    def undo_start(self, run_key: RunKey) -> None:
        """Undoes a start of this same instant."""
        if run_key in self._started:
            self.waiting[run_key], _ = self._started.pop(run_key)

    def close_instant(self) -> list[tuple[T, int]]:
        """Returns the Runs that started at this instant, each with its start."""
        started, self._started = list(self._started.values()), {}
        return started
