"""Requests of the pool through an HTTP proxy, with and without TLS inside the tunnel."""

import asyncio
import ssl
import time

import pytest

from jobtree.kube.auth.tls_context import load_client_certificate
from jobtree.kube.http.api_errors import Response, UnreachableError
from jobtree.kube.http.api_requests import Request
from jobtree.kube.http.connection_pool import ConnectionPool
from jobtree.manager.webhook.certificates import ServingCertificate, issue
from tests.unit.kube.http.test_connection_pool import OK, access_to, stop

GET = Request("GET", "/x")


class Proxy:
    """Opens a tunnel for each CONNECT request; refuses those without a tunnel if ``refuses``."""

    def __init__(self, *, refuses: bool) -> None:
        self.requests: list[bytes] = []
        self._refuses = refuses

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        self.requests.append(request)
        if self._refuses:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            writer.close()
            return
        host, port = request.split()[1].decode().split(":")
        server_reader, server_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(copy(reader, server_writer), copy(server_reader, writer))


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(100_000):
            writer.write(data)
    except ConnectionError:
        pass
    writer.close()


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.read(100_000):
        writer.write(OK)
    writer.close()


def server_context(certificate: ServingCertificate) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_client_certificate(context, certificate.certificate, certificate.key)
    return context


async def get_twice(proxy: Proxy, *, with_tls: bool) -> list[Response]:
    certificate = issue(["127.0.0.1"], time.time(), 3600)
    tls = ssl.create_default_context(cadata=certificate.authority) if with_tls else None
    server = await asyncio.start_server(
        answer, "127.0.0.1", 0, ssl=server_context(certificate) if with_tls else None
    )
    listener = await asyncio.start_server(proxy.answer, "127.0.0.1", 0)
    access = access_to(server.sockets[0].getsockname()[1])
    endpoint = access.endpoint._replace(proxy=f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}")
    pool = ConnectionPool(endpoint, 5.0)
    credentials = access.credentials()._replace(tls=tls)
    try:
        return [await pool.exchange(GET, credentials) for _ in range(2)]
    finally:
        pool.close()
        listener.close()
        await stop(server)


@pytest.mark.parametrize("with_tls", [False, True])
def test_tunnel_is_kept_for_the_next_request(with_tls: bool) -> None:
    proxy = Proxy(refuses=False)
    responses = asyncio.run(get_twice(proxy, with_tls=with_tls))
    assert responses == [Response(200, b"ok"), Response(200, b"ok")]
    assert len(proxy.requests) == 1
    assert proxy.requests[0].startswith(b"CONNECT 127.0.0.1:")


def test_request_has_not_happened_when_the_proxy_refuses_a_tunnel() -> None:
    with pytest.raises(UnreachableError, match="the proxy refused a tunnel: status 407") as error:
        asyncio.run(get_twice(Proxy(refuses=True), with_tls=True))
    assert not error.value.may_have_happened
