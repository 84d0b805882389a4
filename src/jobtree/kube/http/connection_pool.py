"""Connections of the manager's requests: HTTP/1.1 with nothing around it, at half the CPU of a whole library.

A manager sends many small requests and reads every answer whole, all from one server. A connection does that
and nothing else: one question at a time, and it is kept for the next one if the server agrees. What cannot be
understood ends the connection. The pool hands out the connection that was used last; one that nobody has used
for a while is closed, and so is one with a certificate that is no longer shown.
"""

import asyncio
import re
import ssl
import time
from collections.abc import Callable
from typing import cast

from jobtree.kube.auth.cluster_access import Access, Credentials, Endpoint
from jobtree.kube.http.api_errors import Response, UnreachableError
from jobtree.kube.http.api_requests import Request
from jobtree.kube.http.transport import CONNECT_SECONDS, headers_for, unreachable

KEPT_SECONDS = 60.0

_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})[ \r]")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+) *\r\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked *\r\n", re.IGNORECASE)
_CLOSES = re.compile(rb"\r\nconnection: *close *\r\n", re.IGNORECASE)
_RETRY = re.compile(rb"\r\nretry-after: *([^\r]*?) *\r\n", re.IGNORECASE)
_END = b"\r\n\r\n"
_FINAL = 200  # codes below it announce an answer
_BODILESS = (204, 304)
_IN_CHUNKS, _TO_THE_END = -1, -2  # in place of a length


class BrokenAnswerError(ConnectionError):
    """The connection ended before the answer did, or what came is no answer."""


class Connection(asyncio.Protocol):
    """To one server. ``is_usable`` says whether another question may be asked."""

    def __init__(self) -> None:
        self.is_usable = False
        self.tls: ssl.SSLContext | None = None
        self.used_at = 0.0
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Response] | None = None
        self._buffer = bytearray()
        self._begun = False  # the headers of an answer are there
        self._length = 0  # of its body
        self._keeps = True
        self._chunks: list[bytes] = []
        self._answer = Response(0, b"")

    async def ask(self, question: bytes) -> Response:
        """Raises ConnectionError. Whoever is cancelled meanwhile must close the connection."""
        assert self._transport is not None
        self._waiter = asyncio.get_running_loop().create_future()
        self.is_usable = False
        self._transport.write(question)
        return await self._waiter

    def close(self) -> None:
        self.is_usable = False
        if self._transport is not None:
            self._transport.abort()

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.is_usable = True

    def data_received(self, data: bytes) -> None:
        if self._waiter is None or self._waiter.done():
            self.close()  # nobody has asked
            return
        self._buffer += data
        try:
            if self._begun or self._read_head():
                self._read_body()
        except (BrokenAnswerError, ValueError) as broken:
            self._fail(broken)

    def connection_lost(self, broken: Exception | None) -> None:
        self.is_usable = False
        if self._begun and self._length == _TO_THE_END and broken is None:
            self._finish(bytes(self._buffer))
        else:
            self._fail(broken)

    # Reading

    def _read_head(self) -> bool:
        """Whether all headers of the answer are there."""
        while True:
            end = self._buffer.find(_END)
            if end < 0:
                return False
            head = bytes(self._buffer[: end + 4])
            del self._buffer[: end + 4]
            status = _STATUS.match(head)
            if status is None:
                raise BrokenAnswerError("what came back is not HTTP")
            code = int(status[1])
            if code >= _FINAL:
                break
        self._begun = True
        retry = _RETRY.search(head)
        self._answer = Response(code, b"", retry[1].decode("latin-1") if retry else None)
        self._keeps = head.startswith(b"HTTP/1.1") and _CLOSES.search(head) is None
        self._length = body_length(code, head)
        return True

    def _read_body(self) -> None:
        if self._length == _IN_CHUNKS:
            while self._read_chunk():
                pass
        elif 0 <= self._length <= len(self._buffer):
            self._finish(bytes(self._buffer[: self._length]))

    def _read_chunk(self) -> bool:
        """Whether a whole chunk was there, and is not the last."""
        end = self._buffer.find(b"\r\n")
        if end < 0:
            return False
        size = int(self._buffer[:end].partition(b";")[0], 16)
        if len(self._buffer) < end + size + 4:
            return False
        if size:
            self._chunks.append(bytes(self._buffer[end + 2 : end + 2 + size]))
            del self._buffer[: end + size + 4]
            return True
        self._finish(b"".join(self._chunks))
        return False

    def _finish(self, body: bytes) -> None:
        waiter, self._waiter = self._waiter, None
        self.is_usable = self._keeps and self._transport is not None and not self._transport.is_closing()
        self._buffer.clear()
        self._chunks, self._begun = [], False
        if waiter is not None and not waiter.done():
            waiter.set_result(self._answer._replace(body=body))
        if not self.is_usable:
            self.close()

    def _fail(self, broken: Exception | None) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            why = str(broken) if broken is not None else "the connection was closed"
            waiter.set_exception(BrokenAnswerError(why))
        self.close()


