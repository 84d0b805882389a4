"""What waiting Runs were told, until they start. A start that is taken back at its own instant is none."""

from typing import Generic, TypeVar

from jobtree.core import RunKey

T = TypeVar("T")


class StartLog(Generic[T]):
    def __init__(self) -> None:
        self.told: dict[RunKey, T] = {}  # what those know that wait
        self._begun: dict[RunKey, tuple[T, int]] = {}  # at this instant, with what they knew

    def begin(self, run_key: RunKey, at: int) -> None:
        if run_key in self.told:
            self._begun[run_key] = (self.told.pop(run_key), at)

    def take_back(self, run_key: RunKey) -> None:
        """If it began at this very instant, it did not, after all."""
        if run_key in self._begun:
            self.told[run_key], _ = self._begun.pop(run_key)

    def close(self) -> list[tuple[T, int]]:
        """The instant is over: what began, and when."""
        begun, self._begun = list(self._begun.values()), {}
        return begun
