"""The library for programs with an event loop: ``await jobtree.aio.runs()``.

Everything is the blocking function in a thread, so there is one implementation.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import wraps
from typing import ParamSpec, Self, TypeVar

from jobtree.client import library
from jobtree.client.run import Run, Until

P = ParamSpec("P")
T = TypeVar("T")


def in_thread(function: Callable[P, T]) -> Callable[P, Awaitable[T]]:
    """Returns a function that can be awaited: the same one in a thread."""

    @wraps(function)
    async def call(*arguments: P.args, **options: P.kwargs) -> T:
        return await asyncio.to_thread(function, *arguments, **options)

    return call


run = in_thread(library.run)
runs = in_thread(library.runs)
budgets = in_thread(library.budgets)
reservations = in_thread(library.reservations)
leases = in_thread(library.leases)
plan = in_thread(library.plan)
submit = in_thread(library.submit)
timeline = in_thread(library.timeline)


class AsyncRun:
    """A Run whose methods can be awaited; ``run`` is the Run itself."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.plan = in_thread(run.plan)
        self.submit = in_thread(run.submit)
        self.refresh = in_thread(run.refresh)
        self.explain = in_thread(run.explain)
        self.shrink = in_thread(run.shrink)
        self.grow = in_thread(run.grow)
        self.cancel = in_thread(run.cancel)

    async def wait(self, until: Until = "Running", timeout: float | str | None = None) -> Self:  # noqa: ASYNC109
        """Waits as Run.wait does; a cancelled task ends the wait within seconds."""
        stop = threading.Event()
        try:
            await asyncio.to_thread(self.run.wait, until, timeout, stop=stop)
        finally:
            stop.set()
        return self

    async def logs(self, rank: int = 0, *, follow: bool = False, container: str = "") -> AsyncIterator[str]:
        """Yields the lines of a rank's log as they come."""
        async for line in lines_from_thread(self.run.logs(rank, follow=follow, container=container)):
            yield line


async def lines_from_thread(lines: Iterator[str]) -> AsyncIterator[str]:
    """Reads lines in a thread of their own, which does not keep the program from ending."""
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[str | Exception | None]()
    stop = threading.Event()

    def put(item: str | Exception | None) -> None:
        if not stop.is_set():
            loop.call_soon_threadsafe(queue.put_nowait, item)

    def read() -> None:
        try:
            for line in lines:
                if stop.is_set():
                    return
                put(line)
            put(None)
        except Exception as error:  # noqa: BLE001  raised again where the lines are read
            put(error)

    threading.Thread(target=read, daemon=True).start()
    try:
        while (item := await queue.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item
    finally:
        stop.set()
