"""Opens connections to one API server and keeps those that may be used again.

The pool hands out the connection that was used last. It closes a connection that was unused for a minute, and
one that was opened with another TLS context than the current one.
"""

import asyncio
import ssl
import time
from base64 import b64encode
from collections.abc import Callable
from urllib.parse import unquote, urlsplit

from jobtree.kube.auth.cluster_access import Credentials, Endpoint
from jobtree.kube.http.api_errors import Response
from jobtree.kube.http.api_requests import Request
from jobtree.kube.http.http_connection import FIRST_REFUSAL_CODE, BrokenResponseError, HttpConnection
from jobtree.kube.http.transport import CONNECT_SECONDS, headers_for, unreachable

KEPT_SECONDS = 60.0
PROXY_PORT = 80


class ConnectionPool:
    def __init__(
        self, endpoint: Endpoint, request_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._endpoint = endpoint
        self._seconds = request_seconds
        self._clock = clock
        self._idle: list[HttpConnection] = []

    async def exchange(self, request: Request, credentials: Credentials) -> Response:
        """Sends a request and returns the whole response.

        A request is sent a second time only if it reads and the server had closed the kept connection.
        Raises UnreachableError, and any exception of the request's guard.
        """
        kept = self._take_idle(credentials.tls)
        if kept is not None:
            try:
                return await self._send(kept, request, credentials)
            except OSError as error:
                was_closed = isinstance(error, ConnectionError)  # servers close kept connections at any time
                if request.writes or not was_closed:
                    raise unreachable(self._endpoint, error, may_have_happened=request.writes) from None
        try:
            opened = await self._connect(credentials.tls)
        except OSError as error:
            raise unreachable(self._endpoint, error, may_have_happened=False) from None
        try:
            return await self._send(opened, request, credentials)
        except OSError as error:
            raise unreachable(self._endpoint, error, may_have_happened=request.writes) from None

    async def start_stream(
        self, request: Request, credentials: Credentials, silence_seconds: float | None
    ) -> tuple[HttpConnection, Response]:
        """Returns a connection that the caller reads and closes, and the response without its body.

        Raises OSError.
        """
        connection = await self._connect(credentials.tls)
        try:
            async with asyncio.timeout(silence_seconds):
                encoded = encode_request(self._endpoint, request, credentials)
                return connection, await connection.send(encoded, is_stream=True)
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    async def _connect(self, tls: ssl.SSLContext | None) -> HttpConnection:
        async with asyncio.timeout(min(CONNECT_SECONDS, self._seconds)):
            return await connect(self._endpoint, tls)

    async def _send(self, connection: HttpConnection, request: Request, credentials: Credentials) -> Response:
        encoded = encode_request(self._endpoint, request, credentials)
        try:
            async with asyncio.timeout(self._seconds):
                if request.guard is not None:
                    request.guard()
                return await connection.send(encoded)
        finally:
            self._put_back(connection)

    def _take_idle(self, tls: ssl.SSLContext | None) -> HttpConnection | None:
        while self._idle:
            connection = self._idle.pop()
            is_recent = connection.used_at + KEPT_SECONDS > self._clock()
            if connection.is_usable and connection.tls is tls and is_recent:
                return connection
            connection.close()
        return None

    def _put_back(self, connection: HttpConnection) -> None:
        if connection.is_usable:
            connection.used_at = self._clock()
            self._idle.append(connection)
        else:
            connection.close()


async def connect(endpoint: Endpoint, tls: ssl.SSLContext | None) -> HttpConnection:
    """Opens a connection, through the proxy of the kubeconfig if there is one. Raises OSError."""
    server_name = (endpoint.server_name or endpoint.host) if tls is not None else None
    if endpoint.proxy:
        connection = await _connect_by_proxy(endpoint, tls, server_name)
    else:
        _, connection = await asyncio.get_running_loop().create_connection(
            HttpConnection, endpoint.host, endpoint.port, ssl=tls, server_hostname=server_name
        )
    connection.tls = tls
    return connection


async def _connect_by_proxy(
    endpoint: Endpoint, tls: ssl.SSLContext | None, server_name: str | None
) -> HttpConnection:
    """Asks the proxy for a tunnel, then uses the tunnel like a connection of its own."""
    loop, proxy, connection = asyncio.get_running_loop(), urlsplit(endpoint.proxy), HttpConnection()
    transport: asyncio.Transport | None
    transport, tunnel = await loop.create_connection(
        HttpConnection, proxy.hostname or "", proxy.port or PROXY_PORT
    )
    try:
        await _open_tunnel(tunnel, endpoint)
        if tls is None:
            transport.set_protocol(connection)
        else:
            transport = await loop.start_tls(transport, connection, tls, server_hostname=server_name)
        assert transport is not None
    except BaseException:
        tunnel.close()
        raise
    connection.connection_made(transport)
    return connection


async def _open_tunnel(tunnel: HttpConnection, endpoint: Endpoint) -> None:
    response = await tunnel.send(encode_tunnel_request(endpoint), is_stream=True)
    if response.code >= FIRST_REFUSAL_CODE:
        raise BrokenResponseError(f"the proxy refused a tunnel: status {response.code}")


def encode_request(endpoint: Endpoint, request: Request, credentials: Credentials) -> bytes:
    body = request.body or b""
    headers = [("Host", _authority(endpoint)), *headers_for(request), *credentials.headers]
    if request.writes:
        headers.append(("Content-Length", str(len(body))))
    return _encode_head(request.method, f"{endpoint.prefix}{target_of(request)}", headers) + body


def encode_tunnel_request(endpoint: Endpoint) -> bytes:
    proxy, authority = urlsplit(endpoint.proxy), _authority(endpoint)
    headers = [("Host", authority)]
    if proxy.username is not None:
        user = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
        headers.append(("Proxy-Authorization", f"Basic {b64encode(user.encode()).decode()}"))
    return _encode_head("CONNECT", authority, headers)


def target_of(request: Request) -> str:
    """Returns the target, for a write with the query that turns off warnings about unknown fields."""
    if request.body is None or request.method == "DELETE":
        return request.target
    return f"{request.target}{'&' if '?' in request.target else '?'}fieldValidation=Ignore"


def _authority(endpoint: Endpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{host}:{endpoint.port}"


def _encode_head(method: str, target: str, headers: list[tuple[str, str]]) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers), "", ""]
    return "\r\n".join(lines).encode("latin-1")