def body_length(code: int, head: bytes) -> int:
    if code in _BODILESS:
        return 0
    if _CHUNKED.search(head):
        return _IN_CHUNKS
    told = _LENGTH.search(head)
    return int(told[1]) if told else _TO_THE_END


class ConnectionPool:
    """Connections to one server, without a proxy in between."""

    def __init__(self, access: Access, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._access = access
        self._seconds = seconds
        self._clock = clock
        self._free: list[Connection] = []

    async def exchange(self, request: Request, grant: Credentials) -> Response:
        """Raises UnreachableError, and what the request's guard raises."""
        kept = self._take(grant.tls)
        if kept is not None:
            try:
                return await self._ask(kept, request, grant)
            except OSError as broken:
                closed = isinstance(broken, ConnectionError)  # servers close kept connections at any time
                if request.writes or not closed:
                    raise self._trouble(broken, may_have_happened=request.writes) from None
        try:
            opened = await self._open(grant.tls)
        except OSError as broken:
            raise self._trouble(broken, may_have_happened=False) from None
        try:
            return await self._ask(opened, request, grant)
        except OSError as broken:
            raise self._trouble(broken, may_have_happened=request.writes) from None

    def close(self) -> None:
        for connection in self._free:
            connection.close()
        self._free.clear()

    async def _ask(self, connection: Connection, request: Request, grant: Credentials) -> Response:
        question = as_sent(self._access.endpoint, request, grant)
        try:
            async with asyncio.timeout(self._seconds):
                if request.guard is not None:
                    request.guard()
                return await connection.ask(question)
        finally:
            self._give_back(connection)

    def _take(self, tls: ssl.SSLContext | None) -> Connection | None:
        """One that is open and nobody uses."""
        while self._free:
            connection = self._free.pop()
            young = connection.used_at + KEPT_SECONDS > self._clock()
            if connection.is_usable and connection.tls is tls and young:
                return connection
            connection.close()
        return None

    def _give_back(self, connection: Connection) -> None:
        if connection.is_usable:
            connection.used_at = self._clock()
            self._free.append(connection)
        else:
            connection.close()

    async def _open(self, tls: ssl.SSLContext | None) -> Connection:
        endpoint, loop = self._access.endpoint, asyncio.get_running_loop()
        name = (endpoint.server_name or endpoint.host) if tls is not None else None
        async with asyncio.timeout(min(CONNECT_SECONDS, self._seconds)):
            _, connection = await loop.create_connection(
                Connection, endpoint.host, endpoint.port, ssl=tls, server_hostname=name
            )
        connection.tls = tls
        return connection

    def _trouble(self, broken: OSError, *, may_have_happened: bool) -> UnreachableError:
        return unreachable(self._access.endpoint, broken, may_have_happened=may_have_happened)


def as_sent(endpoint: Endpoint, request: Request, grant: Credentials) -> bytes:
    """A request, byte by byte."""
    body = request.body or b""
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    lines = [
        f"{request.method} {endpoint.prefix}{target_of(request)} HTTP/1.1",
        f"Host: {host}:{endpoint.port}",
        *(f"{name}: {value}" for name, value in (*headers_for(request), *grant.headers)),
    ]
    if request.writes:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def target_of(request: Request) -> str:
    """A write asks for no remarks on its fields: nobody reads them, and the server would look twice."""
    if request.body is None or request.method == "DELETE":
        return request.target
    return f"{request.target}{'&' if '?' in request.target else '?'}fieldValidation=Ignore"
