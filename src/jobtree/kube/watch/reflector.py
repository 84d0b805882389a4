"""Keeping a store up to date from the event loop, through dropped, half-open and refused connections.

A watch knows how old its news is (``silent_seconds``) and what troubles it (``trouble``): a manager that
plans on old news must not call itself ready. One kind that may not be read, or is not there, does not stop
the others.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from jobtree.kube.http.api_errors import KubeError
from jobtree.kube.http.async_client import converse_async
from jobtree.kube.http.line_cutter import LineCutter
from jobtree.kube.http.transport import AsyncTransport
from jobtree.kube.watch.watch_protocol import SILENCE_SECONDS, WatchProtocol


class Reflector:
    def __init__(
        self,
        transport: AsyncTransport,
        follow: WatchProtocol,
        *,
        silence_seconds: float = SILENCE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.resource = follow.resource
        self.trouble: KubeError | None = None
        self._transport = transport
        self._follow = follow
        self._silence_seconds = silence_seconds
        self._clock = clock
        self._sleep = sleep
        self._last_news = clock()

    def silent_seconds(self) -> float:
        """How long ago the server last said anything about this kind."""
        return self._clock() - self._last_news

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self._once()
                self.trouble = None
            except KubeError as trouble:
                self.trouble = trouble
            await self._sleep(self._follow.pause(self.trouble))

    async def _once(self) -> None:
        """A listing, if one is needed, and one watch to its end."""
        if self._follow.must_list:
            await converse_async(self._transport, self._follow.list_pages())
        cutter = LineCutter()
        stream = self._transport.stream(self._follow.next_watch(), self._silence_seconds)
        async with aclosing(stream):
            async for chunk in stream:
                self._last_news = self._clock()
                self.trouble = None
                for line in cutter.feed(chunk):
                    self._follow.take(line)
