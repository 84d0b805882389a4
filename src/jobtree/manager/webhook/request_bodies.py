"""Reads the bodies of requests, with a limit on all bodies that are in memory together.

A body of some size gets room for all of it before it is read, and keeps that until its request is answered.
If there is no room, the body waits, the newest first, and bodies that have been read for longer than
``PATIENCE_SECONDS`` are given up: an API server sends a body at once, and a slow client holds up nobody.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web

from jobtree.manager.webhook.tls_listener import READ_SECONDS

MAX_BYTES = 8 * 2**20  # of one body: more than an object before and after a change
MAX_BYTES_TOGETHER = 4 * MAX_BYTES
SMALL_BYTES = 64 * 2**10  # the server has read as much before a request begins, for every connection
PATIENCE_SECONDS = 0.5
POLL_SECONDS = 0.05


@dataclass(eq=False)
class Body:
    """A body that waits for room or is read. ``limit`` ends its reading, which began at ``began``."""

    size: int  # that needs room; 0 for a small body
    held: int = 0
    began: float = 0.0
    limit: asyncio.Timeout | None = None


class RequestBodies:
    def __init__(self) -> None:
        self.held_bytes = 0
        self._max_bytes = MAX_BYTES_TOGETHER
        self._read_seconds = READ_SECONDS
        self._patience_seconds = PATIENCE_SECONDS
        self._waiting: list[Body] = []
        self._reading: list[Body] = []

    @asynccontextmanager
    async def read(self, request: web.Request) -> AsyncIterator[bytes]:
        """Reads a body, which is counted until the context ends. Raises web.HTTPException."""
        size = request.content_length
        if size is None:
            raise web.HTTPLengthRequired(text="Content-Length is missing\n")
        if size > MAX_BYTES:
            raise web.HTTPRequestEntityTooLarge(MAX_BYTES, size)
        body = Body(size if size > SMALL_BYTES else 0)
        try:
            yield await self._read_in_time(request, body)
        finally:
            self.held_bytes -= body.held

    async def _read_in_time(self, request: web.Request, body: Body) -> bytes:
        try:
            async with asyncio.timeout(self._read_seconds) as body.limit:
                if body.size:
                    await self._wait_for_room(body)
                return await self._read(request, body)
        except TimeoutError:
            raise web.HTTPRequestTimeout(text="the body did not arrive in time\n") from None

    async def _wait_for_room(self, body: Body) -> None:
        self._waiting.append(body)
        try:
            while self._waiting[-1] is not body or self.held_bytes + body.size > self._max_bytes:
                self._end_slow_bodies()
                await asyncio.sleep(POLL_SECONDS)
        finally:
            self._waiting.remove(body)
        body.held = body.size
        self.held_bytes += body.held

    async def _read(self, request: web.Request, body: Body) -> bytes:
        body.began = asyncio.get_running_loop().time()
        self._reading.append(body)
        try:
            return await request.read()
        finally:
            self._reading.remove(body)

    def _end_slow_bodies(self) -> None:
        now = asyncio.get_running_loop().time()
        for body in self._reading:
            if body.held and body.limit is not None and body.began + self._patience_seconds <= now:
                body.limit.reschedule(now)
