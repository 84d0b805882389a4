"""Counting what comes, as it comes.

Asking the server how many objects there are makes it go through all of them: twenty times a second that would
be a tenth of what is measured. A watch costs it one more copy of what it sends to the manager anyway.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec

from benchmarks.live.client import Client
from jobtree.kube.http.api_requests import Selector
from jobtree.kube.http.api_resources import Resource
from jobtree.kube.watch.object_store import Encoded, ObjectHead
from jobtree.kube.watch.reflector import Reflector
from jobtree.kube.watch.watch_protocol import WatchProtocol

BOUND = b'"nodeName":"'  # part of a pod that has its node

_decode_head = msgspec.json.Decoder(ObjectHead).decode


class Arrivals:
    """Told by a watch: objects that hold ``part``, as bytes. One that goes again has come all the same."""

    def __init__(self, part: bytes) -> None:
        self.listed = asyncio.Event()
        self._part = part
        self._seen: set[str] = set()

    def __len__(self) -> int:
        return len(self._seen)

    def restart(self) -> None:
        """What came before came only once."""

    def upsert(self, encoded: Encoded) -> str:
        metadata = _decode_head(encoded).metadata
        if self._part in bytes(encoded):
            self._seen.add(metadata.uid)
        return metadata.resource_version

    def delete(self, encoded: Encoded) -> str:
        return _decode_head(encoded).metadata.resource_version

    def finish(self) -> None:
        self.listed.set()


@asynccontextmanager
async def arrivals(
    client: Client, resource: Resource, namespace: str = "", part: bytes = b""
) -> AsyncIterator[Arrivals]:
    """All objects of a kind, of now and from now on."""
    seen = Arrivals(part)
    watch = Reflector(client.transport, WatchProtocol(resource, seen, Selector(namespace)))
    watching = asyncio.ensure_future(watch.run())
    try:
        await seen.listed.wait()
        yield seen
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
