"""Sends writes to the API server: a limited number at once, fair to namespaces, repeated where that can help.

* After a broken connection, and when the server is busy or has an error (429, 5xx), a write is sent again
  after a wait, which is at least the Retry-After.
* After a conflict (409) a write is not sent again, since the object that it was decided from has changed.
  ``rewrite`` calls a function that reads and decides again; other callers drop the write and plan again.
* A write without a response may have happened. The name of an object is always the same for the same
  purpose. So if ``create`` finds an object of that name with all wanted fields, the object counts as created.
  A deletion is done when the object with that UID is gone, even if another client deleted it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from jobtree.kube.http import api_requests
from jobtree.kube.http.api_errors import NOT_FOUND, StatusError, UnreachableError
from jobtree.kube.http.api_requests import ObjectBody, Preconditions, Request
from jobtree.kube.http.api_resources import Resource
from jobtree.kube.http.backoff import Backoff
from jobtree.kube.http.transport import AsyncTransport
from jobtree.kube.watch.object_store import ObjectHead
from jobtree.kube.write.fair_slots import FairSlots
from jobtree.kube.write.write_gate import Gate

AT_ONCE = 64
PATIENCE_SECONDS = 60.0  # while there is no answer
BUSY_PATIENCE_SECONDS = 1.5  # while the server answers that it is busy: it may mean this object alone
REWRITES = 8


class Writer:
    """Sends the writes of the manager, all through one gate."""

    def __init__(
        self,
        transport: AsyncTransport,
        gate: Gate,
        *,
        at_once: int = AT_ONCE,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._transport = transport
        self._gate = gate
        self._slots = FairSlots(at_once)
        self._clock = clock
        self._sleep = sleep

    async def write(self, request: Request, busy_patience: float = BUSY_PATIENCE_SECONDS) -> bytes:
        """Sends a write until it succeeds, is refused, or the patience is over. Returns the object.

        ``busy_patience`` is in seconds; 0: a server that is busy is not asked again.

        Raises StatusError, UnreachableError, FencedError.
        """
        backoff, began = Backoff(), self._clock()
        while True:
            try:
                return await self._attempt(request)
            except UnreachableError as error:
                last_error: UnreachableError | StatusError = error
                wait, patience = backoff.seconds(), PATIENCE_SECONDS
            except StatusError as error:
                if not error.is_passing:
                    raise
                last_error = error
                wait, patience = backoff.seconds(error.retry_after_seconds), busy_patience
            if self._clock() + wait > began + patience:
                raise last_error
            await self._sleep(wait)

    async def read(self, request: Request) -> bytes:
        """Reads an object from the server, not from a store. Raises StatusError, UnreachableError."""
        return await self._transport.send(request)

    async def create(self, resource: Resource, document: ObjectBody) -> bytes:
        """Creates and returns an object, or returns the existing one if it has all fields of ``document``."""
        try:
            return await self.write(api_requests.create(resource, document))
        except StatusError as error:
            if not error.exists_already:
                raise
            metadata = document["metadata"]
            existing = await self._transport.send(
                api_requests.get(resource, metadata["name"], metadata.get("namespace", ""))
            )
            if not is_same(msgspec.json.decode(existing), document):
                raise
            return existing

    async def delete(self, resource: Resource, seen: Preconditions, grace_seconds: int | None = None) -> None:
        """Deletes the object with this UID; returns when it is gone or being deleted.

        A conflict means that another object has its name, or that it changed while the server deleted it.
        Reading the object tells which.
        """
        for _ in range(REWRITES):
            try:
                await self.write(api_requests.delete(resource, seen, grace_seconds))
            except StatusError as error:
                if error.code == NOT_FOUND:
                    return
                if not error.is_conflict or not seen.uid or seen.resource_version:
                    raise
                conflict = error
            else:
                return
            if not await self._exists(resource, seen):
                return
        raise conflict

    async def _exists(self, resource: Resource, seen: Preconditions) -> bool:
        try:
            body = await self.read(api_requests.get(resource, seen.name, seen.namespace))
        except StatusError as error:
            if error.code != NOT_FOUND:
                raise
            return False
        return msgspec.json.decode(body, type=ObjectHead).metadata.uid == seen.uid

    async def rewrite(self, decide: Callable[[], Awaitable[Request | None]]) -> bytes | None:
        """Sends the request that ``decide`` returns, and calls it again after a conflict. None: no write."""
        backoff = Backoff()
        for _ in range(REWRITES):
            request = await decide()
            if request is None:
                return None
            try:
                return await self.write(request)
            except StatusError as error:
                if not error.is_conflict:
                    raise
                conflict = error
            await self._sleep(backoff.seconds())
        raise conflict

    async def _attempt(self, request: Request) -> bytes:
        async with self._slots.slot(request.flow):
            self._gate.check()
            body = await self._transport.send(request._replace(guard=self._gate.check))
        self._gate.count_write()
        return body


def is_same(existing: Mapping[str, Any], wanted: ObjectBody) -> bool:
    """Whether an existing object has all wanted fields and is not being deleted."""
    return "deletionTimestamp" not in existing["metadata"] and contains(existing, wanted)


def contains(existing: object, wanted: object) -> bool:
    """Whether a value contains the wanted one. Servers add fields to objects, but no items to lists."""
    if isinstance(wanted, Mapping):
        return isinstance(existing, Mapping) and all(
            contains(existing.get(key), value) for key, value in wanted.items() if value is not None
        )
    if isinstance(wanted, (list, tuple)):
        return (
            isinstance(existing, list)
            and len(existing) == len(wanted)
            and all(contains(item, wanted_item) for item, wanted_item in zip(existing, wanted, strict=True))
        )
    return existing == wanted
