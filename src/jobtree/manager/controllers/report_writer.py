"""Writes what follows from decisions beside the control loop: Reservations, statuses, Budgets.

No decision waits for a report (H4), and reports are written a batch at a time. What turns add while a batch
is written waits for the next batch; the latest report of an object replaces the one that waits.

An older report must not follow a decision that the object holds. So before a Reservation is written as a
commit point, its waiting report is dropped and the present batch awaited. The status of a Run is written to
the version that it was planned from, so an older one is refused.
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from jobtree.core import RunKey
from jobtree.kube.http.api_errors import FencedError, KubeError
from jobtree.manager.decisions.write_set import WriteSet

WriteBatch = Callable[[WriteSet], Awaitable[None]]


class ReportWriter:
    """``write`` writes the reports of a write set; ``done`` is called after each batch."""

    def __init__(self, write: WriteBatch, done: Callable[[], None]) -> None:
        self._write = write
        self._done = done
        self._waiting = WriteSet()
        self._task: asyncio.Task[None] | None = None
        self._error: KubeError | None = None

    @property
    def is_busy(self) -> bool:
        return self._task is not None

    @property
    def has_error(self) -> bool:
        return self._error is not None

    def add(self, write_set: WriteSet) -> None:
        """Begins to write the reports of a write set now, or with the next batch."""
        self._waiting = merged(self._waiting, write_set)
        self._begin()

    async def settle(self, reservations: set[RunKey]) -> None:
        """Drops the waiting reports of these Reservations and awaits the present batch."""
        left = tuple(write for write in self._waiting.reservations if write.key not in reservations)
        self._waiting = msgspec.structs.replace(self._waiting, reservations=left)
        await self._await_batch()

    async def forget(self) -> None:
        """Drops all waiting reports and awaits the present batch: the model is built again."""
        self._waiting = WriteSet()
        await self._await_batch()
        self._error = None

    async def drain(self) -> None:
        while self.is_busy:
            await self._await_batch()

    def fail(self, error: KubeError) -> None:
        """Has the next turn raise an error of something that is written beside the loop."""
        self._error = error
        self._done()

    def raise_error(self) -> None:
        """Raises the error that ended a batch, once; one that only an object caused does not end it."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    async def _await_batch(self) -> None:
        task = self._task
        if task is not None:
            await asyncio.wait([task])

    def _begin(self) -> None:
        if self._task is None and self._waiting != WriteSet():
            self._task = asyncio.ensure_future(self._write_waiting())

    async def _write_waiting(self) -> None:
        batch, self._waiting = self._waiting, WriteSet()
        try:
            await self._write(batch)
        except KubeError as error:
            self._error = error
            if isinstance(error, FencedError):
                self._waiting = WriteSet()
        finally:
            self._task = None
            self._done()
            self._begin()


def merged(first: WriteSet, second: WriteSet) -> WriteSet:
    """Returns the reports of both; of two reports of one object the second."""
    return WriteSet(
        reservations=tuple(
            {write.key: write for write in (*first.reservations, *second.reservations)}.values()
        ),
        reservations_to_delete=tuple(
            {
                seen.metadata.uid: seen
                for seen in (*first.reservations_to_delete, *second.reservations_to_delete)
            }.values()
        ),
        reservations_to_keep=tuple(
            dict.fromkeys((*first.reservations_to_keep, *second.reservations_to_keep))
        ),
        statuses=tuple({write.uid: write for write in (*first.statuses, *second.statuses)}.values()),
        budgets=tuple((dict(first.budgets) | dict(second.budgets)).items()),
        runs_without_finalizer=tuple(
            {
                run.metadata.uid: run
                for run in (*first.runs_without_finalizer, *second.runs_without_finalizer)
            }.values()
        ),
    )
