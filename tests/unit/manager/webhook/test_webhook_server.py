"""The server of the webhook answers honest clients while others hold connections and bodies open."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jobtree.manager.log import Log
from jobtree.manager.metrics import Metrics
from jobtree.manager.settings import ClientIdentity
from jobtree.manager.webhook import request_bodies
from jobtree.manager.webhook.admission_review import ALLOWED, AdmissionRequest, AdmissionResponse, forbid
from jobtree.manager.webhook.certificate_rotation import new_certificates
from jobtree.manager.webhook.certificates import CertificateSchedule
from jobtree.manager.webhook.request_bodies import MAX_BYTES
from jobtree.manager.webhook.webhook_server import Server
from tests.live.cluster.certificates import Authority

ANYBODY = ClientIdentity()
LIMIT_SECONDS = 20
HEAD = "POST /validate HTTP/1.1\r\nHost: webhook\r\nContent-Length: {}\r\n\r\n"
REVIEW = {
    "request": {
        "uid": "1",
        "operation": "CREATE",
        "resource": {"resource": "runs"},
        "name": "claimed-name",
        "userInfo": {"username": "claimed-user"},
        "object": {"spec": {}},
    }
}


class ServerUnderTest:
    """A server on a loopback port whose handler refuses every object that has ``refuse`` in its spec."""

    def __init__(self, clients: ClientIdentity = ANYBODY) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.log = StringIO()
        self.metrics = Metrics()
        handlers = {"/validate": self._review}
        address = f"127.0.0.1:{self.port}"
        self.server = Server(address, handlers, Log(self.log), metrics=self.metrics, clients=clients)
        self._writers: list[asyncio.StreamWriter] = []
        self.tls = ssl.create_default_context()
        self.tls.check_hostname = False
        self.tls.verify_mode = ssl.CERT_NONE

    async def _review(self, request: AdmissionRequest) -> AdmissionResponse:
        return forbid("claimed-name: no") if "refuse" in request.after["spec"] else ALLOWED

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await self.open(self.tls)

    async def open(self, tls: ssl.SSLContext | None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=tls)
        self._writers.append(writer)
        return reader, writer

    async def stop(self) -> None:
        for writer in self._writers:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
        await self.server.stop()

    async def ask(self, spec: dict[str, Any]) -> bytes:
        """Sends a whole review, and returns the response."""
        reader, writer = await self.connect()
        review = {"request": {**REVIEW["request"], "object": {"spec": spec}}}
        body = msgspec.json.encode(review)
        writer.write(HEAD.format(len(body)).encode() + body)
        return await reader.readuntil(b"\r\n\r\n")

    async def send_slowly(self, size: int, sent: int) -> asyncio.StreamReader:
        """Begins a request, and sends only a part of its body."""
        reader, writer = await self.connect()
        writer.write(HEAD.format(size).encode() + b" " * sent)
        return reader


@asynccontextmanager
async def running_server(clients: ClientIdentity = ANYBODY) -> AsyncIterator[ServerUnderTest]:
    under_test = ServerUnderTest(clients)
    certificates = new_certificates(("127.0.0.1",), 1_800_000_000.0, CertificateSchedule(1200))
    await under_test.server.show(certificates.shown)
    try:
        yield under_test
    finally:
        await under_test.stop()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  the server has no event for it
        await asyncio.sleep(0)


def run_in_time(steps: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(steps, LIMIT_SECONDS)

    asyncio.run(limited())


def test_large_review_is_answered_while_slow_bodies_hold_all_room() -> None:
    async def steps() -> None:
        async with running_server() as under_test:
            listener, bodies = under_test.server._listener, under_test.server._bodies
            assert listener is not None
            listener._read_seconds = bodies._read_seconds = 10 * LIMIT_SECONDS
            slow = [await under_test.send_slowly(MAX_BYTES, 2**10) for _ in range(20)]
            await until(lambda: bodies.held_bytes == request_bodies.MAX_BYTES_TOGETHER)
            answer = await under_test.ask({"text": "x" * 2**20})
            assert b" 200 " in answer
            assert bodies.held_bytes <= request_bodies.MAX_BYTES_TOGETHER
            ended = await asyncio.wait_for(slow[0].read(100), LIMIT_SECONDS)
            assert b" 408 " in ended, "the slow body was given up for the honest one"

    run_in_time(steps())


def test_bodies_are_never_held_beyond_the_limit_and_all_room_returns() -> None:
    async def steps() -> None:
        async with running_server() as under_test:
            listener, bodies = under_test.server._listener, under_test.server._bodies
            assert listener is not None
            listener._read_seconds = bodies._read_seconds = bodies._patience_seconds = 10 * LIMIT_SECONDS
            answers = await asyncio.gather(*(under_test.ask({"text": "x" * 3 * 2**20}) for _ in range(12)))
            assert all(b" 200 " in answer for answer in answers), "bodies that arrive at once wait for room"
            assert bodies.held_bytes == 0

    run_in_time(steps())


def test_new_connections_close_the_oldest_ones_without_a_request() -> None:
    async def steps() -> None:
        async with running_server() as under_test:
            listener = under_test.server._listener
            assert listener is not None
            listener._max_connections = 8
            silent = [await under_test.connect() for _ in range(30)]
            assert b" 200 " in await under_test.ask({})
            assert len(listener.connections) <= 8
            assert await silent[0][0].read() == b"", "the oldest connection was closed"

    run_in_time(steps())


def test_client_that_opens_no_tls_is_closed_for_a_new_connection() -> None:
    async def steps() -> None:
        async with running_server() as under_test:
            listener = under_test.server._listener
            assert listener is not None
            listener._max_connections = 4
            for _ in range(12):
                await under_test.open(None)
            assert b" 200 " in await under_test.ask({})
            assert len(listener.connections) <= 4

    run_in_time(steps())


def test_silent_connection_is_closed_in_time() -> None:
    async def steps() -> None:
        async with running_server() as under_test:
            listener = under_test.server._listener
            assert listener is not None
            listener._read_seconds = 0.1
            reader, _ = await under_test.connect()
            assert await reader.read() == b""

    run_in_time(steps())


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (HEAD.format(MAX_BYTES + 1), b" 413 "),
        ("POST /validate HTTP/1.1\r\nHost: w\r\nTransfer-Encoding: chunked\r\n\r\n", b" 411 "),
    ],
)
def test_body_without_a_bounded_length_is_refused(head: str, status: bytes) -> None:
    async def steps() -> None:
        async with running_server() as under_test:
            reader, writer = await under_test.connect()
            writer.write(head.encode())
            assert status in await reader.readline()

    run_in_time(steps())


def test_compressed_body_is_not_expanded() -> None:
    async def steps() -> None:
        async with running_server() as under_test:
            reader, writer = await under_test.connect()
            head = HEAD.format(4).replace("\r\n\r\n", "\r\nContent-Encoding: gzip\r\n\r\n")
            writer.write(head.encode() + b"\x1f\x8b\x08\x00")
            assert b" 400 " in await reader.readline()

    run_in_time(steps())


def test_refusal_is_counted_and_no_claim_is_logged_when_clients_are_unknown() -> None:
    async def steps() -> None:
        async with running_server() as under_test:
            before = 'jobtree_webhook_refusals_total{path="/validate"} 0.0'
            assert before in under_test.metrics.page().decode(), "rate() needs a zero"
            assert b" 200 " in await under_test.ask({"refuse": True})
            assert "claimed" not in under_test.log.getvalue()
            page = under_test.metrics.page().decode()
            assert 'jobtree_webhook_refusals_total{path="/validate"} 1.0' in page

    run_in_time(steps())


def test_only_clients_with_the_named_certificate_are_answered(tmp_path: Path) -> None:
    authority = Authority()
    bundle = tmp_path / "ca.crt"
    bundle.write_text(authority.certificate)
    for name in ("api-server", "somebody"):
        pair = authority.client(name)
        (tmp_path / f"{name}.pem").write_text(pair.public + pair.key)

    async def steps() -> None:
        async with running_server(ClientIdentity(str(bundle), ("api-server",))) as under_test:
            for name in ("", "somebody"):
                if name:
                    under_test.tls.load_cert_chain(tmp_path / f"{name}.pem")
                with pytest.raises((OSError, asyncio.IncompleteReadError)):
                    await under_test.ask({})
            under_test.tls.load_cert_chain(tmp_path / "api-server.pem")
            assert b" 200 " in await under_test.ask({"refuse": True})
            assert '"user":"claimed-user"' in under_test.log.getvalue(), "the API server said so"

    run_in_time(steps())
