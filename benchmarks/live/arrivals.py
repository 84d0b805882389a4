"""Counts objects with a watch while they are created.

To list them twenty times a second would cost the server a tenth of what is measured. A watch costs one more
copy of what the server sends to the manager anyway.
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
    """The objects of a watch whose bytes contain ``part``; deleted objects still count."""

    def __init__(self, part: bytes) -> None:
        self.listed = asyncio.Event()
        self._part = part
        self._seen: set[str] = set()

    def __len__(self) -> int:
        return len(self._seen)

    def restart(self) -> None:
        """Starts a new list; objects that were counted before are not counted again."""

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
    """Counts all objects of a kind that exist or are created."""
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
