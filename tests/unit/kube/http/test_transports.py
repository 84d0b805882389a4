"""Both transports behave alike."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Protocol

import pytest

from jobtree.api.schema.problems import InputError
from jobtree.kube.auth.cluster_access import Access
from jobtree.kube.http.api_errors import FencedError, StatusError, UnreachableError
from jobtree.kube.http.api_requests import Request
from jobtree.kube.http.async_transport import PooledTransport
from jobtree.kube.http.blocking_transport import PlainTransport
from tests.unit.kube.server import ReceivedRequest, Reply, in_turn, refusal, serving

GET = Request("GET", "/api/v1/pods?limit=5")
POST = Request("POST", "/api/v1/pods", b"{}")


class Caller(Protocol):
    def send(self, request: Request) -> bytes: ...

    def stream(self, request: Request, silence_seconds: float | None) -> list[bytes]: ...


class Blocking:
    def __init__(self, access: Access, seconds: float) -> None:
        self._transport = PlainTransport(access, seconds)
        self.close = self._transport.close

    def send(self, request: Request) -> bytes:
        return self._transport.send(request)

    def stream(self, request: Request, silence_seconds: float | None) -> list[bytes]:
        return list(self._transport.stream(request, silence_seconds))


class EventLoop:
    """The asynchronous transport, called from outside its event loop."""

    def __init__(self, access: Access, seconds: float) -> None:
        self._runner = asyncio.Runner()
        self._transport = self._runner.run(self._create(access, seconds))

    async def _create(self, access: Access, seconds: float) -> PooledTransport:
        return PooledTransport(access, seconds)

    def send(self, request: Request) -> bytes:
        return self._runner.run(self._transport.send(request))

    def stream(self, request: Request, silence_seconds: float | None) -> list[bytes]:
        async def collect() -> list[bytes]:
            return [part async for part in self._transport.stream(request, silence_seconds)]

        return self._runner.run(collect())

    def close(self) -> None:
        self._runner.run(self._transport.close())
        self._runner.close()


Connect = Callable[..., Caller]


@pytest.fixture(name="connect", params=[Blocking, EventLoop])
def _connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    opened: list[Blocking | EventLoop] = []

    def connect(access: Access, seconds: float = 20) -> Caller:
        opened.append(request.param(access, seconds))
        return opened[-1]

    yield connect
    for caller in opened:
        caller.close()


def test_request_is_sent_with_its_headers_and_body(connect: Connect) -> None:
    with serving(lambda _: Reply(document={"kind": "PodList"})) as server:
        caller = connect(server.access(token="abc"))  # noqa: S106  no secret
        assert caller.send(GET) == b'{"kind": "PodList"}'
        caller.send(POST)
        get, post = server.requests
    assert (get.method, get.path, get.query) == ("GET", "/api/v1/pods", {"limit": "5"})
    assert get.headers["Authorization"] == "Bearer abc"
    assert get.headers["Accept-Encoding"] == "identity"
    assert (post.body, post.headers["Content-Type"]) == ({}, "application/json")


def test_refusal_raises_a_status_error(connect: Connect) -> None:
    with serving(lambda _: refusal(429, "TooManyRequests", Retry_After="3")) as server:
        with pytest.raises(StatusError) as error:
            connect(server.access()).send(GET)
        with pytest.raises(StatusError):
            connect(server.access()).stream(GET, 5)
    assert (error.value.code, error.value.retry_after_seconds) == (429, 3)


def accepting(token: str) -> Callable[[ReceivedRequest], Reply]:
    def respond(received: ReceivedRequest) -> Reply:
        if received.headers.get("Authorization") != f"Bearer {token}":
            return refusal(401, "Unauthorized")
        return Reply(parts=[b"yes"])

    return respond


def test_each_warning_is_reported_once() -> None:
    warnings: list[str] = []
    header = r'299 - "spec.owner: \"x\" has no Budget, \\ \"y\"", 299 - "and more"'
    with (
        serving(lambda _: Reply(document={}, headers={"Warning": header})) as server,
        closing(PlainTransport(server.access(), on_warning=warnings.append)) as transport,
    ):
        transport.send(POST)
        transport.send(POST)
    assert warnings == [r'spec.owner: "x" has no Budget, \ "y"', "and more"]


def test_request_is_sent_again_with_a_new_token_after_a_401(connect: Connect, tmp_path: Path) -> None:
    token = tmp_path / "token"
    with serving(accepting("new")) as server:
        for call in (lambda caller: caller.send(POST), lambda caller: b"".join(caller.stream(GET, 5))):
            token.write_text("old")
            caller = connect(server.access(tmp_path, token_file="token"))  # noqa: S106  the name of a file
            with pytest.raises(StatusError):
                call(caller)
            token.write_text("new")
            assert call(caller) == b"yes"


def test_second_401_raises(connect: Connect, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("old")
    with serving(accepting("new")) as server:
        with pytest.raises(StatusError) as error:
            connect(server.access(tmp_path, token_file="token")).send(GET)  # noqa: S106  the name of a file
        assert len(server.requests) == 2
        with pytest.raises(StatusError):
            connect(server.access(token="old")).send(GET)  # noqa: S106  no secret
        assert len(server.requests) == 3
    assert error.value.code == 401


def test_unreadable_token_raises_until_it_is_repaired(connect: Connect, tmp_path: Path) -> None:
    """The command line raises InputError; the manager tries again until the file is repaired."""
    with serving(lambda _: Reply(document={})) as server:
        caller = connect(server.access(tmp_path, token_file="token"))  # noqa: S106  the name of a file
        with pytest.raises((InputError, UnreachableError), match="cannot be read"):
            caller.send(POST)
        (tmp_path / "token").write_text("abc")
        assert caller.send(POST) == b"{}"


def test_guard_prevents_a_request(connect: Connect) -> None:
    calls: list[str] = []

    def refuse() -> None:
        calls.append("refused")
        raise FencedError("paused too long")

    with serving(lambda _: Reply(document={})) as server:
        caller = connect(server.access())
        caller.send(POST._replace(guard=lambda: calls.append("let through")))
        with pytest.raises(FencedError):
            caller.send(POST._replace(guard=refuse))
        caller.send(GET)
        assert [received.method for received in server.requests] == ["POST", "GET"]
    assert calls == ["let through", "refused"]


def test_refused_connection_is_unreachable_and_nothing_happened(connect: Connect) -> None:
    with serving(lambda _: Reply()) as server:
        access = server.access()
    caller = connect(access)
    for call in (lambda: caller.send(POST), lambda: caller.stream(GET, 5)):
        with pytest.raises(UnreachableError, match=access.endpoint.url) as error:
            call()
        assert not error.value.may_have_happened


def test_write_without_a_response_may_have_happened(connect: Connect) -> None:
    with serving(lambda _: Reply(parts=[], then="hang")) as server:
        with pytest.raises(UnreachableError) as error:
            connect(server.access(), 0.2).send(POST)
        assert error.value.may_have_happened


def test_read_is_sent_again_when_the_kept_connection_was_closed(connect: Connect) -> None:
    with serving(in_turn(Reply(parts=[b"1"], then="end"), Reply(document=2))) as server:
        caller = connect(server.access())
        assert caller.send(GET) == b"1"
        server.cut()
        assert caller.send(GET) == b"2"


def test_silent_stream_raises(connect: Connect) -> None:
    with serving(lambda _: Reply(parts=[b"one\n"], then="hang")) as server, pytest.raises(UnreachableError):
        connect(server.access()).stream(GET, 0.2)


def test_stream_that_is_cut_off_raises(connect: Connect) -> None:
    with serving(lambda _: Reply(parts=[b"one\n"], then="drop")) as server, pytest.raises(UnreachableError):
        connect(server.access()).stream(GET, 5)


def test_stream_begins_with_an_empty_part(connect: Connect) -> None:
    big = b"x" * 3_000_000
    with serving(lambda _: Reply(parts=[b"one\n", big])) as server:
        parts = connect(server.access()).stream(GET, 5)
    assert parts[0] == b""
    assert b"".join(parts) == b"one\n" + big


def test_prefix_of_the_server_is_in_the_path(connect: Connect) -> None:
    with serving(lambda _: Reply(document={})) as server:
        access = server.access()
        access.endpoint = access.endpoint._replace(prefix="/k8s/c-1")
        connect(access).send(GET)
        assert server.requests[0].path == "/k8s/c-1/api/v1/pods"


def test_http_proxy_is_asked_for_a_tunnel(connect: Connect) -> None:
    """Checks the CONNECT request only; ``test_proxy_tunnel`` sends requests through a tunnel."""
    with closing(socket.create_server(("127.0.0.1", 0))) as proxy, serving(lambda _: Reply()) as server:
        access = server.access()
        access.endpoint = access.endpoint._replace(proxy=f"http://127.0.0.1:{proxy.getsockname()[1]}")
        with pytest.raises(UnreachableError):
            connect(access, 0.5).send(GET)
        connection, _ = proxy.accept()
        with closing(connection):
            request = connection.recv(1000)
        assert server.requests == []
    assert str(access.endpoint.port).encode() in request.splitlines()[0]
