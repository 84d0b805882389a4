"""The one door through which every write goes.

The gate asks, before each write and again right before its first byte leaves, whether this process may still
write: a leader that was paused finds it closed before anything leaves. Once found closed it stays closed. It
counts the writes that the server accepted and tells how many there were after each: the tests of crash safety
stop the process there.
"""

from collections.abc import Callable

from jobtree.kube.http.api_errors import FencedError


def _always() -> bool:
    return True


def _nobody(_: int) -> None:
    """Nobody wants to be told."""


class Gate:
    def __init__(
        self, may_write: Callable[[], bool] = _always, after_write: Callable[[int], None] = _nobody
    ) -> None:
        self.writes = 0
        self._may_write = may_write
        self._after_write = after_write
        self._closed = False

    def close(self) -> None:
        self._closed = True

    def check(self) -> None:
        """Before a write. Raises FencedError."""
        if not self._closed and not self._may_write():
            self._closed = True
        if self._closed:
            raise FencedError("this process does not lead any more: nothing was written")

    def count_write(self) -> None:
        """After a write that the server accepted."""
        self.writes += 1
        self._after_write(self.writes)
