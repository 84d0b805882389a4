"""A client with the same transport, writer and number of parallel writes as the manager."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from jobtree.kube.auth.cluster_access import find_access
from jobtree.kube.http.api_requests import Request
from jobtree.kube.http.api_resources import Resource
from jobtree.kube.http.async_transport import PooledTransport
from jobtree.kube.write.object_writer import Writer
from jobtree.kube.write.write_gate import Gate

T = TypeVar("T")
Document = dict[str, Any]

POLL_SECONDS = 0.05
LIST_SECONDS = 3.0  # between two looks at everything there is, which costs the server as much as many writes
BLOCK = 500  # tasks that wait at once: more would measure the event loop


class Client:
    def __init__(self, transport: PooledTransport) -> None:
        self.transport = transport
        self.writer = Writer(transport, Gate())

    async def get(self, target: str) -> Document:
        document: Document = msgspec.json.decode(await self.transport.send(Request("GET", target)))
        return document

    async def items(self, resource: Resource, namespace: str = "") -> list[Document]:
        items: list[Document] = (await self.get(resource.path(namespace)))["items"]
        return items

    async def count(self, resource: Resource, namespace: str = "", query: str = "") -> int:
        """Returns the number of objects, from a list with a limit of one; wrong with a selector."""
        page = await self.get(f"{resource.path(namespace)}?limit=1{query}")
        return len(page["items"]) + int(page["metadata"].get("remainingItemCount", 0))

    async def write(self, request: Request) -> Document:
        document: Document = msgspec.json.decode(await self.writer.write(request))
        return document

    async def write_all(self, requests: Iterable[Request]) -> None:
        await in_blocks(self.writer.write(request) for request in requests)

    async def clear(self, resource: Resource, namespace: str = "") -> None:
        """Deletes all objects of a kind, without a grace period."""
        options = b'{"apiVersion":"v1","kind":"DeleteOptions","gracePeriodSeconds":0}'
        await self.writer.write(Request("DELETE", resource.path(namespace), options))

    async def until(
        self, condition: Callable[[], Awaitable[bool]], what: str, within: float, every: float = POLL_SECONDS
    ) -> None:
        """Waits until ``condition()`` is true. Raises TimeoutError with ``what`` did not happen."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        while not await condition():
            if loop.time() > deadline:
                raise TimeoutError(f"after {within:g} s, still not: {what}")
            await asyncio.sleep(every)


async def in_blocks(doings: Iterable[Awaitable[T]], seconds: float = math.inf) -> int:
    """All of them, or as many as are begun in time; as many at once as the writer lets through.

    How many were done when the time was over.
    """
    turns, rest, tasks, done = asyncio.Semaphore(BLOCK), iter(doings), list[asyncio.Future[None]](), 0
    deadline = asyncio.get_running_loop().time() + seconds

    def is_late() -> bool:
        return asyncio.get_running_loop().time() > deadline

    async def one(doing: Awaitable[T]) -> None:
        nonlocal done
        try:
            await doing
            done += not is_late()
        finally:
            turns.release()

    while True:
        await turns.acquire()
        doing = None if is_late() else next(rest, None)
        if doing is None:
            break
        tasks.append(asyncio.ensure_future(one(doing)))
    await asyncio.gather(*tasks)
    return done


@asynccontextmanager
async def connect(kubeconfig: Path) -> AsyncIterator[Client]:
    transport = PooledTransport(find_access("", str(kubeconfig)))
    try:
        yield Client(transport)
    finally:
        await transport.close()
