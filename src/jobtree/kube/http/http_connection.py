"""One HTTP/1.1 connection to an API server, with the parser of ``httptools``.

A connection carries one request at a time. Its user waits for the whole response, or reads the body of a
stream part by part. Any error ends the connection.
"""

import asyncio
import ssl
from typing import cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from jobtree.kube.http.api_errors import Response

MAX_BUFFERED_BYTES = 1 << 20
FIRST_FINAL_CODE = 200  # a lower code announces another response
FIRST_REFUSAL_CODE = 300


class BrokenResponseError(ConnectionError):
    """The connection ended before the response did, or the response is not HTTP/1.1."""


class HttpConnection(asyncio.Protocol):
    """A connection to one server. ``is_usable`` is true while another request may be sent."""

    def __init__(self) -> None:
        self.is_usable = False
        self.tls: ssl.SSLContext | None = None
        self.used_at = 0.0
        self._transport: asyncio.Transport | None = None
        self._parser = HttpResponseParser(self)
        self._waiter: asyncio.Future[None] | None = None
        self._error: BrokenResponseError | None = None
        self._is_stream = False
        self._has_head = False
        self._has_length = False
        self._is_complete = True
        self._keeps_alive = False
        self._code = 0
        self._retry_after: str | None = None
        self._parts: list[bytes] = []
        self._buffered_bytes = 0

    async def send(self, request: bytes, *, is_stream: bool = False) -> Response:
        """Returns the response. ``read_part`` returns the body of a stream, except that of a refusal.

        Raises ConnectionError. A caller that is cancelled must close the connection.
        """
        assert self._transport is not None
        self.is_usable = self._is_complete = self._has_head = False
        self._is_stream = is_stream
        self._parts, self._buffered_bytes = [], 0
        self._transport.write(request)
        while not (self._is_complete or (self._is_stream and self._has_head)):
            await self._wait()
        body = b"" if self._is_stream else b"".join(self._parts)
        return Response(self._code, body, self._retry_after)

    async def read_part(self) -> bytes:
        """Returns what arrived of the body of a stream, or nothing at its end. Raises ConnectionError."""
        while not self._parts and not self._is_complete:
            await self._wait()
        part = b"".join(self._parts)
        self._parts, self._buffered_bytes = [], 0
        if self._transport is not None:
            self._transport.resume_reading()
        return part

    def close(self) -> None:
        self.is_usable = False
        if self._transport is not None:
            self._transport.abort()

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.is_usable = True

    def data_received(self, data: bytes) -> None:
        is_idle = self._is_complete
        if is_idle:
            self._fail("the server sent data without a request")
            return
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            if not self._is_complete:
                self._fail(f"the response is not valid HTTP/1.1: {error}")
                return
            self._keeps_alive = False  # bytes follow the response
        if self._is_complete:
            self._finish()
        elif self._is_stream and self._has_head:
            self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._is_complete and self._has_head and not self._has_length and error is None:
            self._finish()  # such a response ends with its connection
        else:
            self._fail(str(error) if error is not None else "the connection was closed")

    # Called by the parser

    def on_message_begin(self) -> None:
        if self._is_complete:
            raise BrokenResponseError("one request has two responses")
        self._has_length = False
        self._retry_after = None

    def on_header(self, name: bytes, value: bytes) -> None:
        lower_name = name.lower()
        if lower_name in (b"content-length", b"transfer-encoding"):
            self._has_length = True
        elif lower_name == b"retry-after":
            self._retry_after = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._code = self._parser.get_status_code()
        self._has_head = self._code >= FIRST_FINAL_CODE
        self._keeps_alive = self._parser.should_keep_alive()
        self._is_stream = self._is_stream and self._code < FIRST_REFUSAL_CODE

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)
        self._buffered_bytes += len(body)
        if self._is_stream and self._buffered_bytes > MAX_BUFFERED_BYTES and self._transport is not None:
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        self._is_complete = self._has_head

    # Waiting

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _finish(self) -> None:
        self._is_complete = True
        self.is_usable = (
            self._keeps_alive and self._transport is not None and not self._transport.is_closing()
        )
        if not self.is_usable:
            self.close()
        self._wake()

    def _fail(self, reason: str) -> None:
        self._error = self._error or BrokenResponseError(reason)
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_exception(self._error)
        self.close()
