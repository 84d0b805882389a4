"""Keeps the objects of one kind up to date in the event loop, by list and watch, whatever connections fail.

A reflector knows how long the server was silent (``silent_seconds``) and its last error (``error``): a
manager that plans on old data must not report itself ready. An error of one kind does not stop the others.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from jobtree.kube.http.api_errors import KubeError
from jobtree.kube.http.async_client import send_all_async
from jobtree.kube.http.line_cutter import LineCutter
from jobtree.kube.http.transport import AsyncTransport
from jobtree.kube.watch.watch_protocol import SILENCE_SECONDS, WatchProtocol


class Reflector:
    def __init__(
        self,
        transport: AsyncTransport,
        protocol: WatchProtocol,
        *,
        silence_seconds: float = SILENCE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.resource = protocol.resource
        self.error: KubeError | None = None
        self._transport = transport
        self._protocol = protocol
        self._silence_seconds = silence_seconds
        self._clock = clock
        self._sleep = sleep
        self._last_news = clock()

    def silent_seconds(self) -> float:
        """Returns how long ago the server last sent anything about this kind."""
        return self._clock() - self._last_news

    async def run(self) -> None:
        """Lists and watches until cancelled."""
        while True:
            try:
                await self._watch_once()
                self.error = None
            except KubeError as error:
                self.error = error
            await self._sleep(self._protocol.pause(self.error))

    async def _watch_once(self) -> None:
        """Lists if needed, then reads one watch to its end."""
        if self._protocol.must_list:
            await send_all_async(self._transport, self._protocol.list_pages())
        cutter = LineCutter()
        stream = self._transport.stream(self._protocol.next_watch(), self._silence_seconds)
        async with aclosing(stream):
            async for chunk in stream:
                self._last_news = self._clock()
                self.error = None
                for line in cutter.feed(chunk):
                    self._protocol.apply_line(line)
