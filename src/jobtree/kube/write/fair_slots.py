"""Lets a limited number of writes be under way at once; flows that wait get free slots in turn.

A flow is the writes of one kind in one namespace. A namespace with thousands of writes to come delays the
write of another one until each of its few flows has had a slot, and no longer (H4).
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairSlots:
    def __init__(self, slots: int) -> None:
        self._free = slots
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # by flow, the next one first

    @asynccontextmanager
    async def slot(self, flow: str) -> AsyncIterator[None]:
        """Waits for a slot and holds it."""
        await self._acquire(flow)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, flow: str) -> None:
        if self._free:
            self._free -= 1
            return
        granted = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(flow, deque()).append(granted)
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self._release()
            raise

    def _release(self) -> None:
        """Gives the slot to the flow that is next, which then goes behind all others."""
        while self._waiting:
            flow = next(iter(self._waiting))
            queue = self._waiting.pop(flow)
            granted = queue.popleft()
            if queue:
                self._waiting[flow] = queue
            if not granted.done():
                granted.set_result(None)
                return
        self._free += 1
