"""The transport of the manager: many requests at once over kept connections.

A watch has a connection of its own. Only the manager imports this module, because asyncio takes too long to
load for a kubectl plugin.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import closing

from jobtree.api.schema.problems import InputError
from jobtree.kube.auth.cluster_access import Access, Credentials
from jobtree.kube.http.api_errors import UNAUTHORIZED, Response, UnreachableError
from jobtree.kube.http.api_requests import Request
from jobtree.kube.http.connection_pool import ConnectionPool
from jobtree.kube.http.http_connection import HttpConnection
from jobtree.kube.http.transport import REQUEST_SECONDS, unreachable


class PooledTransport:
    """Used inside one event loop. Its users limit how many requests run at once."""

    def __init__(self, access: Access, request_seconds: float = REQUEST_SECONDS) -> None:
        self._access = access
        self._pool = ConnectionPool(access.endpoint, request_seconds)

    async def send(self, request: Request) -> bytes:
        credentials = await self._credentials()
        response = await self._pool.exchange(request, credentials)
        if response.code == UNAUTHORIZED and self._access.renew(credentials):
            response = await self._pool.exchange(request, await self._credentials())
        return response.accepted()

    async def stream(self, request: Request, silence_seconds: float | None) -> AsyncGenerator[bytes, None]:
        try:
            connection, response = await self._start_stream(request, silence_seconds)
            with closing(connection):
                response.accepted()
                yield b""  # the server has accepted the request
                while part := await _next_part(connection, silence_seconds):
                    yield part
        except OSError as error:
            raise unreachable(self._access.endpoint, error, may_have_happened=False) from None

    async def close(self) -> None:
        self._pool.close()

    async def _start_stream(
        self, request: Request, silence_seconds: float | None
    ) -> tuple[HttpConnection, Response]:
        credentials = await self._credentials()
        connection, response = await self._pool.start_stream(request, credentials, silence_seconds)
        if response.code == UNAUTHORIZED and self._access.renew(credentials):
            connection.close()
            return await self._pool.start_stream(request, await self._credentials(), silence_seconds)
        return connection, response

    async def _credentials(self) -> Credentials:
        credentials = self._access.current()
        if credentials is not None:
            return credentials
        try:
            return await asyncio.to_thread(self._access.credentials)
        except InputError as error:  # the manager continues: the file or plugin may be repaired meanwhile
            raise UnreachableError(str(error), may_have_happened=False) from None


async def _next_part(connection: HttpConnection, silence_seconds: float | None) -> bytes:
    async with asyncio.timeout(silence_seconds):
        return await connection.read_part()
