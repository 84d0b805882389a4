"""The transport of the manager: many requests at once over kept connections.

Requests go over connections of our own (``kept_http``), streams through aiohttp, and both through aiohttp
where a proxy is in between. Imported by the manager only: loading aiohttp takes longer than a kubectl plugin
may take to answer.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable

from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    TCPConnector,
)
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import BytesPayload
from yarl import URL

from jobtree.api.schema.problems import InputError
from jobtree.kube.auth.cluster_access import Access, Credentials
from jobtree.kube.http.api_errors import UNAUTHORIZED, FencedError, Response, UnreachableError
from jobtree.kube.http.api_requests import Request
from jobtree.kube.http.connection_pool import KEPT_SECONDS, ConnectionPool
from jobtree.kube.http.transport import CONNECT_SECONDS, REQUEST_SECONDS, headers_for, unreachable


class PooledTransport:
    """Made and used inside one event loop. How many requests run at once is for its users to bound."""

    def __init__(self, access: Access, request_seconds: float = REQUEST_SECONDS) -> None:
        self._access = access
        self._timeout = ClientTimeout(total=request_seconds, sock_connect=CONNECT_SECONDS)
        self._pool = ConnectionPool(access, request_seconds)
        self._session = ClientSession(
            connector=TCPConnector(limit=0, keepalive_timeout=KEPT_SECONDS), auto_decompress=False
        )

    async def send(self, request: Request) -> bytes:
        grant = await self._grant()
        answer = await self._exchange(request, grant)
        if answer.code == UNAUTHORIZED and self._access.renew(grant):
            answer = await self._exchange(request, await self._grant())
        return answer.accepted()

    async def stream(self, request: Request, silence_seconds: float | None) -> AsyncGenerator[bytes, None]:
        limits = ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=silence_seconds)
        try:
            response = await self._open(request, limits)
            async with response:
                if response.status >= 300:  # noqa: PLR2004  as HTTP counts
                    (await _answer(response)).accepted()
                yield b""  # the server has agreed
                async for chunk in response.content.iter_any():
                    yield chunk
        except (ClientError, OSError, TimeoutError) as broken:
            raise unreachable(self._access.endpoint, broken, may_have_happened=False) from None

    async def close(self) -> None:
        self._pool.close()
        await self._session.close()

    async def _grant(self) -> Credentials:
        grant = self._access.current()
        if grant is not None:
            return grant
        try:
            return await asyncio.to_thread(self._access.grant)
        except InputError as broken:  # the manager goes on: a file or a plugin may be mended meanwhile
            raise UnreachableError(str(broken), may_have_happened=False) from None

    async def _open(self, request: Request, limits: ClientTimeout) -> ClientResponse:
        grant = await self._grant()
        response = await self._ask(request, grant, limits)
        if response.status == UNAUTHORIZED and self._access.renew(grant):
            response.release()
            response = await self._ask(request, await self._grant(), limits)
        return response

    async def _exchange(self, request: Request, grant: Credentials) -> Response:
        if self._access.endpoint.proxy:
            return await self._exchange_by_proxy(request, grant)
        return await self._pool.exchange(request, grant)

    async def _exchange_by_proxy(self, request: Request, grant: Credentials) -> Response:
        try:
            async with await self._ask(request, grant, self._timeout) as response:
                return await _answer(response)
        except ClientConnectorError as broken:
            raise unreachable(self._access.endpoint, broken, may_have_happened=False) from None
        except (ClientError, OSError, TimeoutError) as broken:
            if isinstance(broken.__cause__, FencedError):
                raise broken.__cause__ from None
            raise unreachable(self._access.endpoint, broken, may_have_happened=request.writes) from None

    async def _ask(self, request: Request, grant: Credentials, limits: ClientTimeout) -> ClientResponse:
        endpoint = self._access.endpoint
        return await self._session.request(
            request.method,
            URL(endpoint.url + request.target, encoded=True),
            data=None if request.body is None else _Guarded(request.body, request.guard),
            headers=[*headers_for(request), *grant.headers],
            ssl=grant.tls if grant.tls is not None else True,
            server_hostname=endpoint.server_name or None,
            proxy=endpoint.proxy or None,
            timeout=limits,
            allow_redirects=False,
        )


class _Guarded(BytesPayload):
    """A body that asks its guard before it goes out; the headers wait for it and go with it."""

    def __init__(self, body: bytes, guard: Callable[[], None] | None) -> None:
        super().__init__(body)
        self._guard = guard

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        if self._guard is not None:
            self._guard()
        await super().write_with_length(writer, content_length)


async def _answer(response: ClientResponse) -> Response:
    return Response(response.status, await response.read(), response.headers.get("Retry-After"))
