"""One connection, with the bytes of its server given by the test."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from jobtree.kube.http.api_errors import Response
from jobtree.kube.http.http_connection import MAX_BUFFERED_BYTES, BrokenResponseError, HttpConnection

REQUEST = b"GET /x HTTP/1.1\r\n\r\n"
STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"


class MemoryTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_aborted = False
        self.changes: list[str] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def abort(self) -> None:
        self.is_aborted = True

    def is_closing(self) -> bool:
        return self.is_aborted

    def pause_reading(self) -> None:
        self.changes.append("paused")

    def resume_reading(self) -> None:
        self.changes.append("resumed")


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


def open_connection() -> tuple[HttpConnection, MemoryTransport]:
    connection, transport = HttpConnection(), MemoryTransport()
    connection.connection_made(transport)
    return connection, transport


async def send(connection: HttpConnection, *received: bytes, is_stream: bool = False) -> Response:
    """Sends a request, which the server answers with these bytes, one read each."""
    sending = asyncio.ensure_future(connection.send(REQUEST, is_stream=is_stream))
    for data in received:
        await asyncio.sleep(0)
        connection.data_received(data)
    return await sending


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def test_connection_is_usable_again_after_a_response() -> None:
    async def test() -> None:
        connection, transport = open_connection()
        for _ in range(2):
            assert connection.is_usable
            assert await send(connection, NO_CONTENT) == Response(204, b"")
        assert transport.written == 2 * REQUEST

    run(test())


def test_connection_is_not_usable_while_a_request_has_no_response() -> None:
    async def test() -> None:
        connection, _ = open_connection()
        sending = asyncio.ensure_future(connection.send(REQUEST))
        await asyncio.sleep(0)
        assert not connection.is_usable
        sending.cancel()

    run(test())


def test_stream_is_read_part_by_part_to_its_end() -> None:
    async def test() -> None:
        connection, _ = open_connection()
        assert await send(connection, STREAM, is_stream=True) == Response(200, b"")
        reading = asyncio.ensure_future(connection.read_part())
        await asyncio.sleep(0)
        for data in (b"4\r", b"\n", b"one\n"):  # the size of a chunk alone is no part
            assert not reading.done()
            connection.data_received(data)
            await asyncio.sleep(0)
        assert await reading == b"one\n"
        connection.data_received(b"\r\n" + chunk(b"two\n") + chunk(b"three\n") + chunk(b""))
        assert await connection.read_part() == b"two\nthree\n"
        assert await connection.read_part() == b""
        assert connection.is_usable

    run(test())


def test_refusal_of_a_stream_is_returned_with_its_body() -> None:
    async def test() -> None:
        connection, _ = open_connection()
        head = b"HTTP/1.1 403 Forbidden\r\nRetry-After: 3\r\nContent-Length: 2\r\n\r\n"
        assert await send(connection, head, b"no", is_stream=True) == Response(403, b"no", "3")

    run(test())


def test_broken_stream_raises_after_its_last_part() -> None:
    async def test() -> None:
        connection, transport = open_connection()
        await send(connection, STREAM + chunk(b"one\n"), is_stream=True)
        connection.connection_lost(None)
        assert await connection.read_part() == b"one\n"
        with pytest.raises(BrokenResponseError, match="the connection was closed"):
            await connection.read_part()
        assert transport.is_aborted

    run(test())


def test_connection_stops_receiving_while_a_stream_is_not_read() -> None:
    async def test() -> None:
        connection, transport = open_connection()
        await send(connection, STREAM, is_stream=True)
        connection.data_received(chunk(b"x" * MAX_BUFFERED_BYTES))
        assert transport.changes == []
        connection.data_received(chunk(b"x"))
        assert transport.changes == ["paused"]
        assert len(await connection.read_part()) == MAX_BUFFERED_BYTES + 1
        assert transport.changes == ["paused", "resumed"]

    run(test())


def test_send_raises_when_the_server_has_closed_the_connection() -> None:
    async def test() -> None:
        connection, _ = open_connection()
        await send(connection, NO_CONTENT)
        connection.connection_lost(None)
        assert not connection.is_usable
        with pytest.raises(BrokenResponseError, match="the connection was closed"):
            await connection.send(REQUEST)

    run(test())


def test_connection_is_closed_when_the_server_sends_data_without_a_request() -> None:
    async def test() -> None:
        connection, transport = open_connection()
        await send(connection, NO_CONTENT)
        connection.data_received(NO_CONTENT)
        assert transport.is_aborted
        assert not connection.is_usable
        with pytest.raises(BrokenResponseError, match="the server sent data without a request"):
            await connection.send(REQUEST)

    run(test())
