"""Requests of the pool to a server that answers with given bytes."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from jobtree.kube.auth.cluster_access import Access
from jobtree.kube.auth.kubeconfig import ClusterEntry, LocatedEntry, Target, UserEntry
from jobtree.kube.http.api_errors import FencedError, Response, UnreachableError
from jobtree.kube.http.api_requests import Request
from jobtree.kube.http.connection_pool import (
    KEPT_SECONDS,
    ConnectionPool,
    encode_tunnel_request,
    target_of,
)

GET = Request("GET", "/x")
POST = Request("POST", "/x", b'{"a":1}')
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Served(NamedTuple):
    results: list[Response | UnreachableError]
    received: list[bytes]  # by the server
    connections: int


def serve(
    *responses: list[bytes], requests: tuple[Request, ...] = (GET,), clock: Callable[[], float] = lambda: 0.0
) -> Served:
    """Answers each request with the next list of parts, one write each; a last ``b""`` hangs up."""

    async def main() -> Served:
        received: list[bytes] = []
        left, connections = list(responses), 0

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            is_closing = False
            while not is_closing and (request := await reader.read(100_000)):
                received.append(request)
                for part in left.pop(0):
                    writer.write(part)
                    await asyncio.sleep(0)  # the client reads each part by itself
                    is_closing = not part
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        access = access_to(server.sockets[0].getsockname()[1])
        pool = ConnectionPool(access.endpoint, 5.0, clock)
        results: list[Response | UnreachableError] = []
        for request in requests:
            try:
                results.append(await pool.exchange(request, access.credentials()))
            except UnreachableError as error:
                results.append(error)
        pool.close()
        await stop(server)
        return Served(results, received, connections)

    return asyncio.run(main())


async def stop(server: asyncio.Server) -> None:
    server.close()
    await server.wait_closed()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others)


def access_to(port: int) -> Access:
    cluster = LocatedEntry(ClusterEntry(server=f"http://127.0.0.1:{port}"), "test", Path())
    return Access(Target("test", "default", cluster, LocatedEntry(UserEntry(token="abc"), "test", Path())))  # noqa: S106


def test_write_asks_for_no_field_validation() -> None:
    patch = Request("PATCH", "/x?force=true", b"{}")
    assert target_of(patch) == "/x?force=true&fieldValidation=Ignore"
    for request in (GET, Request("DELETE", "/x", b"{}")):
        assert target_of(request) == request.target


def test_request_is_sent_with_its_headers_and_body() -> None:
    (request,) = serve([OK], requests=(POST,)).received
    head, _, body = request.partition(b"\r\n\r\n")
    first, *headers = head.decode().split("\r\n")
    assert (first, body) == ("POST /x?fieldValidation=Ignore HTTP/1.1", b'{"a":1}')
    assert headers[0].startswith("Host: 127.0.0.1:")
    assert {"Content-Length: 7", "Content-Type: application/json", "Authorization: Bearer abc"} <= set(
        headers
    )


@pytest.mark.parametrize(
    "response",
    [
        OK,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\no\r\n1;x=y\r\nk\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
    ],
)
def test_response_may_arrive_in_any_two_parts(response: bytes) -> None:
    for cut in range(1, len(response)):
        served = serve([response[:cut], response[cut:]], [OK], requests=(POST, POST))
        assert served.results == [Response(200, b"ok"), Response(200, b"ok")], response[:cut]
        assert served.connections == 1, "the connection is kept"


@pytest.mark.parametrize("code", [b"204 No Content", b"304 Not Modified"])
def test_response_without_a_body_needs_no_length(code: bytes) -> None:
    served = serve([b"HTTP/1.1 " + code + b"\r\n\r\n"], [OK], requests=(GET, GET))
    assert served.results == [Response(int(code[:3]), b""), Response(200, b"ok")]
    assert served.connections == 1


def test_retry_after_header_is_returned() -> None:
    busy = b"HTTP/1.1 429 Too Many\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n"
    assert serve([busy]).results == [Response(429, b"", "7")]
    assert serve([busy], [OK], requests=(GET, GET)).results[1] == Response(200, b"ok")


def test_response_without_a_length_ends_with_its_connection() -> None:
    served = serve([b"HTTP/1.1 200 OK\r\n\r\no", b"k", b""], [OK], requests=(GET, GET))
    assert served.results == [Response(200, b"ok"), Response(200, b"ok")]
    assert served.connections == 2


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        OK + OK,
        OK + b"x",
    ],
)
def test_connection_is_not_used_again_when_the_server_closes_it_or_sends_more(response: bytes) -> None:
    served = serve([response], [OK], requests=(POST, POST))
    assert served.results == [Response(200, b"ok"), Response(200, b"ok")]
    assert served.connections == 2


@pytest.mark.parametrize(
    "broken",
    [
        [b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nhalf", b""],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", b""],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnumber\r\n"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok"],
        [b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"],
        [b"SSH-2.0-OpenSSH_9.2\r\n\r\n"],
        [b""],
    ],
)
def test_write_with_a_broken_response_may_have_happened_and_is_not_sent_again(broken: list[bytes]) -> None:
    served = serve([OK], broken, [OK], requests=(POST, POST))
    error = served.results[1]
    assert isinstance(error, UnreachableError)
    assert error.may_have_happened
    assert len(served.received) == 2


def test_read_is_sent_again_when_a_kept_connection_was_closed() -> None:
    served = serve([OK], [b""], [OK], requests=(GET, GET))
    assert served.results == [Response(200, b"ok"), Response(200, b"ok")]
    assert served.connections == 2


def test_connection_is_not_used_again_when_it_was_unused_for_a_minute() -> None:
    ticks = iter([0.0, KEPT_SECONDS + 1, KEPT_SECONDS + 1])
    assert serve([OK], [OK], requests=(POST, POST), clock=lambda: next(ticks)).connections == 2


def test_guard_that_refuses_keeps_the_connection() -> None:
    def refuse() -> None:
        raise FencedError("the lease of the leader has expired")

    async def main() -> None:
        received: list[bytes] = []

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while request := await reader.read(100_000):
                received.append(request)
                writer.write(OK)
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        access = access_to(server.sockets[0].getsockname()[1])
        pool = ConnectionPool(access.endpoint, 5.0)
        with pytest.raises(FencedError):
            await pool.exchange(POST._replace(guard=refuse), access.credentials())
        assert (await pool.exchange(POST, access.credentials())).code == 200
        assert len(received) == 1
        pool.close()
        await stop(server)

    asyncio.run(main())


def test_tunnel_request_carries_the_user_of_the_proxy() -> None:
    endpoint = access_to(6443).endpoint
    plain = encode_tunnel_request(endpoint._replace(proxy="http://proxy:3128"))
    assert plain == b"CONNECT 127.0.0.1:6443 HTTP/1.1\r\nHost: 127.0.0.1:6443\r\n\r\n"
    with_user = encode_tunnel_request(endpoint._replace(proxy="http://me:p%40ss@proxy:3128"))
    assert b"\r\nProxy-Authorization: Basic bWU6cEBzcw==\r\n" in with_user
