"""Both transports, the same demands."""

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
from tests.unit.kube.server import Asked, Reply, in_turn, refusal, serving

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


class Looping:
    """The asynchronous one, driven from outside its loop."""

    def __init__(self, access: Access, seconds: float) -> None:
        self._runner = asyncio.Runner()
        self._transport = self._runner.run(self._made(access, seconds))

    async def _made(self, access: Access, seconds: float) -> PooledTransport:
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


@pytest.fixture(name="connect", params=[Blocking, Looping])
def _connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    opened: list[Blocking | Looping] = []

    def connect(access: Access, seconds: float = 20) -> Caller:
        opened.append(request.param(access, seconds))
        return opened[-1]

    yield connect
    for one in opened:
        one.close()


def test_a_request_arrives_as_it_is(connect: Connect) -> None:
    with serving(lambda _: Reply(document={"kind": "PodList"})) as server:
        caller = connect(server.access(token="abc"))  # noqa: S106  no secret
        assert caller.send(GET) == b'{"kind": "PodList"}'
        caller.send(POST)
        got, posted = server.asked
    assert (got.method, got.path, got.query) == ("GET", "/api/v1/pods", {"limit": "5"})
    assert got.headers["Authorization"] == "Bearer abc"
    assert got.headers["Accept-Encoding"] == "identity"
    assert (posted.body, posted.headers["Content-Type"]) == ({}, "application/json")


def test_a_refusal_is_one_exception(connect: Connect) -> None:
    with serving(lambda _: refusal(429, "TooManyRequests", Retry_After="3")) as server:
        with pytest.raises(StatusError) as error:
            connect(server.access()).send(GET)
        with pytest.raises(StatusError):
            connect(server.access()).stream(GET, 5)
    assert (error.value.code, error.value.retry_after_seconds) == (429, 3)


def believing(token: str) -> Callable[[Asked], Reply]:
    def answers(asked: Asked) -> Reply:
        if asked.headers.get("Authorization") != f"Bearer {token}":
            return refusal(401, "Unauthorized")
        return Reply(parts=[b"yes"])

    return answers


def test_warnings_are_told_once_each_word_by_word() -> None:
    told: list[str] = []
    header = r'299 - "spec.owner: \"x\" has no Budget, \\ \"y\"", 299 - "and more"'
    with (
        serving(lambda _: Reply(document={}, headers={"Warning": header})) as server,
        closing(PlainTransport(server.access(), warned=told.append)) as transport,
    ):
        transport.send(POST)
        transport.send(POST)
    assert told == [r'spec.owner: "x" has no Budget, \ "y"', "and more"]


def test_a_401_is_tried_again_with_a_new_token(connect: Connect, tmp_path: Path) -> None:
    token = tmp_path / "token"
    with serving(believing("new")) as server:
        for ask in (lambda one: one.send(POST), lambda one: b"".join(one.stream(GET, 5))):
            token.write_text("old")
            caller = connect(server.access(tmp_path, token_file="token"))  # noqa: S106  the name of a file
            with pytest.raises(StatusError):
                ask(caller)
            token.write_text("new")
            assert ask(caller) == b"yes"


def test_a_401_that_stays_is_not_tried_for_ever(connect: Connect, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("old")
    with serving(believing("new")) as server:
        with pytest.raises(StatusError) as error:
            connect(server.access(tmp_path, token_file="token")).send(GET)  # noqa: S106  the name of a file
        assert len(server.asked) == 2
        with pytest.raises(StatusError):
            connect(server.access(token="old")).send(GET)  # noqa: S106  no secret
        assert len(server.asked) == 3
    assert error.value.code == 401


def test_credentials_that_cannot_be_had_are_for_a_person_or_for_patience(
    connect: Connect, tmp_path: Path
) -> None:
    """The command line says what to mend; the manager cannot reach the server until it is."""
    with serving(lambda _: Reply(document={})) as server:
        caller = connect(server.access(tmp_path, token_file="token"))  # noqa: S106  the name of a file
        with pytest.raises((InputError, UnreachableError), match="cannot be read"):
            caller.send(POST)
        (tmp_path / "token").write_text("abc")
        assert caller.send(POST) == b"{}"


def test_a_guard_is_asked_before_the_first_byte_leaves(connect: Connect) -> None:
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
        assert [asked.method for asked in server.asked] == ["POST", "GET"]
    assert calls == ["let through", "refused"]


def test_nobody_listening_is_unreachable_and_nothing_happened(connect: Connect) -> None:
    with serving(lambda _: Reply()) as server:
        access = server.access()
    caller = connect(access)
    for ask in (lambda: caller.send(POST), lambda: caller.stream(GET, 5)):
        with pytest.raises(UnreachableError, match=access.endpoint.url) as error:
            ask()
        assert not error.value.may_have_happened


def test_a_write_without_an_answer_may_have_happened(connect: Connect) -> None:
    with serving(lambda _: Reply(parts=[], then="hang")) as server:
        with pytest.raises(UnreachableError) as error:
            connect(server.access(), 0.2).send(POST)
        assert error.value.may_have_happened


def test_a_kept_connection_that_the_server_closed_does_not_fail_a_reader(connect: Connect) -> None:
    with serving(in_turn(Reply(parts=[b"1"], then="end"), Reply(document=2))) as server:
        caller = connect(server.access())
        assert caller.send(GET) == b"1"
        server.cut()
        assert caller.send(GET) == b"2"


def test_a_stream_that_falls_silent_is_given_up(connect: Connect) -> None:
    with serving(lambda _: Reply(parts=[b"one\n"], then="hang")) as server, pytest.raises(UnreachableError):
        connect(server.access()).stream(GET, 0.2)


def test_a_stream_that_is_cut_off_is_not_taken_for_complete(connect: Connect) -> None:
    with serving(lambda _: Reply(parts=[b"one\n"], then="drop")) as server, pytest.raises(UnreachableError):
        connect(server.access()).stream(GET, 5)


def test_parts_come_after_the_servers_consent(connect: Connect) -> None:
    big = b"x" * 3_000_000
    with serving(lambda _: Reply(parts=[b"one\n", big])) as server:
        parts = connect(server.access()).stream(GET, 5)
    assert parts[0] == b""
    assert b"".join(parts) == b"one\n" + big


def test_a_prefix_of_the_server_is_kept(connect: Connect) -> None:
    with serving(lambda _: Reply(document={})) as server:
        access = server.access()
        access.endpoint = access.endpoint._replace(prefix="/k8s/c-1")
        connect(access).send(GET)
        assert server.asked[0].path == "/k8s/c-1/api/v1/pods"


def test_an_http_proxy_is_asked_for_a_tunnel(connect: Connect) -> None:
    """What a proxy is told is enough to see; both libraries test that tunnels carry."""
    with closing(socket.create_server(("127.0.0.1", 0))) as proxy, serving(lambda _: Reply()) as server:
        access = server.access()
        access.endpoint = access.endpoint._replace(proxy=f"http://127.0.0.1:{proxy.getsockname()[1]}")
        with pytest.raises(UnreachableError):
            connect(access, 0.5).send(GET)
        told, _ = proxy.accept()
        with closing(told):
            first = told.recv(1000)
        assert server.asked == []
    assert str(access.endpoint.port).encode() in first.splitlines()[0]
