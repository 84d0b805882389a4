"""Answers as bytes, however they arrive."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from jobtree.kube.auth.cluster_access import Access
from jobtree.kube.auth.kubeconfig import ClusterEntry, LocatedEntry, Target, UserEntry
from jobtree.kube.http.api_errors import FencedError, Response, UnreachableError
from jobtree.kube.http.api_requests import Request
from jobtree.kube.http.connection_pool import KEPT_SECONDS, ConnectionPool, target_of

GET = Request("GET", "/x")
POST = Request("POST", "/x", b'{"a":1}')
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Talk(NamedTuple):
    """What came of some requests: answers or troubles, what the server read, on how many connections."""

    came: list[Response | UnreachableError]
    read: list[bytes]
    connections: int


def talk(
    *parts: list[bytes], requests: tuple[Request, ...] = (GET,), tick: Callable[[], float] = lambda: 0.0
) -> Talk:
    """Each request is answered with the next list of bytes, one write each; a last ``b""`` hangs up."""

    async def main() -> Talk:
        read: list[bytes] = []
        answers, connections = list(parts), 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            hangs_up = False
            while not hangs_up and (asked := await reader.read(100_000)):
                read.append(asked)
                for part in answers.pop(0):
                    writer.write(part)
                    await asyncio.sleep(0)  # another read on the other side
                    hangs_up = not part
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        pool = ConnectionPool(access_to(server.sockets[0].getsockname()[1]), 5.0, tick)
        came: list[Response | UnreachableError] = []
        for request in requests:
            try:
                came.append(await pool.exchange(request, pool._access.grant()))
            except UnreachableError as trouble:
                came.append(trouble)
        pool.close()
        await end(server)
        return Talk(came, read, connections)

    return asyncio.run(main())


async def end(server: asyncio.Server) -> None:
    server.close()
    await server.wait_closed()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others)


def access_to(port: int) -> Access:
    cluster = LocatedEntry(ClusterEntry(server=f"http://127.0.0.1:{port}"), "test", Path())
    return Access(Target("test", "default", cluster, LocatedEntry(UserEntry(token="abc"), "test", Path())))  # noqa: S106


def test_a_write_asks_for_no_remarks_and_nothing_else_knows_of_them() -> None:
    written = Request("PATCH", "/x?force=true", b"{}")
    assert target_of(written) == "/x?force=true&fieldValidation=Ignore"
    for request in (GET, Request("DELETE", "/x", b"{}")):
        assert target_of(request) == request.target


def test_a_request_is_sent_as_http_says() -> None:
    (asked,) = talk([PLAIN], requests=(POST,)).read
    head, _, body = asked.partition(b"\r\n\r\n")
    first, *headers = head.decode().split("\r\n")
    assert (first, body) == ("POST /x?fieldValidation=Ignore HTTP/1.1", b'{"a":1}')
    assert headers[0].startswith("Host: 127.0.0.1:")
    assert {"Content-Length: 7", "Content-Type: application/json", "Authorization: Bearer abc"} <= set(
        headers
    )


@pytest.mark.parametrize(
    "answer",
    [
        PLAIN,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\no\r\n1;x=y\r\nk\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN,
    ],
)
def test_an_answer_may_arrive_in_any_pieces(answer: bytes) -> None:
    for cut in range(1, len(answer)):
        heard = talk([answer[:cut], answer[cut:]], [PLAIN], requests=(POST, POST))
        assert heard.came == [Response(200, b"ok"), Response(200, b"ok")], answer[:cut]
        assert heard.connections == 1, "the connection is kept"


def test_what_a_refusal_says_of_waiting_is_heard() -> None:
    busy = b"HTTP/1.1 429 Too Many\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n"
    assert talk([busy]).came == [Response(429, b"", "7")]


def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    heard = talk([b"HTTP/1.1 200 OK\r\n\r\no", b"k", b""], [PLAIN], requests=(GET, GET))
    assert heard.came == [Response(200, b"ok"), Response(200, b"ok")]
    assert heard.connections == 2


def test_a_server_that_wants_to_close_is_not_asked_again() -> None:
    closing = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
    assert talk([closing], [PLAIN], requests=(POST, POST)).connections == 2


@pytest.mark.parametrize(
    "broken",
    [
        [b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nhalf", b""],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", b""],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnumber\r\n"],
        [b"SSH-2.0-OpenSSH_9.2\r\n\r\n"],
        [b""],
    ],
)
def test_a_write_whose_answer_breaks_off_may_have_happened_and_is_not_sent_again(broken: list[bytes]) -> None:
    heard = talk([PLAIN], broken, [PLAIN], requests=(POST, POST))
    trouble = heard.came[1]
    assert isinstance(trouble, UnreachableError)
    assert trouble.may_have_happened
    assert len(heard.read) == 2


def test_reading_is_tried_again_where_a_kept_connection_was_closed() -> None:
    heard = talk([PLAIN], [b""], [PLAIN], requests=(GET, GET))
    assert heard.came == [Response(200, b"ok"), Response(200, b"ok")]
    assert heard.connections == 2


def test_a_connection_that_nobody_used_for_a_while_is_not_trusted() -> None:
    ticks = iter([0.0, KEPT_SECONDS + 1, KEPT_SECONDS + 1])
    assert talk([PLAIN], [PLAIN], requests=(POST, POST), tick=lambda: next(ticks)).connections == 2


def test_a_guard_that_refuses_leaves_the_connection_as_good_as_it_was() -> None:
    def refuse() -> None:
        raise FencedError("not any more")

    async def main() -> None:
        asked: list[bytes] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while part := await reader.read(100_000):
                asked.append(part)
                writer.write(PLAIN)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        pool = ConnectionPool(access_to(server.sockets[0].getsockname()[1]), 5.0)
        with pytest.raises(FencedError):
            await pool.exchange(POST._replace(guard=refuse), pool._access.grant())
        assert (await pool.exchange(POST, pool._access.grant())).code == 200
        assert len(asked) == 1
        pool.close()
        await end(server)

    asyncio.run(main())
