"""Checks before every write whether this process may still write.

The gate is checked before each attempt of a write and again right before its first byte is sent, so that a
leader that was paused sends nothing. Once closed it stays closed. It counts the writes that the server
accepted and calls ``after_write`` with their number: the crash tests stop the process there.
"""

from collections.abc import Callable

from jobtree.kube.http.api_errors import FencedError


def _always() -> bool:
    return True


def _ignore(_: int) -> None:
    """Does nothing."""


class Gate:
    def __init__(
        self, may_write: Callable[[], bool] = _always, after_write: Callable[[int], None] = _ignore
    ) -> None:
        self.writes = 0
        self._may_write = may_write
        self._after_write = after_write
        self._closed = False

    def close(self) -> None:
        self._closed = True

    def check(self) -> None:
        """Raises FencedError if this process may not write. Called before a write."""
        if not self._closed and not self._may_write():
            self._closed = True
        if self._closed:
            raise FencedError("this process does not lead any more: nothing was written")

    def count_write(self) -> None:
        """Counts a write that the server accepted."""
        self.writes += 1
        self._after_write(self.writes)
