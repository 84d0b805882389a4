"""Writing: so many at a time, again where that helps, never what is no longer wanted.

* A busy or unwell server (429, 5xx) and a broken connection are met with patience; a Retry-After is
  respected.
* A conflict (409) is not repeated as it stands, for it was decided from something that has changed.
  ``rewrite`` takes a function that reads and decides again; everyone else drops the write and plans again.
* No answer does not mean that nothing happened. Names are given by Jobtree and the same for the same thing,
  so creating it again finds it there: what is there and holds all that was wanted counts as created. Deleting
  is done when the very object is gone, whoever did it.
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
from jobtree.kube.write.write_gate import Gate

AT_ONCE = 64
PATIENCE_SECONDS = 60.0
REWRITES = 8


class Writer:
    """All writes of the manager go through one of these, and so through one gate."""

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
        self._turns = asyncio.Semaphore(at_once)
        self._clock = clock
        self._sleep = sleep

    async def write(self, request: Request) -> bytes:
        """The object as it is now. Raises StatusError, UnreachableError when patience ends, FencedError."""
        backoff, give_up = Backoff(), self._clock() + PATIENCE_SECONDS
        while True:
            try:
                return await self._attempt(request)
            except UnreachableError as broken:
                trouble: UnreachableError | StatusError = broken
                wait = backoff.seconds()
            except StatusError as refused:
                if not refused.is_passing:
                    raise
                trouble = refused
                wait = backoff.seconds(refused.retry_after_seconds)
            if self._clock() + wait > give_up:
                raise trouble
            await self._sleep(wait)

    async def read(self, request: Request) -> bytes:
        """The object as it is now, past any cache of ours. Raises StatusError, UnreachableError."""
        return await self._transport.send(request)

    async def create(self, resource: Resource, document: ObjectBody) -> bytes:
        """The object, made now or found to be there already with all that is in ``document``."""
        try:
            return await self.write(api_requests.create(resource, document))
        except StatusError as refused:
            if not refused.exists_already:
                raise
            metadata = document["metadata"]
            there = await self._transport.send(
                api_requests.get(resource, metadata["name"], metadata.get("namespace", ""))
            )
            if not is_same(msgspec.json.decode(there), document):
                raise
            return there

    async def delete(self, resource: Resource, seen: Preconditions, grace_seconds: int | None = None) -> None:
        """Until this very object is gone or going.

        A conflict means that another one has its name, or that the server stumbled over a change: only a look
        can tell.
        """
        for _ in range(REWRITES):
            try:
                await self.write(api_requests.delete(resource, seen, grace_seconds))
            except StatusError as refused:
                if refused.code == NOT_FOUND:
                    return
                if not refused.is_conflict or not seen.uid or seen.resource_version:
                    raise
                conflict = refused
            else:
                return
            if not await self._is_there(resource, seen):
                return
        raise conflict

    async def _is_there(self, resource: Resource, seen: Preconditions) -> bool:
        try:
            there = await self.read(api_requests.get(resource, seen.name, seen.namespace))
        except StatusError as refused:
            if refused.code != NOT_FOUND:
                raise
            return False
        return msgspec.json.decode(there, type=ObjectHead).metadata.uid == seen.uid

    async def rewrite(self, decide: Callable[[], Awaitable[Request | None]]) -> bytes | None:
        """Sends what ``decide`` asks for, and asks it again after a conflict. None: nothing is to be done."""
        backoff = Backoff()
        for _ in range(REWRITES):
            request = await decide()
            if request is None:
                return None
            try:
                return await self.write(request)
            except StatusError as refused:
                if not refused.is_conflict:
                    raise
                conflict = refused
            await self._sleep(backoff.seconds())
        raise conflict

    async def _attempt(self, request: Request) -> bytes:
        async with self._turns:
            self._gate.check()
            body = await self._transport.send(request._replace(guard=self._gate.check))
        self._gate.count_write()
        return body


def is_same(there: Mapping[str, Any], wanted: ObjectBody) -> bool:
    """Whether an object is the one wanted: it has all of its fields, and nobody has asked for its end."""
    return "deletionTimestamp" not in there["metadata"] and holds(there, wanted)


def holds(there: object, wanted: object) -> bool:
    """Whether all that is wanted is there; servers add fields, never items."""
    if isinstance(wanted, Mapping):
        return isinstance(there, Mapping) and all(
            holds(there.get(key), value) for key, value in wanted.items() if value is not None
        )
    if isinstance(wanted, (list, tuple)):
        return (
            isinstance(there, list)
            and len(there) == len(wanted)
            and all(holds(one, other) for one, other in zip(there, wanted, strict=True))
        )
    return there == wanted
